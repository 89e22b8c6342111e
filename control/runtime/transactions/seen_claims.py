"""Ask the owners of gates whether they are locked for a COMMIT, and under which owner epoch (CT5, CT6).

    COMMIT -> each gate owner: locked for this very commit? -> its owner epoch -> entry

The entry compares these epochs with those of then. So a lock that was lost with its owner decides nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from typing import Final, NamedTuple

from msgspec import UNSET
from msgspec.structs import replace

from ringfence.control.model.ids import Epoch, NodeId, PartitionId
from ringfence.control.model.scopes import CommitScope, Consumed, ConsumedRange
from ringfence.control.model.state import MetadataState
from ringfence.control.model.text import listed
from ringfence.control.model.topics import Assignment
from ringfence.control.runtime.data_plane.native_node import NativeNode, OrderError
from ringfence.control.runtime.process.errors import RequestRefused
from ringfence.control.runtime.raft.proposer import RaftProposer
from ringfence.control.runtime.rpc.client import EXECUTION_TIMEOUT_S, PeerClient
from ringfence.control.runtime.rpc.cohort_messages import CLAIMS_MAX, ClaimSeen, ClaimsSeen, SeeClaims
from ringfence.control.runtime.rpc.messages import Reply
from ringfence.control.state_machines.metadata.cohort_lineage import heir
from ringfence.native._node import Order
from ringfence.native.wire import Code

# Time in which owners are asked again, as for staged rows, in seconds. Then the client must repeat.
CHECK_S: Final = 5.0
RETRY_S, RETRY_S_MAX = 0.05, 0.5
# Concurrent orders of all requests; half of the native node's order slots stay free.
ORDERS_MAX: Final = 256
# Partitions that a refusal names.
SHOWN_MAX: Final = 8
RETRY_MS: Final = 50


class _Asked(NamedTuple):
    """One gate, and the assignment of the log that has it."""

    range: ConsumedRange
    assignment: Assignment


class SeenClaims:
    """Asks owners of gates, and answers for the gates that this node owns."""

    def __init__(self, proposer: RaftProposer, native_node: NativeNode, peer_client: PeerClient) -> None:
        self._proposer, self._native_node, self._peer_client = proposer, native_node, peer_client
        self._order_slots = asyncio.Semaphore(ORDERS_MAX)

    async def verify(self, command: CommitScope) -> CommitScope:
        """Return the command with the epochs of the owners that have its gates locked.

        Raises:
            RequestRefused: STALE_CLAIM, the present owner of a gate has no such claim; DEADLINE, an owner did
                not answer in time. Nothing is decided.
        """
        if command.consumed is UNSET:
            return command
        end, pause_s = time.monotonic() + CHECK_S, RETRY_S
        seen: dict[PartitionId, Epoch] = {}
        while True:
            if self._is_decided(command):
                return with_epochs(command, command.consumed, seen)
            asked = [
                one
                for one in gates_of(self._proposer.state, command.consumed)
                if seen.get(one.range.partition) != one.assignment.epoch
            ]
            why = await self._look(command, command.consumed, asked, seen)
            if not why:
                return with_epochs(command, command.consumed, seen)
            # A replaced owner that does not know its successor has no claim of it.
            await self._proposer.read_barrier()
            if not self._is_decided(command) and time.monotonic() + pause_s > end:
                message = (
                    f"nothing was committed: it is unknown whether all gates are claimed: {why}; ask again"
                )
                raise RequestRefused(Code.DEADLINE, message, retry_after_ms=200)
            await asyncio.sleep(pause_s)
            pause_s = min(RETRY_S_MAX, pause_s * 2)

    def _is_decided(self, command: CommitScope) -> bool:
        """Whether the epoch is committed, or its scope is gone: then no owner need be asked."""
        scope = self._proposer.state.scopes.get(command.scope)
        return scope is None or command.epoch <= scope.committed

    async def _look(
        self, command: CommitScope, consumed: Consumed, asked: list[_Asked], seen: dict[PartitionId, Epoch]
    ) -> str:
        """Ask for these gates; the reason why one is not known; "": all are locked."""
        why, missing = "", []
        by_node: dict[NodeId, list[_Asked]] = {}
        for one in asked:
            by_node.setdefault(one.assignment.owner.node, []).append(one)
        groups = [
            (node, group[first : first + CLAIMS_MAX])
            for node, group in by_node.items()
            for first in range(0, len(group), CLAIMS_MAX)
        ]
        answers = await asyncio.gather(
            *(self._ask(node, command, consumed, [one.range for one in group]) for node, group in groups)
        )
        for (node, group), answer in zip(groups, answers, strict=True):
            for one, found in zip(group, answer, strict=True):
                if found.is_there and found.epoch == one.assignment.epoch:
                    seen[one.range.partition] = Epoch(found.epoch)
                elif not found.why and found.epoch == one.assignment.epoch:
                    missing.append(one.range.partition)
                else:
                    why = found.why or f"the owner of partition {one.range.partition} (node {node}) changes"
        if missing:
            message = (
                f"the gates of partitions {listed(missing, SHOWN_MAX)} are not claimed for this commit; "
                "nothing was committed: claim again, then commit"
            )
            raise RequestRefused(Code.STALE_CLAIM, message, retry_after_ms=RETRY_MS)
        return why

    async def _ask(
        self, node: NodeId, command: CommitScope, consumed: Consumed, ranges: list[ConsumedRange]
    ) -> Iterable[ClaimSeen]:
        call = SeeClaims(
            scope=command.scope,
            driver=command.driver,
            epoch=command.epoch,
            topic=consumed.topic,
            cohort=consumed.cohort,
            incarnation=consumed.incarnation,
            session=consumed.session,
            token=consumed.token,
            ranges=tuple((one.partition, one.hold, one.first, one.through) for one in ranges),
        )
        try:
            if node == self._peer_client.here:
                async with asyncio.timeout(EXECUTION_TIMEOUT_S):
                    reply: Reply = await self.here(call)
            else:
                reply = await self._peer_client.ask(node, call, EXECUTION_TIMEOUT_S)
        except TimeoutError:
            return [
                ClaimSeen(why=f"node {node} (this one) did not answer in {EXECUTION_TIMEOUT_S:g} s")
            ] * len(ranges)
        except RequestRefused as refusal:
            return [ClaimSeen(why=refusal.message)] * len(ranges)
        if not isinstance(reply, ClaimsSeen) or len(reply.seen) != len(ranges):
            return [ClaimSeen(why=f"node {node} answered with another message")] * len(ranges)
        return reply.seen

    async def here(self, call: SeeClaims) -> ClaimsSeen:
        """Answer the question of another node."""
        return ClaimsSeen(seen=tuple(await asyncio.gather(*(self._see(call, *one) for one in call.ranges))))

    async def _see(self, call: SeeClaims, partition: int, hold: int, first: int, through: int) -> ClaimSeen:
        gate = (call.topic, partition, call.cohort, call.incarnation, call.session)
        position = (*gate, hold, first, through, call.epoch, call.token, False)
        try:
            async with self._order_slots:
                seen = await self._native_node.order(Order.see_claim(call.scope, call.driver, position))
        except OrderError as error:
            return ClaimSeen(why=f"node {self._peer_client.here}: {error}"[:256])
        return ClaimSeen(**seen)


def gates_of(state: MetadataState, consumed: Consumed) -> list[_Asked]:
    """The gates of a commit that exist in this state, with their owners."""
    topic = state.topics.get(consumed.topic)
    if topic is None:
        return []
    parts = topic.layout.by_id()
    there = (one for one in consumed.ranges if one.partition in parts)
    return [_Asked(one, topic.assignments[heir(parts, one.partition)]) for one in there]


def with_epochs(command: CommitScope, consumed: Consumed, seen: dict[PartitionId, Epoch]) -> CommitScope:
    """The command with these epochs. Gates that do not exist get any: the entry is refused for them."""
    ranges = tuple(one._replace(epoch=seen.get(one.partition, Epoch(1))) for one in consumed.ranges)
    return replace(command, consumed=replace(consumed, ranges=ranges))
