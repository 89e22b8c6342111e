"""`python -m tests.chaos --minutes N`: harm the cluster, move its partitions, then prove every row.

Exit code 1: a row is lost, doubled, out of order, was two at one offset, or vanished; a writer saw an error;
or too little happened for the time: then nothing was proven.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

import ringfence
from ringfence import Place
from ringfence.control.cli.cluster_load import ProofError, Writer, check, identity_of, topic_schema
from tests.chaos.faults import FAULTS
from tests.chaos.fleet import NODES, Fleet
from tests.chaos.following import Follower, Seen, compare
from tests.chaos.mover import REPLICAS, Mover
from tests.system.network import Network

TOPIC = "chaos"
PARTITIONS = 64
WRITERS = READERS = 8
ROWS = 4_000
"""Of the source that the writers send again and again."""
ROWS_PER_S = 10_000
"""Of all writers: 2 million rows in five minutes, with all the stops."""
PER_5_MINUTES = {"faults": 60, "each": 10, "while_moving": 20, "moves": 20, "rows": 2_000_000}
EACH = ("kill", "pause", "partition", "power_cut")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="ringfence-chaos-") as folder,
        Network(NODES) as network,
        Fleet(Path(folder), network) as fleet,
    ):
        return run(fleet, arguments.minutes * 60, arguments.seed)


def run(fleet: Fleet, seconds: float, seed: int) -> int:
    source = _source()
    with ringfence.connect(fleet.addresses, timeout_s=60) as client:
        schema = topic_schema(source.schema)
        made = client.create_topic(
            TOPIC, schema=schema, key=["key"], partitions=PARTITIONS, replication=REPLICAS
        )
    partitions = [part.partition for part in made.partitions]
    rate = ROWS_PER_S / WRITERS * source.nbytes / source.num_rows
    writers = [Writer(fleet.addresses, TOPIC, number, source, rate) for number in range(WRITERS)]
    readers = [Follower(fleet.addresses, TOPIC, partitions[number::READERS]) for number in range(READERS)]
    mover = Mover(fleet, partitions, seed)
    for start in (mover.start, *(one.start for one in writers), *(one.start for one in readers)):
        start()
    done, while_moving = _harm(fleet, mover, seconds, seed)
    mover.finish()
    fleet.until_whole()
    longest_s = max(writer.take().longest_s for writer in writers)
    for writer in writers:
        writer.finish()
    wrong = [f"writer {writer.number}: {writer.failure}" for writer in writers if writer.failure]
    wrong += [f"the mover: {mover.failure!r}"] if mover.failure is not None else []
    sent = {writer.number: writer.sent for writer in writers}
    try:
        if not wrong:
            _prove(fleet, readers, source, sent)
    except ProofError as error:
        wrong.append(str(error))
    for reader in readers:
        reader.finish()
    wrong += [f"a reader: {reader.failure!r}" for reader in readers if reader.failure is not None]
    counts = {"faults": sum(done.values()), "while_moving": while_moving, "moves": mover.committed,
              "rows": sum(sent.values())}  # fmt: skip
    share = seconds / 300
    wrong += [
        f"too little happened: {name}={counts[name]}, wanted {PER_5_MINUTES[name] * share:.0f}"
        for name in counts
        if counts[name] < int(PER_5_MINUTES[name] * share)
    ]
    least = int(PER_5_MINUTES["each"] * share)
    wrong += [f"too few of {name}: {done[name]}, wanted {least}" for name in EACH if done[name] < least]
    kinds = ", ".join(f"{count} {name}" for name, count in sorted(done.items()))
    print(f"{counts['faults']} faults ({kinds}), {while_moving} while partitions moved")
    print(f"{mover.committed} moves committed, {mover.failed} failed, {mover.drains} drains")
    print(f"{counts['rows']:,} rows, longest wait of a send {longest_s:.1f} s; seed {seed}")
    for line in wrong:
        print(f"WRONG: {line}")
    return 1 if wrong else 0


def _harm(fleet: Fleet, mover: Mover, seconds: float, seed: int) -> tuple[Counter[str], int]:
    """One fault behind another, each kind as often, half of them wait for a move to be under way."""
    dice, done, while_moving = random.Random(seed), Counter[str](), 0
    end = time.monotonic() + seconds
    kinds: list[str] = []
    while time.monotonic() < end:
        if not kinds:
            kinds = dice.sample(sorted(FAULTS), len(FAULTS))
        kind, place = kinds.pop(), dice.randrange(NODES)
        if dice.random() < 0.7:
            mover.moving.wait(2.0)
        is_moving = mover.moving.is_set()
        print(f"{max(0.0, end - time.monotonic()):6.1f} s left: {kind} of node {fleet.id(place)}"
              + (", while partitions move" if is_moving else ""), file=sys.stderr, flush=True)  # fmt: skip
        FAULTS[kind](fleet, place, dice)
        done[kind] += 1
        while_moving += is_moving
        time.sleep(dice.uniform(0.2, 1.5))
    return done, while_moving


def _prove(fleet: Fleet, readers: list[Follower], source: pa.RecordBatch, sent: dict[int, int]) -> None:
    read = Seen()

    def batches() -> Iterator[tuple[Place, pa.RecordBatch]]:
        with ringfence.connect(fleet.addresses, timeout_s=60) as client, client.read(TOPIC) as reader:
            for batch in reader:
                assert reader.place is not None
                read.add(reader.place.partition, reader.place.first_offset, *identity_of(batch))
                yield reader.place, batch

    check(batches(), source, sent)
    end = time.monotonic() + 60
    while sum(reader.seen.rows for reader in readers) < read.rows and time.monotonic() < end:
        time.sleep(0.1)
    followed = sum(reader.seen.rows for reader in readers)
    if followed != read.rows:
        raise ProofError(f"the readers saw {followed:,} rows, {read.rows:,} are there")
    for reader in readers:
        compare(read, reader.seen)


def _source() -> pa.RecordBatch:
    dice = np.random.default_rng(7)
    keys = pa.array(dice.integers(0, 1 << 40, ROWS))
    texts = pa.array([f"row {row} of the source" for row in range(ROWS)])
    schema = pa.schema([pa.field("key", pa.int64(), nullable=False), pa.field("text", pa.string())])
    return pa.record_batch([keys, texts], schema=schema)


if __name__ == "__main__":
    raise SystemExit(main())
