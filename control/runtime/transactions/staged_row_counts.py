"""Before a COMMIT is decided its rows are counted where they are staged, and what it means there is fixed.

    COMMIT -> each owner: rows under these tokens, durable, all below record `upto` -> the same rows? -> entry

An entry that names other rows than an owner has could never be published there, while other partitions show
their part of it. Records keep their numbers whoever owns them, so the owner that publishes has the same rows
below `upto`, also when its predecessor counted them, and whatever came under the tokens since.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from functools import partial
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from ringfence.control.model.ids import NodeId, ScopeId
from ringfence.control.model.scopes import CommitScope, PendingCommit, StagedPart
from ringfence.control.model.topics import Assignment
from ringfence.control.runtime.data_plane.native_node import NativeNode, OrderError
from ringfence.control.runtime.process.errors import RequestRefused
from ringfence.control.runtime.raft.proposer import RaftProposer
from ringfence.control.runtime.rpc import messages
from ringfence.control.runtime.rpc.client import SETTLE_S, PeerClient
from ringfence.control.state_machines.metadata.scopes import validate
from ringfence.native.wire import Code

CHECK_S: Final = 5.0
"""How long owners that are away are asked: a move, a quick failover. Then the client is told to come back."""
AGAIN_S, AGAIN_S_MAX = 0.05, 0.5
PARTS_A_CALL: Final = 256
"""Of one question: an answer is below 100 KiB."""
ORDERS_MAX: Final = 256
"""Under way at once, of all questions: half of the driver's places stay free."""
ROWS_MAX: Final = (1 << 32) - 1
"""Rows of one publish record."""
TOLD_MAX: Final = 3
"""Partitions that a refusal names."""


class _Count(NamedTuple):
    """What node `node` says; `why`: it could not count."""

    node: NodeId
    rows: int = 0
    upto: int = 0
    epoch: int = 0
    is_published: bool = False
    why: str = ""


