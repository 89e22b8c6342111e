"""Routing tables of a topic, as a node sends them."""

from __future__ import annotations

import itertools

from ringfence.native.messages import NodeEntry, PartitionEntry, Table


def table(
    bounds: list[int], *, generation: int = 5, history: bytes = b"h", loads: list[int | None] | None = None
) -> Table:
    edges = [0, *sorted(bounds), 65536]
    partitions = [
        PartitionEntry(partition=100 + index, lo=lo, hi=hi - 1, state="ACTIVE", owner=1, epoch=index)
        for index, (lo, hi) in enumerate(itertools.pairwise(edges))
    ]
    return Table(
        topic=7,
        name="t",
        history=history,
        generation=generation,
        version=1,
        key=["k"],
        schemas=[b"s"],
        replication=1,
        partitions=partitions[::-1],
        nodes=[NodeEntry(node=1, addresses=["tcp://a:1"])],
        loads={100 + index: load for index, load in enumerate(loads or []) if load is not None},
    )
