"""The engine's calls for layout changes, as values of the control plane.

A call that makes something durable takes a `permit`. The engine gets the call only if the permit returns True
in the same turn of the loop, so that no ABORT comes between the check and the call. Otherwise the call raises
OrderWithdrawnError. Calls that the engine refuses raise OrderError.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from ringfence.control.model.ids import Epoch, NodeId, PartitionId, TopicId
from ringfence.control.model.log_end import LogEnd
from ringfence.control.model.ranges import SlotRange
from ringfence.control.model.reassignments import ChangeId
from ringfence.control.model.topics import Replica
from ringfence.control.runtime.data_plane.native_node import NativeNode, OrderError
from ringfence.control.runtime.rpc.layout_messages import PAGE_BYTES_MAX
from ringfence.native._node import Order

Permit = Callable[[], bool]
# (topic, partition).
Place = tuple[TopicId, PartitionId]


class ChildPlace(NamedTuple):
    """A child of a layout change at one store: its owner's node, and the other replicas."""

    topic: TopicId
    partition: PartitionId
    slots: SlotRange
    epoch: Epoch
    owner: NodeId
    others: tuple[Replica, ...]

    @property
    def quorum(self) -> int:
        return (len(self.others) + 1) // 2 + 1


class SourceSlots(NamedTuple):
    """A source, and the slots of the child that inherits from it."""

    topic: TopicId
    source: PartitionId
    slots: SlotRange


class TablePart(NamedTuple):
    """A page of a producer table as the engine reads and takes it.

    It is as of the record `records`; `last` is the greatest id in it. `more`: entries with greater ids exist.
    """

    page: bytes
    records: int
    last: int
    more: bool


class PartitionFigures(NamedTuple):
    """What the engine tells of one partition at a moment."""

    is_open: bool
    owner_epoch: int
    is_quarantined: bool
    stages: int
    start_offset: int
    end: LogEnd
    last_acknowledged_us: int = 0
    first_acknowledged_us: int = 0
    # Sources of which the log has everything that the partition inherits.
    sources: frozenset[PartitionId] = frozenset()
    # Rows of equal parts of the partition's slots, unsigned 32-bit integers, little endian; empty: no sketch.
    sketch: bytes = b""

    @property
    def weights(self) -> tuple[int, ...]:
        """The sketch as integers."""
        return struct.unpack(f"<{len(self.sketch) // 4}I", self.sketch)


class LayoutEngine(Protocol):
    """The engine of one node."""

    async def locate(self, node: NodeId, addresses: Sequence[str]) -> None:
        """Set the addresses of another node, which may share nothing with this one yet."""
        ...

    async def create_owned(self, child: ChildPlace, permit: Permit) -> None:
        """Own the child; ends once its first record is on a quorum. A repeat ends immediately."""
        ...

    async def create_followed(self, child: ChildPlace, permit: Permit) -> None:
        """Take the records of the child's owner."""
        ...

    async def hold(self, place: Place, number: ChangeId, permit: Permit) -> tuple[LogEnd, int]:
        """Fence a source at the number. The end, and the time of its last acknowledgement in Unix us.

        Ends once all records are on a quorum.
        """
        ...

    async def table_out(self, source: SourceSlots, since: int, after: int) -> TablePart:
        """Read a page of a source's table: entries with ids above `after`, touched in record `since` or
        later.
        """
        ...

    async def table_in(
        self,
        child: PartitionId,
        source: SourceSlots,
        number: ChangeId,
        part: TablePart,
        *,
        is_final: bool,
        permit: Permit,
    ) -> None:
        """Append a page to a child that this node owns under `number`; ends on the quorum.

        `is_final`: all of the source is in the child's log then.
        """
        ...

    async def gates_out(
        self, place: Place, number: ChangeId, records: int, partitions: Sequence[int] | None = None
    ) -> bytes:
        """Read the gates of a source's registered readers, as of its end after `records` records.

        0 records: as of now, before the HOLD. `partitions`: those whose gates are wanted; None: all there.
        """
        ...

    async def gates_in(
        self, child: Place, source: PartitionId, number: ChangeId, gates: bytes, permit: Permit
    ) -> None:
        """Append the gates of a source to its heir, before the source's last page."""
        ...

    def figures(self, places: Collection[Place]) -> Mapping[Place, PartitionFigures]:
        """Figures of those of these partitions that are here. The rest of the store costs nothing."""
        ...


