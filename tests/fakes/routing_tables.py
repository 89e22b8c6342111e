"""Routing tables of a topic, as a node sends them."""

from __future__ import annotations

import itertools

from ringfence.native.messages import NodeEntry, PartitionEntry, Table


def table(
    bounds: list[int],
    *,
    generation: int = 5,
    version: int = 1,
    history: bytes = b"h",
    loads: list[int | None] | None = None,
    key: list[str] | None = None,
    nodes: tuple[int, ...] = (1,),
) -> Table:
    """Partitions 100, 101 and so on, owned by the first of the nodes."""
    edges = [0, *sorted(bounds), 65536]
    partitions = [
        PartitionEntry(partition=100 + index, lo=lo, hi=hi - 1, state="ACTIVE", owner=nodes[0], epoch=index)
        for index, (lo, hi) in enumerate(itertools.pairwise(edges))
    ]
    return Table(
        topic=7,
        name="t",
        history=history,
        generation=generation,
        version=version,
        key=["k"] if key is None else key,
        schemas=[b"s"],
        replication=1,
        partitions=partitions[::-1],
        nodes=[NodeEntry(node=node, addresses=[f"tcp://a:{node}"]) for node in nodes],
        loads={100 + index: load for index, load in enumerate(loads or []) if load is not None},
    )
