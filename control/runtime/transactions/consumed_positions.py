"""Write the positions of decided commits at the gates of this node, once their rows are published (CT4).

A position comes from the pending commit alone, so any owner of the gate can write it. Orders are repeated
until the position is confirmed; a repeat changes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Final

from msgspec import UNSET

from ringfence.control.model.cohorts import CohortId, Incarnation, MemberSession
from ringfence.control.model.ids import Epoch, NodeId, PartitionId, ScopeId, TopicId
from ringfence.control.model.scopes import Consumed, ConsumedRange, Scope
from ringfence.control.model.state import MetadataState
from ringfence.control.model.topics import Replica
from ringfence.control.runtime.data_plane.native_node import NativeNode, OrderError
from ringfence.control.runtime.process.health import Health
from ringfence.control.state_machines.metadata.consumed_ranges import DuePosition, due_positions
from ringfence.native._node import Order
from ringfence.native.cluster_messages import ScopeCommit

# Scope, epoch, partition.
PositionKey = tuple[ScopeId, int, PartitionId]
# A position of a commit, as the engine takes it.
PositionItem = tuple[int, int, int, int, int, int, int, int, int, bytes, bool]
# Refusals before a reason is set, some 6 s with their pauses, as for rows that are not published.
REFUSALS_MIN: Final = 6


class ConsumedPositions:
    """Gives the orders, and counts the refusals of each position; the pending commits bound their number."""

    def __init__(self, native_node: NativeNode, here: Replica, health: Health, node: NodeId) -> None:
        self._native_node, self._here = native_node, here
        self._health, self._node = health, node
        self._refusals: dict[PositionKey, int] = {}

    async def settle(self, state: MetadataState) -> tuple[dict[tuple[ScopeId, int], list[PartitionId]], bool]:
        """Write what is due here; what may be confirmed, by scope and epoch, and whether all of it is."""
        due = list(due_positions(state, self._here))
        self._keep_only({_key(one) for one in due})
        written = await asyncio.gather(*(self._write(state, one) for one in due))
        confirmed: dict[tuple[ScopeId, int], list[PartitionId]] = {}
        for one, is_written in zip(due, written, strict=True):
            if is_written:
                confirmed.setdefault((one.scope, one.epoch), []).append(one.range.partition)
        return confirmed, all(written)

    async def _write(self, state: MetadataState, due: DuePosition) -> bool:
        if due.is_gone:
            return True
        consumed, one = due.consumed, due.range
        order = Order.settle_committed(
            consumed.topic, one.partition, consumed.cohort, consumed.incarnation, one.through
        )
        try:
            await self._native_node.order(order)
        except OrderError as error:
            self._refused(state, due, str(error))
            return False
        return True

    def _refused(self, state: MetadataState, due: DuePosition, why: str) -> None:
        key = _key(due)
        refusals = self._refusals[key] = self._refusals.get(key, 0) + 1
        if refusals < REFUSALS_MIN:
            return
        scope, cohort = state.scopes[due.scope], state.cohorts[due.consumed.cohort]
        self._health.set_reason(
            _reason_key(key),
            f"scope {scope.name!r} ({due.scope}): epoch {due.epoch} is committed, but the position "
            f"{due.range.through} of cohort {cohort.name!r} is not written in partition "
            f"{due.range.partition}, whose gate node {self._node} owns: {why}; it is tried again, no other "
            "member gets the partition",
        )

    def _keep_only(self, keys: set[PositionKey]) -> None:
        for key in [key for key in self._refusals if key not in keys]:
            del self._refusals[key]
            self._health.clear_reason(_reason_key(key))


def _key(due: DuePosition) -> PositionKey:
    return due.scope, due.epoch, due.range.partition


def _reason_key(key: PositionKey) -> str:
    return "unsettled {} {} {}".format(*key)


def position_items(scope: Scope) -> Iterator[PositionItem]:
    """Positions of a scope's commits that are not confirmed."""
    for commit in scope.pending:
        of = commit.consumed
        if of is UNSET:
            continue
        for one in of.ranges:
            gate = (of.topic, one.partition, of.cohort, of.incarnation, of.session)
            yield (*gate, one.hold, one.first, one.through, commit.epoch, of.token, bool(commit.parts))


def consumed_of(request: ScopeCommit) -> Consumed | None:
    """What a request says to have consumed. Owner epochs are not known yet."""
    given = request.consumed
    if given is UNSET:
        return None
    ranges = tuple(ConsumedRange(PartitionId(one[0]), *one[1:], epoch=Epoch(0)) for one in given.ranges)
    return Consumed(
        topic=TopicId(given.topic),
        cohort=CohortId(given.cohort),
        incarnation=Incarnation(given.incarnation),
        session=MemberSession(given.session),
        token=given.token,
        ranges=ranges,
    )
