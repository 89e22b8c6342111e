"""Stores of modelled nodes for runs of layout changes: records, fences, and what children inherit.

Replication itself is not the subject: copies follow at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ringfence.control.model.ids import Epoch, NodeId, PartitionId
from ringfence.control.model.layout_changes import Transition
from ringfence.control.model.log_end import LogEnd
from ringfence.control.model.reassignment_commands import ConfirmLeft
from ringfence.control.model.state import MetadataState
from ringfence.control.model.topics import Replica
from ringfence.control.state_machines.layout import messages
from ringfence.control.state_machines.layout.messages import Created, Inherited, SealedEnds
from ringfence.control.state_machines.node_orders import (
    ClosePartition,
    DropPartition,
    FencePartition,
    FollowPartition,
    FollowSealed,
    OpenPartition,
    OpenSealed,
)
from ringfence.control.state_machines.reassignment.cleanup import Release


@dataclass
class Part:
    """A partition in one store: records, the epoch of its last one, the fence, and what it has inherited."""

    records: int = 0
    epoch: int = 0
    fence: int = 0
    open_epoch: int = 0  # 0: not the owner
    sealed: LogEnd | None = None
    inherited: dict[PartitionId, int] = field(default_factory=dict)
    quarantined: bool = False


@dataclass
class Node:
    here: Replica
    parts: dict[PartitionId, Part] = field(default_factory=dict)
    applied: int = 0
    alive: bool = True
    staged: set[PartitionId] = field(default_factory=set)

    # What the product asks an engine.
    def has_stages(self, partition: PartitionId) -> bool:
        return partition in self.staged

    def is_open(self, partition: PartitionId, epoch: Epoch) -> bool:
        part = self.parts.get(partition)
        return part is not None and not part.quarantined and part.open_epoch == epoch >= part.fence

    def is_quarantined(self, partition: PartitionId) -> bool:
        return partition in self.parts and self.parts[partition].quarantined


class Stores:
    """The stores of all nodes."""

    def __init__(self, nodes: dict[NodeId, Node]) -> None:
        self.by_id = nodes

    def carry_out(self, node: Node, order: Any) -> ConfirmLeft | None:
        """What a node derives from its own log. A released partition is confirmed."""
        parts = node.parts
        match order:
            case OpenPartition(partition=number, epoch=epoch):
                part = parts.setdefault(number, Part())
                assert part.sealed is None, f"I3: SEALED partition {number} gets an epoch record"
                if part.open_epoch != epoch and part.fence <= epoch:
                    part.open_epoch, part.epoch = epoch, epoch
            case FollowPartition(partition=number, epoch=epoch):
                part = parts.setdefault(number, Part())
                part.open_epoch, part.fence = 0, max(part.fence, epoch)
                self.copy(number)
            case OpenSealed(partition=number, end=end) | FollowSealed(partition=number, end=end):
                part = parts.setdefault(number, Part())
                assert part.records <= end.records, f"I3: partition {number} is longer than its end"
                part.open_epoch, part.sealed = 0, end
                self.copy(number)
            case FencePartition(partition=number, epoch=epoch):
                parts[number].fence = max(parts[number].fence, epoch)
            case ClosePartition(partition=number):
                parts[number].open_epoch = 0
            case Release(partition=number, change=change):
                parts.pop(number, None)
                return ConfirmLeft(partition=number, change=change, store=node.here.store)
            case DropPartition(partition=number):
                parts.pop(number, None)
        return None

    def copy(self, number: PartitionId) -> None:
        """Copies follow at once: replication itself is not the subject."""
        copies = [node.parts[number] for node in self.by_id.values() if number in node.parts]
        best = max(copies, key=lambda part: (part.epoch, part.records))
        for node in self.by_id.values():
            part = node.parts.get(number)
            if node.alive and part is not None and part is not best and not part.open_epoch:
                part.records, part.epoch = best.records, best.epoch
                part.inherited = dict(best.inherited)

    def create(self, node: Node, transition: Transition) -> Created:
        number = transition.change
        for child in transition.children:
            if node.here in child.replicas:
                part = node.parts.setdefault(child.partition, Part(epoch=number, fence=number))
                if child.replicas[0] == node.here:
                    part.open_epoch = number
        done = [
            child
            for child in transition.children
            if child.replicas[0] == node.here and self._on_quorum(child)
        ]
        return Created(children=tuple((child.partition, LogEnd(Epoch(number), 1, 0, 1)) for child in done))

    def _on_quorum(self, child: Any) -> bool:
        there = [
            place
            for place in child.replicas
            if self.by_id[place.node].alive and child.partition in self.by_id[place.node].parts
        ]
        return len(there) > len(child.replicas) // 2

    def inherit(
        self, node: Node, state: MetadataState, transition: Transition, ends: dict[PartitionId, LogEnd] | None
    ) -> Inherited | None:
        topic = state.topics[transition.topic]
        parts, done = topic.layout.by_id(), []
        for child in transition.children:
            if child.replicas[0] != node.here or child.partition not in node.parts:
                continue
            for source in transition.sources:
                slots = parts[source].slots
                if not (slots.lo <= child.slots.hi and child.slots.lo <= slots.hi):
                    continue
                owner = self.by_id[topic.assignments[source].owner.node]
                if not owner.alive or source not in owner.parts:
                    return None
                read = owner.parts[source].records if ends is None else ends[source].records
                node.parts[child.partition].inherited[source] = read
            if not self._on_quorum(child):
                return None
            self._copy_inherited(node, child)
            done.append((child.partition, LogEnd(Epoch(transition.change), 2, 0, 2)))
        return Inherited(children=tuple(done))

    def _copy_inherited(self, node: Node, child: Any) -> None:
        whole = node.parts[child.partition]
        for place in child.replicas:
            other = self.by_id[place.node]
            if other.alive and child.partition in other.parts:
                other.parts[child.partition].inherited = dict(whole.inherited)

    def seal(
        self, node: Node, state: MetadataState, transition: Transition, time_us: int
    ) -> SealedEnds | None:
        ends = []
        for source in sorted(messages.own_sources(state, transition, node.here)):
            part = node.parts.get(source)
            if part is None:
                return None
            part.fence = max(part.fence, transition.change)
            ends.append((source, LogEnd(Epoch(part.epoch), part.records, part.records * 10, 7), time_us))
        return SealedEnds(sources=tuple(ends))
