"""Tables of a topic as a producer's queues need them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ringfence.common.routes import Routes, Slots
from ringfence.native.wire import SLOT_COUNT


def routes(
    active: Mapping[int, Slots], sealed: Mapping[int, Slots] | None = None, *, version: int = 1
) -> Routes:
    """Partitions with their slots."""
    return Routes(version, active, sealed or {})


def even_routes(partitions: Iterable[int]) -> Routes:
    """ACTIVE partitions that share the slots evenly."""
    names = list(partitions)
    edges = [index * SLOT_COUNT // max(1, len(names)) for index in range(len(names) + 1)]
    return Routes(1, {name: (edges[index], edges[index + 1] - 1) for index, name in enumerate(names)})