def figures_of(counters: Mapping[str, Any]) -> PartitionFigures:
    """The figures in the counters of one partition."""
    epoch = int(counters.get("epoch", counters.get("owner_epoch", 0)))
    end = LogEnd(
        Epoch(epoch),
        int(counters.get("records", 0)),
        int(counters.get("end_offset", 0)),
        int(counters.get("chain", 0)),
    )
    return PartitionFigures(
        is_open=bool(counters.get("open")),
        owner_epoch=int(counters.get("owner_epoch", 0)),
        is_quarantined=bool(counters.get("quarantined")),
        stages=int(counters.get("stages", 0)),
        start_offset=int(counters.get("start_offset", 0)),
        end=end,
        last_acknowledged_us=int(counters.get("last_acknowledged_us", 0)),
        first_acknowledged_us=int(counters.get("first_acknowledged_us", 0)),
        sources=frozenset(PartitionId(source) for source, _ in counters.get("sources") or ()),
        sketch=bytes(counters.get("sketch", b"")),
    )


class NativeEngine:
    """The native node of this process."""

    def __init__(self, native_node: NativeNode) -> None:
        self._native_node = native_node

    async def locate(self, node: NodeId, addresses: Sequence[str]) -> None:
        await self._native_node.order(Order.set_peer(node, addresses))

    async def create_owned(self, child: ChildPlace, permit: Permit) -> None:
        members = [(replica.node, replica.store) for replica in child.others]
        quorum = (members, child.quorum) if members else ()
        order = Order.open(child.topic, child.partition, *child.slots, child.epoch, *quorum)
        # It ends only once other nodes have the child.
        await self._native_node.order(order, holds_slot=False, permit=permit)

    async def create_followed(self, child: ChildPlace, permit: Permit) -> None:
        order = Order.follow(child.topic, child.partition, *child.slots, child.epoch, child.owner)
        await self._native_node.order(order, permit=permit)

    async def hold(self, place: Place, number: ChangeId, permit: Permit) -> tuple[LogEnd, int]:
        # A hold ends only after other nodes have answered.
        outcome = await self._native_node.order(Order.hold(*place, number), holds_slot=False, permit=permit)
        figures = figures_of(outcome)
        return figures.end, int(outcome.get("stopped_us", 0))

    async def table_out(self, source: SourceSlots, since: int, after: int) -> TablePart:
        order = Order.table_out(source.topic, source.source, *source.slots, since, after, PAGE_BYTES_MAX)
        outcome = await self._native_node.order(order)
        return TablePart(outcome["page"], outcome["records"], outcome["last"], outcome["more"])

    async def table_in(
        self,
        child: PartitionId,
        source: SourceSlots,
        number: ChangeId,
        part: TablePart,
        *,
        is_final: bool,
        permit: Permit,
    ) -> None:
        order = Order.table_in(
            source.topic, child, number, source.source, *source.slots, part.records, is_final, part.page
        )
        # It ends only once a quorum has the page.
        outcome = await self._native_node.order(order, holds_slot=False, permit=permit)
        if "full" in outcome:
            raise OrderError(str(outcome["full"]))

    async def gates_out(
        self, place: Place, number: ChangeId, records: int, partitions: Sequence[int] | None = None
    ) -> bytes:
        outcome = await self._native_node.order(Order.gates_out(*place, number, records, partitions))
        return bytes(outcome["gates"])

    async def gates_in(
        self, child: Place, source: PartitionId, number: ChangeId, gates: bytes, permit: Permit
    ) -> None:
        order = Order.gates_in(*child, number, source, gates)
        await self._native_node.order(order, holds_slot=False, permit=permit)

    def figures(self, places: Collection[Place]) -> Mapping[Place, PartitionFigures]:
        return {
            (TopicId(counters["topic"]), PartitionId(counters["partition"])): figures_of(counters)
            for counters in self._native_node.node.partitions_of(list(places))
        }
