"""The routing table of one topic: slot -> partition -> owner. Pure.

A `Layout` is a checked and indexed routing table. It is immutable; `adoption.py` says which one replaces it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ringfence.native.errors import ProtocolError
from ringfence.native.wire import SLOT_COUNT, RedirectReason

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from ringfence.native.errors import RerouteError
    from ringfence.native.messages import PartitionEntry, Table

ACTIVE = "ACTIVE"


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """One topic as of one generation.

    `active` is sorted by `lo`. `index_of_slot`: uint16, shape (65536,), indexes into `active`. `loads`: bytes
    per second by partition, where known; a hint.
    """

    topic: int
    name: str
    history: bytes
    generation: int
    version: int
    key: tuple[str, ...]
    schemas: tuple[bytes, ...]
    active: tuple[PartitionEntry, ...]
    partitions: Mapping[int, PartitionEntry]
    index_of_slot: NDArray[np.uint16]
    addresses: Mapping[int, tuple[str, ...]]
    loads: Mapping[int, int]

    @property
    def schema_id(self) -> int:
        """Index of the newest schema."""
        return len(self.schemas) - 1

    def entry(self, partition: int) -> PartitionEntry | None:
        """The partition if it is ACTIVE."""
        found = self.partitions.get(partition)
        return found if found is not None and found.state == ACTIVE else None


def layout_of(table: Table) -> Layout:
    """Check and index a table.

    Raises:
        ProtocolError: the ACTIVE partitions do not tile the slots (I1), or the table has no schema.
    """
    active = tuple(
        sorted((entry for entry in table.partitions if entry.state == ACTIVE), key=lambda entry: entry.lo)
    )
    index_of_slot = np.empty(SLOT_COUNT, np.uint16)
    slot = 0
    for index, entry in enumerate(active):
        if entry.lo != slot or not entry.lo <= entry.hi < SLOT_COUNT:
            raise ProtocolError(
                "the slots of a routing table have a gap or an overlap",
                topic=table.name,
                partition=entry.partition,
                lo=entry.lo,
                hi=entry.hi,
                expected_lo=slot,
            )
        slot = entry.hi + 1
        index_of_slot[entry.lo : slot] = index
    if slot != SLOT_COUNT or not table.schemas:
        raise ProtocolError(
            "a routing table lacks slots at its end, or has no schema",
            topic=table.name,
            slots=slot,
            schemas=len(table.schemas),
        )
    return Layout(
        topic=table.topic,
        name=table.name,
        history=table.history,
        generation=table.generation,
        version=table.version,
        key=tuple(table.key),
        schemas=tuple(table.schemas),
        active=active,
        partitions={entry.partition: entry for entry in table.partitions},
        index_of_slot=index_of_slot,
        addresses={node.node: tuple(node.addresses) for node in table.nodes},
        loads=table.loads,
    )


def moved_between(before: Layout, after: Layout) -> Iterator[int]:
    """Partitions with another owner or owner epoch in `after`, sealed ones too."""
    for entry in after.partitions.values():
        known = before.partitions.get(entry.partition)
        if known is not None and (known.owner, known.epoch) != (entry.owner, entry.epoch):
            yield entry.partition


def is_early(error: RerouteError, generation: int, held: Layout) -> bool:
    """Whether a node redirects only because its generation is older than `held`, which names it as owner."""
    return error.reason is RedirectReason.NOT_OWNER and generation < held.generation


class WeightedRoundRobin:
    """Chooses the partition of the next batch of a topic without a key.

    Smooth weighted round-robin, as in nginx: in each turn every partition gains its weight as credit; the one
    with the most credit is chosen and loses the sum of the weights. A higher load means a lower weight, so
    idle partitions are preferred and none starves. Without loads it is plain round-robin. Loads may be
    outdated: sending *all* batches to the least loaded partition would overload it.
    """

    def __init__(self, layout: Layout) -> None:
        loads = [layout.loads.get(entry.partition) for entry in layout.active]
        known = [load for load in loads if load is not None]
        mean = sum(known) / len(known) if known else 0.0
        top = max(known, default=0.0)
        # An unknown load counts as the mean. + mean / 4: the most loaded partition still gets a share.
        self._weights = [
            top - (mean if load is None else load) + mean / 4 if mean > 0 else 1.0 for load in loads
        ]
        self._even = len(set(self._weights)) == 1
        self._turn = 0
        self._credit = [0.0] * len(loads)
        self._ids = [entry.partition for entry in layout.active]
        # The last `unavailable` set, and the indexes of other partitions: one value, since threads share it.
        self._open: tuple[frozenset[int], list[int]] = (frozenset(), list(range(len(loads))))

    def choose(self, unavailable: frozenset[int] = frozenset()) -> int:
        """Partition id for the next batch: not one of `unavailable`, unless all are."""
        known, indexes = self._open
        if unavailable is not known:
            indexes = [at for at, one in enumerate(self._ids) if one not in unavailable] or list(
                range(len(self._ids))
            )
            self._open = (unavailable, indexes)
        if self._even:
            self._turn += 1
            return self._ids[indexes[(self._turn - 1) % len(indexes)]]
        credit, weights = self._credit, self._weights
        best = indexes[0]
        for index in indexes:
            credit[index] += weights[index]
            if credit[index] > credit[best] + 1e-9:
                best = index
        credit[best] -= sum([weights[index] for index in indexes])
        return self._ids[best]
