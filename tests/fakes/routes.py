"""Tables of a topic as a producer's queues need them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ringfence.common.routes import Routes, Slots
from ringfence.native.wire import SLOT_COUNT


def routes(
    active: Iterable[int] | Mapping[int, Slots],
    sealed: Mapping[int, Slots] | None = None,
    *,
    version: int = 1,
) -> Routes:
    """`active`: partitions with their slots, or partitions that share the slots evenly."""
    if not isinstance(active, Mapping):
        names = list(active)
        edges = [index * SLOT_COUNT // len(names) for index in range(len(names) + 1)]
        active = {name: (edges[index], edges[index + 1] - 1) for index, name in enumerate(names)}
    return Routes(version, active, sealed or {})
