"""`python -m tests.chaos.log_check --minutes N`: what clients saw of a harmed cluster, judged as a history.

`python -m tests.chaos` compares the rows of eight equal writers. This run has plain, named and transactional
writers, layout changes, truncates, a forced owner, questions about ends, readers of several kinds, and with
`--consumers` cohorts (`log_cohorts.py`). `tests.checker.log_anomalies` names what is wrong. Exit code 1:
there is an anomaly, a client failed, a node ended by itself, or too little happened.
"""

from __future__ import annotations

import argparse
import dataclasses
import faulthandler
import json
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np

import ringfence
from tests.chaos import sandbox
from tests.chaos.changer import Changer, active
from tests.chaos.fleet import NODES, TOPIC, Fleet
from tests.chaos.forced import Forcer
from tests.chaos.goals import Goals
from tests.chaos.harm import Harmer
from tests.chaos.log_clients import (
    ROWS,
    SCHEMA,
    EndAsker,
    Follower,
    FromStart,
    PlainWriter,
    TransactionWriter,
    Truncator,
    Witness,
    final_read,
)
from tests.chaos.log_cohorts import Cohorts
from tests.chaos.log_named import NamedWriter
from tests.chaos.mover import REPLICAS, Mover
from tests.checker.log_anomalies import anomalies
from tests.checker.log_history import FINAL, History, Outcome
from tests.harness.network import Network

CUT_TOPIC = "cut"
PARTITIONS = 8
WRITERS_EACH = 1_000
"""Numbers of writers that one plain writer may use up: it takes the next after a send without outcome."""
CHANGE_EVERY_S = 30.0
"""At least so often a layout change must have ended well."""
ROWS_PER_S = 60
"""The least that counts as work, of all writers of a topic."""


class Clients:
    """All that write to, read and ask one topic."""

    def __init__(self, fleet: Fleet, topic: str, seed: int, folder: Path, *, truncates: bool) -> None:
        self.topic = topic
        with ringfence.connect(fleet.addresses, timeout_s=60) as client:
            made = client.create_topic(
                topic, schema=SCHEMA, key=["key"], partitions=PARTITIONS, replication=REPLICAS
            )
        self.partitions = [part.partition for part in made.partitions]
        # The layout of the topic that is not truncated changes: its readers follow all of it.
        followed = (
            {"of even ones": self.partitions[::2], "of odd ones": self.partitions[1::2]}
            if truncates
            else {"one": None, "two": None}
        )
        where, seeds = (fleet.addresses, topic), iter(range(seed * 100, seed * 100 + 100))
        self.named = list[NamedWriter]()
        self.witnesses: list[Witness] = [
            *(PlainWriter(*where, next(seeds), number * WRITERS_EACH) for number in (1, 2)),
            *(Follower(*where, next(seeds), name, some) for name, some in followed.items()),
            EndAsker(*where, next(seeds)),
        ]
        if truncates:
            self.witnesses.append(Truncator(*where, next(seeds), self.partitions, every_s=4.0))
            self.witnesses.append(FromStart(*where, next(seeds), self.partitions))
        else:
            self.witnesses += [TransactionWriter(*where, next(seeds), 100_000 + one) for one in range(2)]
            self.named = [
                NamedWriter(fleet.addresses, topic, 200_000 + one, folder, next(seeds)) for one in range(2)
            ]

    def workers(self) -> list[Witness | NamedWriter]:
        return [*self.witnesses, *self.named]

    def start(self) -> None:
        for one in self.workers():
            one.start()

    def rows(self) -> int:
        return ROWS * sum(len(witness.history.sends) for witness in self.witnesses)

    def is_broken(self) -> bool:
        return any(one.failure for one in self.workers())

    def finish(self, addresses: str) -> tuple[History, list[str]]:
        """The whole history with the final read, and what failed."""
        for one in self.workers():
            one.stop()
        for one in self.workers():
            one.finish()
        history = History()
        for witness in self.witnesses:
            history.extend(witness.history)
        for writer in self.named:
            history.extend(writer.history())
        history.extend(final_read(addresses, self.topic))
        failures = [
            f"{type(one).__name__} of {self.topic}: {error!r}"
            for one in self.workers()
            for error in one.failure
        ]
        return history, failures