class StagedRowCounts:
    """Asks owners, and answers for the partitions that are owned here."""

    def __init__(self, proposer: RaftProposer, driver: NativeNode, peer_client: PeerClient) -> None:
        self._proposer, self._native_node, self._peer_client = proposer, driver, peer_client
        self._places = asyncio.Semaphore(ORDERS_MAX)

    async def checked(self, command: CommitScope) -> CommitScope:
        """The command as it may be proposed: it agrees with what is staged, or is decided already.

        Raises:
            RequestRefused: INVALID_ARGUMENT, it names other rows than are staged; DEADLINE, an owner did not
                tell in time, and nothing is decided. Others as `propose`.
        """
        end, pause_s = time.monotonic() + CHECK_S, AGAIN_S
        upto: dict[StagedPart, int] = {}  # of parts that agreed: whoever owns them since has the same records
        while True:
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
            # An owner that was replaced, and does not know it, would miss what was staged at the new one.
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
                message = f"nothing was committed: not known whether all of it is staged: {why}; ask again"
                raise RequestRefused(Code.DEADLINE, message, retry_after_ms=200)
            await asyncio.sleep(pause_s)
            pause_s = min(AGAIN_S_MAX, pause_s * 2)

    async def lacking(self, scope: ScopeId, pending: PendingCommit) -> str:
        """Which rows of a decided epoch their owners do not have, and so can never publish; "": of none."""
        counts = await self._counts(scope, pending.epoch, pending.tokens, pending.parts)
        # What came under the tokens since it was decided is no part of it.
        short = {
            part: count for part, count in counts.items() if not count.is_published and count.rows < part.rows
        }
        return self._wrong(scope, pending.epoch, short)

    async def why_kept(self, scope: ScopeId, pending: PendingCommit, part: StagedPart) -> str:
        """What speaks against giving a decided part up; "": its owner has too little to publish it, ever."""
        counts = await self._counts(scope, pending.epoch, pending.tokens, (part,))
        count, assignment = counts.get(part), self._assignment(part)
        if count is None or assignment is None:
            return "its topic is deleted, and it goes with it"
        if count.why:
            return f"its owner does not tell what it has ({count.why}): make it serve, or force another owner"
        if count.is_published:
            return "it is published there"
        if count.rows >= part.rows:
            return f"node {count.node} has all of its {part.rows} rows and publishes them"
        if (assignment.owner.node, assignment.epoch) != (count.node, count.epoch):
            return "its owner changes; ask again"
        return ""

    async def here(self, call: messages.CountStaged) -> messages.StagedCounts:
        """The answer to another node."""
        tokens = b"".join(call.tokens)
        counted = (self._count(call, topic, partition, tokens) for topic, partition in call.parts)
        return messages.StagedCounts(counts=tuple(await asyncio.gather(*counted)))

    async def _is_decided(self, command: CommitScope) -> bool:
        """True if no owner need be asked. RequestRefused: what the newest state does not allow."""
        refusal = validate(self._proposer.state, command)
        if refusal is not None:
            await self._proposer.read_barrier()
            refusal = validate(self._proposer.state, command)
        if refusal is not None:
            raise RequestRefused(refusal.code, refusal.message)
        if command.epoch <= self._proposer.state.scopes[command.scope].committed:
            return True
        large = next((part for part in command.parts if part.rows > ROWS_MAX), None)
        if large is not None:
            message = f"{large.rows} rows in partition {large.partition}: at most {ROWS_MAX} in one epoch"
            raise RequestRefused(Code.INVALID_ARGUMENT, message)
        return not command.parts

    async def _counts(
        self, scope: ScopeId, epoch: int, tokens: tuple[bytes, ...], parts: Iterable[StagedPart]
    ) -> dict[StagedPart, _Count]:
        """Of each part, from its owner; a part of a topic that is gone lacks nothing and has no entry."""
        by_node: dict[NodeId, list[StagedPart]] = {}
        for part in parts:
            assignment = self._assignment(part)
            if assignment is not None:
                by_node.setdefault(assignment.owner.node, []).append(part)
        asked = [
            (node, some[first : first + PARTS_A_CALL])
            for node, some in by_node.items()
            for first in range(0, len(some), PARTS_A_CALL)
        ]
        found: dict[StagedPart, _Count] = {}
        answers = await asyncio.gather(*(self._ask(node, scope, epoch, tokens, some) for node, some in asked))
        for (_, some), counts in zip(asked, answers, strict=True):
            found.update(zip(some, counts, strict=True))
        return found

    async def _ask(
        self, node: NodeId, scope: ScopeId, epoch: int, tokens: tuple[bytes, ...], some: list[StagedPart]
    ) -> list[_Count]:
        pairs = tuple((part.topic, part.partition) for part in some)
        call = messages.CountStaged(scope=scope, epoch=epoch, tokens=tokens, parts=pairs)
        try:
            if node == self._peer_client.here:
                async with asyncio.timeout(SETTLE_S):
                    reply: messages.Reply = await self.here(call)
            else:
                reply = await self._peer_client.ask(node, call, SETTLE_S)
        except TimeoutError:
            return [_Count(node, why=f"node {node} (this one) did not tell in {SETTLE_S:g} s")] * len(some)
        except RequestRefused as refusal:
            return [_Count(node, why=refusal.message)] * len(some)
        if not isinstance(reply, messages.StagedCounts) or len(reply.counts) != len(some):
            return [_Count(node, why=f"node {node} answered something else")] * len(some)
        return [_Count(node, *msgspec.structs.astuple(one)) for one in reply.counts]

    async def _count(
        self, call: messages.CountStaged, topic: int, partition: int, tokens: bytes
    ) -> messages.StagedCount:
        give = partial(self._native_node.node.count_staged, topic, partition, call.scope, call.epoch, tokens)
        try:
            async with self._places:
                found = await self._native_node.order(give)
        except OrderError as error:
            return messages.StagedCount(why=f"node {self._peer_client.here}: {error}"[:256])
        return messages.StagedCount(**found)

    def _wrong(self, scope: ScopeId, epoch: int, counts: dict[StagedPart, _Count]) -> str:
        """Parts whose owner, which it still is, has other rows of the epoch; "": none."""
        state, told = self._proposer.state, []
        for part, count in counts.items():
            assignment = self._assignment(part)
            if count.why or count.rows == part.rows or assignment is None:
                continue
            if (assignment.owner.node, assignment.epoch) == (count.node, count.epoch):
                told.append(
                    f"{part.rows} rows are committed in partition {part.partition} of topic "
                    f"{state.topics[part.topic].name!r}, {count.rows} are staged there (node {count.node})"
                )
        if not told:
            return ""
        known = state.scopes.get(scope)
        name = "" if known is None else f" {known.name!r}"
        more = f", and {len(told) - TOLD_MAX} partitions more" if len(told) > TOLD_MAX else ""
        return f"scope{name} ({scope}), epoch {epoch}: {', '.join(told[:TOLD_MAX])}{more}"

    def _assignment(self, part: StagedPart) -> Assignment | None:
        topic = self._proposer.state.topics.get(part.topic)
        return None if topic is None else topic.assignments.get(part.partition)
