"""The client's routing cache of one topic. Pure.

A `Layout` is what a routing table says, checked and indexed: slot -> partition -> owner. It is never changed,
only replaced whole, and only by a newer generation of the same history (I10: what is acknowledged is what is
held).
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

    `active` is sorted by `lo`; `index_of_slot` is uint16, shape (65536,): index into `active`, the same for
    all slots of one partition. `loads`: bytes a second by partition, where they are known; a hint.
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
    """The layout that a table describes.

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
                "a routing table has a gap or an overlap",
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
            "a routing table ends early or has no schema",
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


def newest(held: Layout | None, offered: Layout) -> Layout:
    """Which one to hold: the offered one only if it is a newer generation of the same history, or the same
    one with other loads.
    """
    if held is None:
        return offered
    if (offered.history, offered.topic) != (held.history, held.topic):
        return held
    has_news = offered.generation == held.generation and offered.loads != held.loads
    return offered if offered.generation > held.generation or has_news else held


def moved_between(before: Layout, after: Layout) -> Iterator[int]:
    """Active partitions that another node owns in `after`, or the same one anew (another owner epoch)."""
    for entry in after.active:
        known = before.partitions.get(entry.partition)
        if known is not None and (known.owner, known.epoch) != (entry.owner, entry.epoch):
            yield entry.partition


def is_early(error: RerouteError, generation: int, held: Layout) -> bool:
    """Whether a node of this generation refuses only because it has not heard yet what `held` says of it."""
    return error.reason is RedirectReason.NOT_OWNER and generation < held.generation


class Chooser:
    """Which partition takes the next whole batch of a topic without key.

    Smooth weighted round-robin (as nginx does it): each turn every partition gains its weight, the richest is
    chosen and pays the sum. Weights fall with the advertised load, so the idle ones are preferred and none
    starves; without loads it is plain round-robin. A load is a hint and may be old: sending *all* to the
    least loaded would overload it.
    """

    def __init__(self, layout: Layout) -> None:
        loads = [layout.loads.get(entry.partition) for entry in layout.active]
        known = [load for load in loads if load is not None]
        mean = sum(known) / len(known) if known else 0.0
        top = max(known, default=0.0)
        # An unknown load counts as the mean. + mean / 4: the most loaded one still gets a share.
        self._weights = [
            top - (mean if load is None else load) + mean / 4 if mean > 0 else 1.0 for load in loads
        ]
        self._even = len(set(self._weights)) == 1
        self._turn = 0
        self._credit = [0.0] * len(loads)
        self._ids = [entry.partition for entry in layout.active]
        # The last `away`, and places in `_ids` of the others: one value, for many threads choose.
        self._open: tuple[frozenset[int], list[int]] = (frozenset(), list(range(len(loads))))

    def choose(self, away: frozenset[int] = frozenset()) -> int:
        """Partition id of the next batch: not one of `away`, unless all are."""
        known, indexes = self._open
        if away is not known:
            indexes = [at for at, one in enumerate(self._ids) if one not in away] or list(
                range(len(self._ids))
            )
            self._open = (away, indexes)
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
