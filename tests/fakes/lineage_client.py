"""A client of a topic that is split, merged and pruned, and rows with ascending ids in it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import ringfence
from tests.fakes.client_topic import SCHEMA, rows
from tests.fakes.lineage_node import LineageNode

ROWS = 10


@contextmanager
def topic(partitions: int = 1) -> Iterator[tuple[LineageNode, ringfence.Client]]:
    """A node with topic "t", and a client of it."""
    with LineageNode() as node, ringfence.connect(node.address, timeout_s=10) as client:
        client.create_topic("t", schema=SCHEMA, key=["id"], partitions=partitions)
        yield node, client
        node.hook = None


class Writer:
    """Appends rows with ascending ids. `log`: (partition, id) of each, in the order of the appends."""

    def __init__(self, node: LineageNode) -> None:
        self.node, self.next, self.log = node, 0, list[tuple[int, int]]()

    def put(self, count: int = ROWS, first: int = 0) -> None:
        """`first`: place of the ACTIVE partition in the order of slots."""
        log = self.node.put("t", rows(self.next, count), first)
        self.log += [(log.partition, one) for one in range(self.next, self.next + count)]
        self.next += count

    @property
    def ids(self) -> list[int]:
        return list(range(self.next))


def read(reader: ringfence.Reader, limit: int | None = None) -> list[int]:
    """Ids in the order in which the reader returns them; `limit`: of batches."""
    found: list[int] = []
    for number, batch in enumerate(reader, 1):
        found += batch.column("id").to_pylist()
        if number == limit:
            break
    return found


def following(reader: ringfence.Reader, count: int) -> list[int]:
    """The next rows of a follower, at least `count`."""
    found: list[int] = []
    while len(found) < count:
        found += next(reader).column("id").to_pylist()
    return found
