"""The whole topic, read when everything is quiet: what stands where, and whether each row has its content."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa

import ringfence
from ringfence import Place
from ringfence.control.cli.cluster_load import NUMBER, PRODUCER, identity_of
from tests.chaos.proof import Harm, Violation
from tests.chaos.seen import Seen

CAUGHT_UP_S = 120.0
"""Within which readers have what everybody can read: a minute of a loaded machine's rows, twice."""
READ_S = 300.0
"""Within which a node answers each fetch: its one disk serves eight readers that lag at the same time."""
LOOK_ROWS = 50_000


@dataclass
class Read:
    seen: Seen = field(default_factory=Seen)
    changed: list[Violation] = field(default_factory=list)


def read_all(addresses: str, topic: str, source: pa.RecordBatch) -> Read:
    """Read it to its end. RingfenceError: it cannot be read."""
    read, waiting, rows = Read(), list[tuple[Place, pa.RecordBatch]](), 0
    with ringfence.connect(addresses, timeout_s=READ_S) as client, client.read(topic) as reader:
        for batch in reader:
            place = reader.place
            assert place is not None
            read.seen.add(place.partition, place.first_offset, *identity_of(batch))
            waiting.append((place, batch))
            rows += batch.num_rows
            if rows >= LOOK_ROWS:
                read.changed += changed(waiting, source)
                waiting, rows = [], 0
    read.changed += changed(waiting, source)
    return read


def changed(batches: list[tuple[Place, pa.RecordBatch]], source: pa.RecordBatch) -> list[Violation]:
    """Batches of which a row is not as it was sent; all are looked at in one, for most have a dozen rows."""
    if not batches or has_its_content(pa.concat_batches([batch for _, batch in batches]), source):
        return []
    return [
        Violation(
            Harm.CHANGED, batch.num_rows, f"of those at offset {place.first_offset} of {place.partition}"
        )
        for place, batch in batches
        if not has_its_content(batch, source)
    ]


def has_its_content(batch: pa.RecordBatch, source: pa.RecordBatch) -> bool:
    """Each row is the one of `source` that its number says: producers send it again and again."""
    _, numbers = identity_of(batch)
    truth = source.take(pa.array(numbers % source.num_rows))
    return bool(batch.drop_columns([PRODUCER, NUMBER]).equals(truth))
