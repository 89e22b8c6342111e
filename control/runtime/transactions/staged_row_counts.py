"""Count staged rows at their owners before a COMMIT is decided, and fix the records that the commit covers.

    COMMIT -> each owner: rows under these tokens, durable, all below record `upto` -> the same rows? -> entry

An entry with other rows than an owner has could never be published there, while other partitions show their
part of it. Records keep their numbers when the owner changes. So the owner that publishes has the same rows
below `upto`, even if its predecessor counted them and more rows were staged since.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from ringfence.control.model.ids import NodeId, ScopeId
from ringfence.control.model.scopes import CommitScope, PendingCommit, StagedPart
from ringfence.control.model.state import MetadataState
from ringfence.control.model.topics import Assignment
from ringfence.control.runtime.data_plane.native_node import NativeNode, OrderError
from ringfence.control.runtime.process.errors import RequestRefused
from ringfence.control.runtime.raft.proposer import RaftProposer
from ringfence.control.runtime.rpc import messages
from ringfence.control.runtime.rpc.client import EXECUTION_TIMEOUT_S, PeerClient
from ringfence.control.runtime.transactions.seen_claims import SeenClaims
from ringfence.control.state_machines.metadata.scopes import validate
from ringfence.native._node import Order
from ringfence.native.wire import Code

# Time in which owners are asked again, in seconds: a move or a quick failover. Then the client must repeat.
CHECK_S: Final = 5.0
RETRY_S, RETRY_S_MAX = 0.05, 0.5
# Parts per request: an answer is below 100 KiB.
PARTS_PER_REQUEST: Final = 256
# Concurrent orders of all requests; half of the native node's order slots stay free.
ORDERS_MAX: Final = 256
# Rows of one publish record.
ROWS_MAX: Final = (1 << 32) - 1
# Partitions that a refusal names.
SHOWN_MAX: Final = 3


class _Count(NamedTuple):
    """The count of node `node`; `why` is not empty if the node could not count."""

    node: NodeId
    rows: int = 0
    upto: int = 0
    epoch: int = 0
    is_published: bool = False
    why: str = ""


class StagedRowCounts:
    """Asks owners for counts, and answers for the partitions that this node owns."""

    def __init__(self, proposer: RaftProposer, native_node: NativeNode, peer_client: PeerClient) -> None:
        self._proposer, self._native_node, self._peer_client = proposer, native_node, peer_client
        self.claims = SeenClaims(proposer, native_node, peer_client)
        self._order_slots = asyncio.Semaphore(ORDERS_MAX)

    async def verify(self, command: CommitScope) -> CommitScope:
        """Return the command with `upto` set: its rows are exactly the staged ones, or it is decided already.

        Raises:
            RequestRefused: INVALID_ARGUMENT, the command names other rows than are staged; DEADLINE, an owner
                did not answer in time, and nothing is decided. Other codes as `propose`.
        """
        end, pause_s = time.monotonic() + CHECK_S, RETRY_S
        upto: dict[StagedPart, int] = {}  # of parts that agree: a later owner has the same records
        while True:
            await self._until_not_held(command, end)
            if await self._is_decided(command):
                return command
            open_parts = [part for part in command.parts if part not in upto]
            counts = await self._counts(command.scope, command.epoch, command.tokens, open_parts)
            for part, count in counts.items():
                if not count.why and count.rows == part.rows:
                    upto[part] = count.upto
            if len(upto) == len(command.parts):
                parts = tuple(replace(part, upto=upto[part]) for part in command.parts)
                return replace(command, parts=parts)
            # A replaced owner that does not know its successor would lack rows staged at the successor.
            await self._proposer.read_barrier()
            if await self._is_decided(command):
                return command
            if wrong := self._wrong(command.scope, command.epoch, counts):
                raise RequestRefused(
                    Code.INVALID_ARGUMENT,
                    f"{wrong}; nothing was committed: commit exactly what was staged, or stage it again",
                    scope=command.scope,
                    epoch=command.epoch,
                )
            if time.monotonic() + pause_s > end:
                why = next((count.why for count in counts.values() if count.why), "its owner changes")
                message = (
                    f"nothing was committed: it is unknown whether all rows are staged: {why}; ask again"
                )
                raise RequestRefused(Code.DEADLINE, message, retry_after_ms=200)
            await asyncio.sleep(pause_s)
            pause_s = min(RETRY_S_MAX, pause_s * 2)

    async def missing_rows(self, scope: ScopeId, pending: PendingCommit) -> str:
        """The rows of a committed epoch that their owners lack and so cannot publish; "": none."""
        counts = await self._counts(scope, pending.epoch, pending.tokens, pending.parts)
        # Rows staged under the tokens after the decision do not belong to the epoch.
        short = {
            part: count for part, count in counts.items() if not count.is_published and count.rows < part.rows
        }
        return self._wrong(scope, pending.epoch, short)

    async def refusal_to_give_up(self, scope: ScopeId, pending: PendingCommit, part: StagedPart) -> str:
        """The reason not to give up a committed part; "": its owner lacks rows and can never publish it."""
        counts = await self._counts(scope, pending.epoch, pending.tokens, (part,))
        count, assignment = counts.get(part), self._assignment(part)
        if count is None or assignment is None:
            return "its topic is deleted, and the part with it"
        if count.why:
            return f"its owner cannot count its rows ({count.why}): make it serve, or force another owner"
        if count.is_published:
            return "it is published there"
        if count.rows >= part.rows:
            return f"node {count.node} has all of its {part.rows} rows and publishes them"
        if (assignment.owner.node, assignment.epoch) != (count.node, count.epoch):
            return "its owner changes; ask again"
        return ""

    async def here(self, call: messages.CountStaged) -> messages.StagedCounts:
        """Answer the request of another node."""
        tokens = b"".join(call.tokens)
        counted = (self._count(call, topic, partition, tokens) for topic, partition in call.parts)
        return messages.StagedCounts(counts=tuple(await asyncio.gather(*counted)))

    async def _until_not_held(self, command: CommitScope, end: float) -> None:
        """Wait while a layout change holds a partition of the command: it opens again, or is sealed, soon.

        Raises:
            RequestRefused: DEADLINE, it is held at the time `end`, and nothing is decided.
        """
        while True:
            refusal = validate(self._proposer.state, command)
            if refusal is None or refusal.code is not Code.HELD:
                return
            left_s = end - time.monotonic()
            if left_s <= 0:
                message = f"nothing was committed: {refusal.message}"
                raise RequestRefused(Code.DEADLINE, message, retry_after_ms=200)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left_s):
                    await self._proposer.until_applied(self._proposer.applied.index + 1)

    async def _is_decided(self, command: CommitScope) -> bool:
        """Whether no owner need be asked. RequestRefused if the newest state does not allow the command."""
        refusal = validate(self._proposer.state, command)
        if refusal is not None:
            await self._proposer.read_barrier()
            refusal = validate(self._proposer.state, command)
        if refusal is not None:
            raise with_sealed_parts(
                RequestRefused(refusal.code, refusal.message), self._proposer.state, command
            )
        if command.epoch <= self._proposer.state.scopes[command.scope].committed:
            return True
        too_large = next((part for part in command.parts if part.rows > ROWS_MAX), None)
        if too_large is not None:
            message = (
                f"{too_large.rows} rows in partition {too_large.partition} exceed the limit of {ROWS_MAX} "
                "per epoch; commit fewer rows"
            )
            raise RequestRefused(Code.INVALID_ARGUMENT, message)
        return not command.parts

    async def _counts(
        self, scope: ScopeId, epoch: int, tokens: tuple[bytes, ...], parts: Iterable[StagedPart]
    ) -> dict[StagedPart, _Count]:
        """The count of each part, from its owner; parts of deleted topics are left out."""
        by_node: dict[NodeId, list[StagedPart]] = {}
        for part in parts:
            assignment = self._assignment(part)
            if assignment is not None:
                by_node.setdefault(assignment.owner.node, []).append(part)
        requests = [
            (node, group[first : first + PARTS_PER_REQUEST])
            for node, group in by_node.items()
            for first in range(0, len(group), PARTS_PER_REQUEST)
        ]
        counts: dict[StagedPart, _Count] = {}
        answers = await asyncio.gather(
            *(self._ask(node, scope, epoch, tokens, group) for node, group in requests)
        )
        for (_, group), answer in zip(requests, answers, strict=True):
            counts.update(zip(group, answer, strict=True))
        return counts

    async def _ask(
        self, node: NodeId, scope: ScopeId, epoch: int, tokens: tuple[bytes, ...], group: list[StagedPart]
    ) -> list[_Count]:
        pairs = tuple((part.topic, part.partition) for part in group)
        call = messages.CountStaged(scope=scope, epoch=epoch, tokens=tokens, parts=pairs)
        try:
            if node == self._peer_client.here:
                async with asyncio.timeout(EXECUTION_TIMEOUT_S):
                    reply: messages.Reply = await self.here(call)
            else:
                reply = await self._peer_client.ask(node, call, EXECUTION_TIMEOUT_S)
        except TimeoutError:
            return [
                _Count(node, why=f"node {node} (this one) did not answer in {EXECUTION_TIMEOUT_S:g} s")
            ] * len(group)
        except RequestRefused as refusal:
            return [_Count(node, why=refusal.message)] * len(group)
        if not isinstance(reply, messages.StagedCounts) or len(reply.counts) != len(group):
            return [_Count(node, why=f"node {node} answered with another message")] * len(group)
        return [_Count(node, *msgspec.structs.astuple(one)) for one in reply.counts]

    async def _count(
        self, call: messages.CountStaged, topic: int, partition: int, tokens: bytes
    ) -> messages.StagedCount:
        order = Order.count_staged(topic, partition, call.scope, call.epoch, tokens)
        try:
            async with self._order_slots:
                count = await self._native_node.order(order)
        except OrderError as error:
            return messages.StagedCount(why=f"node {self._peer_client.here}: {error}"[:256])
        return messages.StagedCount(**count)

    def _wrong(self, scope: ScopeId, epoch: int, counts: dict[StagedPart, _Count]) -> str:
        """Name the parts whose current owner has other rows of the epoch; "": none."""
        state, mismatches = self._proposer.state, []
        for part, count in counts.items():
            assignment = self._assignment(part)
            if count.why or count.rows == part.rows or assignment is None:
                continue
            if (assignment.owner.node, assignment.epoch) == (count.node, count.epoch):
                mismatches.append(
                    f"{part.rows} rows are committed in partition {part.partition} of topic "
                    f"{state.topics[part.topic].name!r}, {count.rows} are staged there (node {count.node})"
                )
        if not mismatches:
            return ""
        current = state.scopes.get(scope)
        name = "" if current is None else f" {current.name!r}"
        more = f", and {len(mismatches) - SHOWN_MAX} partitions more" if len(mismatches) > SHOWN_MAX else ""
        return f"scope{name} ({scope}), epoch {epoch}: {', '.join(mismatches[:SHOWN_MAX])}{more}"

    def _assignment(self, part: StagedPart) -> Assignment | None:
        topic = self._proposer.state.topics.get(part.topic)
        return None if topic is None else topic.assignments.get(part.partition)


def with_sealed_parts(refusal: RequestRefused, state: MetadataState, command: CommitScope) -> RequestRefused:
    """The refusal; a `moved` one with the sealed partitions, whose rows the writer stages again."""
    if refusal.code is Code.MOVED:
        topics = ((part, state.topics.get(part.topic)) for part in command.parts)
        refusal.details["partitions"] = [
            part.partition for part, topic in topics if topic is not None and topic.seal(part.partition)
        ]
    return refusal