def run(fleet: Fleet, seconds: float, seed: int, keep: Path | None, *, has_consumers: bool) -> int:
    say(f"{NODES} nodes serve under {fleet.root}")
    clients = [
        Clients(fleet, TOPIC, seed, fleet.root, truncates=False),
        Clients(fleet, CUT_TOPIC, seed + 1, fleet.root, truncates=True),
    ]
    cohorts = [Cohorts(fleet.addresses, TOPIC, CUT_TOPIC, fleet.root, seed, seconds)] if has_consumers else []
    everyone: list[Clients | Cohorts] = [*clients, *cohorts]
    goals = dataclasses.replace(Goals.of(seconds), rows=int(seconds * ROWS_PER_S))
    mover = Mover(fleet, lambda: [*active(fleet.addresses, TOPIC), *clients[1].partitions], seed)
    changer = Changer(fleet, TOPIC, seed)
    harmer = Harmer(
        fleet,
        mover,
        goals,
        lambda: min(one.rows() for one in clients),
        seed,
        lambda: any(one.is_broken() for one in everyone),
        lambda: not changer.missing,
    )
    forcer = Forcer(fleet, seed)
    for each in everyone:
        each.start()
    mover.start()
    changer.start()
    harmer.run(seconds)
    say("the last fault is over: an owner is forced, then moves, writers and readers come to their end")
    for cohort in cohorts:
        cohort.stop()
    mover.finish()
    changer.finish()
    say(f"{mover.committed} moves and {changer.changed} layout changes are over")
    fleet.until_whole()
    forced = forcer.run()
    say("an owner was forced; clients end")
    for cohort in cohorts:
        cohort.calm()
    wrong = [*harmer.ended]
    wrong += [f"the mover: {mover.failure!r}"] if mover.failure is not None else []
    wrong += [f"layout changes: {changer.failure!r}"] if changer.failure is not None else []
    if changer.changed < (least := max(1, int(seconds / CHANGE_EVERY_S))):
        wrong.append(f"too little happened: {changer.changed} layout changes, wanted {least}")
    wrong += [f"too little happened: {line}" for line in goals.missing(harmer.counts())]
    histories = {forcer.topic: forced}
    for one in clients:
        histories[one.topic], failures = one.finish(fleet.addresses)
        wrong += failures
    say("everything is read; consumers go on to the end")
    for cohort in cohorts:
        wrong += cohort.finish(histories[CUT_TOPIC])
    say("consumers have ended; the histories are judged")
    wrong += judged(histories)
    wrong += fleet.checked(forced=forcer.partition)
    tell(histories, harmer, mover, changer, seed)
    for cohort in cohorts:
        cohort.tell()
    if wrong and keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        (keep / "histories.json").write_text(json.dumps(histories, default=_plain))
        (keep / "strikes.json").write_text(json.dumps(harmer.strikes))
        for cohort in cohorts:
            cohort.keep(keep)
    for line in wrong:
        print(f"WRONG: {line}")
    return 1 if wrong else 0


def _plain(value: object) -> object:
    """A history as JSON; values of reads as lists."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    return (
        value.value
        if isinstance(value, Outcome)
        else {
            one.name: getattr(value, one.name)
            for one in dataclasses.fields(value)  # type: ignore[arg-type]
        }
    )


def judged(histories: dict[str, History]) -> list[str]:
    found = [f"{topic}: {one}" for topic, history in histories.items() for one in anomalies(history)]
    return [*found[:50], *([f"{len(found) - 50} more anomalies"] if len(found) > 50 else [])]


def tell(histories: dict[str, History], harmer: Harmer, mover: Mover, changer: Changer, seed: int) -> None:
    counts = harmer.counts()
    kinds = ", ".join(f"{count} {name}" for name, count in sorted(counts.faults.items()))
    moved = f"{mover.committed} moves, {mover.drains} drains, {changer.changed} layout changes"
    print(f"{counts.faults.total()} faults ({kinds}), {moved}; seed {seed}")
    for topic, history in histories.items():
        outcomes = Counter(send.outcome.value for send in history.sends if not send.transaction)
        commits = Counter(commit.outcome.value for commit in history.commits)
        final = sum(len(read.values) for read in history.reads if read.reader == FINAL)
        print(
            f"{topic}: {ROWS * len(history.sends):,} rows sent ({dict(outcomes)}), "
            f"transactions {dict(commits)}, {final:,} rows at the end, "
            f"{len(history.reads):,} reads, {len(history.ends):,} questions, "
            f"{len(history.truncates)} truncates, {len(history.forced)} forced owners"
        )


def say(what: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {what}", file=sys.stderr, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.log_check", description=__doc__)
    parser.add_argument("--minutes", type=float, default=3.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--consumers", action="store_true", help="cohorts of each mode, and a transformation")
    parser.add_argument(
        "--keep", type=Path, help="folder for histories and nodes' logs if something is wrong"
    )
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.inside is None:
        with tempfile.TemporaryDirectory(prefix="ringfence-log-check-") as folder:
            itself = [sys.executable, "-m", "tests.chaos.log_check", *sys.argv[1:], "--inside", folder]
            return sandbox.run(itself)
    sandbox.prepare()
    faulthandler.register(signal.SIGUSR1)  # what hangs can be asked where
    code = 1
    with Network(NODES) as network, Fleet(arguments.inside, network) as fleet:
        try:
            seconds, has_consumers = arguments.minutes * 60, arguments.consumers
            code = run(fleet, seconds, arguments.seed, arguments.keep, has_consumers=has_consumers)
        finally:
            for line in fleet.last_words() if code else ():
                print(line, file=sys.stderr)
            if code and arguments.keep is not None:
                arguments.keep.mkdir(parents=True, exist_ok=True)
                for place, node in enumerate(fleet.nodes):
                    shutil.copy(node.log, arguments.keep / f"node-{place}.log")
    return code


if __name__ == "__main__":
    raise SystemExit(main())
