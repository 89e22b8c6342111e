"""`python -m tests.chaos --minutes N`: harm the cluster, move its partitions, then prove every row.

Exit code 1: a row is lost, doubled, out of order, was two at one offset, or vanished; a writer or a reader
saw an error; a node ended by itself; replicas differ; or too little happened: then nothing was proven.
A run that crashes itself ends with 128 + the signal, and says where its threads were.
"""

from __future__ import annotations

import argparse
import faulthandler
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

import ringfence
from ringfence.control.cli.cluster_load import Writer, topic_schema
from tests.chaos import sandbox
from tests.chaos.fleet import NODES, TOPIC, Fleet
from tests.chaos.following import Follower
from tests.chaos.goals import Counts, Goals
from tests.chaos.harm import Harmer
from tests.chaos.mover import REPLICAS, Mover
from tests.chaos.proof import judge, shown
from tests.chaos.reading import CAUGHT_UP_S, Read, read_all
from tests.harness.network import Network

PARTITIONS = 64
WRITERS = READERS = 8
ROWS = 4_000
"""Of the source that the writers send again and again."""
ROWS_PER_S = 10_000
"""Of all writers: 2 million rows in five minutes, with all the stops."""


SWITCH_S = 0.0005
"""A tenth of Python's own: with that the last reading took six minutes once, beside readers that lagged."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="where the nodes' whole logs go when something was wrong")
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.inside is None:
        with tempfile.TemporaryDirectory(prefix="ringfence-chaos-") as folder:
            itself = [sys.executable, "-m", "tests.chaos", *sys.argv[1:], "--inside", folder]
            return sandbox.run(itself)
    sandbox.prepare()
    faulthandler.register(signal.SIGUSR1)  # what hangs can be asked where
    # Two dozen threads: who gives the lock away in the middle of a batch has it back sooner.
    sys.setswitchinterval(SWITCH_S)
    code = 1
    with Network(NODES) as network, Fleet(arguments.inside, network) as fleet:
        try:
            code = run(fleet, arguments.minutes * 60, arguments.seed)
        finally:
            for line in fleet.last_words() if code else ():
                print(line, file=sys.stderr)
            if code and arguments.keep is not None:
                ignored = shutil.ignore_patterns("disk")
                shutil.copytree(arguments.inside, arguments.keep, dirs_exist_ok=True, ignore=ignored)
    return code


class Load:
    """Eight writers and eight readers of one topic."""

    def __init__(self, fleet: Fleet) -> None:
        self.source = _source()
        with ringfence.connect(fleet.addresses, timeout_s=60) as client:
            made = client.create_topic(
                TOPIC,
                schema=topic_schema(self.source.schema),
                key=["key"],
                partitions=PARTITIONS,
                replication=REPLICAS,
            )
        self.partitions = [part.partition for part in made.partitions]
        rate = ROWS_PER_S / WRITERS * self.source.nbytes / self.source.num_rows
        self.writers = [
            Writer(fleet.addresses, TOPIC, number, self.source, rate) for number in range(WRITERS)
        ]
        self.readers = [
            Follower(fleet.addresses, TOPIC, self.partitions[number::READERS]) for number in range(READERS)
        ]
        self._rows, self.longest_s = 0, 0.0

    def start(self) -> None:
        for writer in self.writers:
            writer.start()
        for reader in self.readers:
            reader.start()

    def rows(self) -> int:
        """That were acknowledged so far."""
        for writer in self.writers:
            stretch = writer.take_stats()
            self._rows += stretch.rows
            self.longest_s = max(self.longest_s, stretch.longest_s)
        return self._rows

    def is_broken(self) -> bool:
        return any(writer.failure for writer in self.writers) or any(one.failure for one in self.readers)

    def sent(self) -> dict[int, int]:
        return {writer.number: writer.sent for writer in self.writers}

    def finish_writers(self) -> list[str]:
        """What they saw of errors; all that was sent is acknowledged when there is none."""
        self.rows()
        for writer in self.writers:
            writer.finish()
        self.rows()
        return [f"writer {writer.number}: {writer.failure}" for writer in self.writers if writer.failure]

    def finish_readers(self, read: Read) -> list[str]:
        """Let them catch up with `read`; what they saw of errors."""
        end = time.monotonic() + CAUGHT_UP_S
        while (rows := sum(reader.seen.rows for reader in self.readers)) < read.seen.rows:
            if time.monotonic() > end:
                _say(f"the readers have {rows:,} rows of {read.seen.rows:,}")
                break
            time.sleep(0.1)
        for reader in self.readers:
            reader.close()
        for reader in self.readers:
            reader.finish()
        return [f"a reader: {reader.failure!r}" for reader in self.readers if reader.failure is not None]


def run(fleet: Fleet, seconds: float, seed: int) -> int:
    _say(f"{NODES} nodes serve under {fleet.root}")
    load, goals = Load(fleet), Goals.of(seconds)
    mover = Mover(fleet, lambda: load.partitions, seed)
    harmer = Harmer(fleet, mover, goals, load.rows, seed, load.is_broken)
    load.start()
    mover.start()
    harmer.run(seconds)
    _say("the last fault is over: moves, writers and readers come to their end")
    mover.finish()
    fleet.until_whole()
    wrong = [*load.finish_writers(), *harmer.ended]
    wrong += [f"the mover: {mover.failure!r}"] if mover.failure is not None else []
    counts = harmer.counts()
    _say("reading everything once more")
    read = read_all(fleet.addresses, TOPIC, load.source)
    _say(f"{read.seen.rows:,} rows; readers catch up")
    wrong += load.finish_readers(read)
    readers = [(reader.seen, reader.partitions) for reader in load.readers]
    if not load.is_broken():  # what was acknowledged of a writer that failed is not known
        wrong += shown([*read.changed, *judge(read.seen, readers, load.sent())])
    wrong += [f"too little happened: {line}" for line in goals.missing(counts)]
    if counts.faults["clock_jump"] and not load.is_broken() and not fleet.has_reported_clock():
        wrong.append("clocks jumped, and no node reported a wrong one")
    _say("fsck --cluster")
    wrong += fleet.checked()
    _tell(counts, mover, load.longest_s, seed, wrong)
    return 1 if wrong else 0


def _say(what: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {what}", file=sys.stderr, flush=True)


def _tell(counts: Counts, mover: Mover, longest_s: float, seed: int, wrong: list[str]) -> None:
    kinds = ", ".join(f"{count} {name}" for name, count in sorted(counts.faults.items()))
    print(f"{counts.faults.total()} faults ({kinds}), {counts.while_moving} while partitions moved")
    print(f"{mover.committed} moves committed, {mover.failed} failed, {mover.drains} drains")
    print(f"{counts.rows:,} rows, longest wait of a send {longest_s:.1f} s; seed {seed}")
    for line in wrong:
        print(f"WRONG: {line}")


def _source() -> pa.RecordBatch:
    dice = np.random.default_rng(7)
    keys = pa.array(dice.integers(0, 1 << 40, ROWS))
    texts = pa.array([f"row {row} of the source" for row in range(ROWS)])
    schema = pa.schema([pa.field("key", pa.int64(), nullable=False), pa.field("text", pa.string())])
    return pa.record_batch([keys, texts], schema=schema)


if __name__ == "__main__":
    raise SystemExit(main())
