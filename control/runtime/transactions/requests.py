"""BEGIN, COMMIT, EXPIRE; and on every node the publishing of what was committed, in the order of epochs.

    COMMIT -> each owner: all of it staged -> entry -> each owner: publish order -> durable
           -> ConfirmPublished entry -> COMMIT is answered

Who commits may die, and so may the node that it asked: the pending commit stands in the log, and its owners
publish it all the same. A publish is repeated until it is confirmed, and repeating it changes nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Final, NamedTuple

import structlog
from msgspec import UNSET

from ringfence.control.model.ids import Index, PartitionId, ScopeId, TopicId
from ringfence.control.model.results import ScopeBegun, ScopeDecided
from ringfence.control.model.scopes import (
    BeginScope,
    CommitScope,
    ConfirmPublished,
    ExpireScope,
    ForgetScope,
    PendingCommit,
    Scope,
    StagedPart,
)
from ringfence.control.model.state import EMPTY, MetadataState
from ringfence.control.model.topics import Replica
from ringfence.control.runtime.data_plane.native_node import NativeNode, OrderError
from ringfence.control.runtime.process.errors import RequestRefused
from ringfence.control.runtime.raft.proposer import RaftProposer
from ringfence.control.runtime.rpc.dispatch import ASKED_WITHIN
from ringfence.control.runtime.transactions.begin_queue import BeginQueue
from ringfence.control.runtime.transactions.commit_queue import CommitQueue
from ringfence.control.runtime.transactions.publish_watch import PublishWatch
from ringfence.control.runtime.transactions.staged_row_counts import StagedRowCounts
from ringfence.control.runtime.transactions.unpublished import Place, UnpublishedEpochs
from ringfence.control.state_machines.metadata import scope_owners
from ringfence.control.state_machines.metadata.scopes import check_begin, is_given_up, is_own
from ringfence.native import cluster_messages as messages
from ringfence.native.messages import Message
from ringfence.native.wire import Code

_LOG = structlog.get_logger("ringfence.scopes")
AGAIN_S: Final = 0.1
"""Until a publish that failed is tried again: its partition is being opened, as a rule."""
AGAIN_S_MAX: Final = 5.0
PARTS_AT_ONCE: Final = 256
"""Publish orders under way; they share commit groups, and half of the driver's places stay free."""
IN_PARTITION_MAX: Final = 32
"""Of one partition, each of another scope: what an owner that dies has not sent to its replicas is taken
back, and the engine can take 64 of these back (`UNDO_MAX`, core/node/src/stage_table.rs)."""
NAMES_TOLD_MAX: Final = 20
"""Of a line of the log: enough to find whose they are; an eighth of `scopes_max` may go at once."""

Rule = tuple[int, int, int, int, list[int]]
Line = tuple[ScopeId, TopicId, PartitionId]
"""In one of these epochs are published one behind the other."""


class Due(NamedTuple):
    """One part of a pending commit that this node owns, or whose topic is gone."""

    scope: ScopeId
    commit: PendingCommit
    part: StagedPart
    gone: bool
    after: int = 0
    """The last epoch of the line before this one that waits, too; 0: none does."""

    @property
    def place(self) -> Place:
        return self.scope, self.commit.epoch, self.part.topic, self.part.partition

    @property
    def line(self) -> Line:
        return self.scope, self.part.topic, self.part.partition


class TransactionRequests:
    """Handlers of requests, and one task that installs rules and publishes."""

    def __init__(
        self,
        proposer: RaftProposer,
        driver: NativeNode,
        here: Replica,
        stages: StagedRowCounts,
        unpublished: UnpublishedEpochs,
        on_failed: Callable[[Exception], None],
    ) -> None:
        self._proposer, self._native_node, self._here, self._on_failed = proposer, driver, here, on_failed
        self._stages, self._unpublished = stages, unpublished
        self._state = EMPTY
        self._installed = EMPTY
        self._wake = asyncio.Event()
        self._changed = asyncio.Condition()
        self._order, self._watches = CommitQueue(), PublishWatch(self._pending, self._changed, stages)
        self._begins = BeginQueue(lambda command: check_begin(proposer.state, command) is not None)
        self._failures = 0
        self._task: asyncio.Task[None] | None = None

    # ---- requests
    # -------------------------------------------------------------------------------------------

    async def begin(self, request: messages.ScopeBegin) -> messages.ScopeBegun:
        """A driver of a scope; its stages are taken here when this returns.

        Who is refused because it does not know the newest driver is told which one that is.
        """
        fault = scope_owners.fault(self._proposer.state, request.scope, ASKED_WITHIN.get())
        if fault is not None:
            raise RequestRefused(Code.UNAUTHORIZED, fault)
        knows_times = self._proposer.state.level >= scope_owners.LEVEL_OF_OWNERS
        # What is compared needs no name that tells its tries from others, and leaves none among the fenced.
        is_named = request.after is None or not request.drawn
        command = BeginScope(
            name=request.scope,
            instance=request.instance if is_named else b"",
            one_off=request.one_off,
            after=None if request.after is None else Index(request.after),
            prefix=ASKED_WITHIN.get(),
            idle_s=request.idle_s if request.idle_s and knows_times else UNSET,
        )
        try:
            async with self._begins.turn(command):
                applied = await self._proposer.propose(command)
        except RequestRefused as refusal:
            if refusal.code == Code.CONFLICT:
                refusal.details["driver"] = self._driver_of(request.scope)
            raise
        begun = applied.result
        assert isinstance(begun, ScopeBegun), begun
        async with self._changed:
            await self._changed.wait_for(lambda: self._knows(begun))
        return messages.ScopeBegun(
            scope_id=begun.scope, driver=begun.driver, committed=begun.committed, decided=begun.decided
        )

    async def commit(self, request: messages.ScopeCommit) -> Message:
        """Answered when every row of the epoch may be read; refused if it is not what is staged."""
        scope, epoch = ScopeId(request.scope_id), request.epoch
        await self._check_prefix(scope)
        command = CommitScope(
            scope=scope,
            driver=Index(request.driver),
            epoch=epoch,
            tokens=tuple(request.tokens),
            parts=tuple(StagedPart(TopicId(t), PartitionId(p), rows) for t, p, rows in request.parts),
            keep=True,
        )
        decided = await self._decide(command)
        await self._watches.published(scope, epoch)
        _LOG.debug("committed", scope=scope, epoch=epoch, already=decided.already)
        if not decided.already:
            return messages.ScopeCommitted()
        known = self._proposer.state.scopes.get(scope)
        if known is None:
            return messages.AlreadyCommitted()
        return messages.AlreadyCommitted(own=is_own(known, command), given_up=is_given_up(known, epoch))

    async def _decide(self, command: CommitScope) -> ScopeDecided:
        known = self._proposer.state.scopes.get(command.scope)
        if known is not None and command.epoch <= known.committed:
            applied = await self._proposer.propose(command)  # a repeat: nothing waits for its turn
        else:
            async with self._order.turn(command):
                applied = await self._proposer.propose(await self._stages.checked(command))
        decided = applied.result
        assert isinstance(decided, ScopeDecided), decided
        return decided

    async def expire(self, request: messages.ScopeExpire) -> Message:
        """What is staged in the epoch, and before it, is given up, unless it is committed."""
        await self._check_prefix(ScopeId(request.scope_id))
        applied = await self._proposer.propose(
            ExpireScope(scope=ScopeId(request.scope_id), epoch=request.epoch, driver=Index(request.driver))
        )
        decided = applied.result
        assert isinstance(decided, ScopeDecided), decided
        return messages.AlreadyCommitted() if decided.already else messages.ScopeCommitted()

    async def _check_prefix(self, scope: ScopeId) -> None:
        """RequestRefused: the token is for some topics only, and the scope is not one of theirs."""
        prefix = ASKED_WITHIN.get()
        if not prefix:
            return
        if scope not in self._proposer.state.scopes:
            await self._proposer.read_barrier()  # begun at another node just now, perhaps by another tenant
        state = self._proposer.state
        known = state.scopes.get(scope)
        fault = None if known is None else scope_owners.fault(state, known.name, prefix)
        if fault is not None:
            raise RequestRefused(Code.UNAUTHORIZED, fault)

    async def forgetting(self, name: str, prefix: str) -> ForgetScope | None:
        """The entry that forgets a scope, for who may use it; None if no scope has this name.

        RequestRefused: it is of topics or tokens that the prefix does not cover.
        """
        await self._proposer.read_barrier()
        state = self._proposer.state
        fault = scope_owners.fault(state, name, prefix)
        if fault is not None:
            raise RequestRefused(Code.UNAUTHORIZED, fault)
        number = state.scope_names.get(name)
        return None if number is None else ForgetScope(scope=number, driver=state.scopes[number].driver)

    def _driver_of(self, name: str) -> Index:
        state = self._proposer.state
        scope = state.scope_names.get(name)
        return Index(0) if scope is None else state.scopes[scope].driver

    def _knows(self, begun: ScopeBegun) -> bool:
        known = self._installed.scopes.get(begun.scope)
        return known is not None and known.driver >= begun.driver

    def _pending(self, scope: ScopeId, epoch: int) -> PendingCommit | None:
        known = self._state.scopes.get(scope)
        waiting = () if known is None else known.pending
        return next((commit for commit in waiting if commit.epoch == epoch), None)

    # ---- what the log says --------------------------------------------------------------------------

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run(), name="scopes")
        self._task.add_done_callback(self._ended)

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    def follow(self, state: MetadataState) -> None:
        """The state after an entry. Called in the order of indexes."""
        before, self._state = self._state, state
        tell_forgotten(before, state)
        if before.scopes is not state.scopes or (before.topics is not state.topics and self._has_pending()):
            self._wake.set()

    def _has_pending(self) -> bool:
        return any(scope.pending for scope in self._state.scopes.values())

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            assert isinstance(error, Exception), error
            self._on_failed(error)

    async def _run(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                delay = min(AGAIN_S_MAX, AGAIN_S * 2 ** min(self._failures, 8)) if self._failures else None
                async with asyncio.timeout(delay):
                    await self._wake.wait()
            self._wake.clear()
            state = self._state
            try:
                await self._install(state)
            except OrderError as error:  # the engine is going down, or gone: who watches it says so
                _LOG.warning("rules of scopes not installed", why=str(error))
                self._failures += 1
                continue
            async with self._changed:
                self._changed.notify_all()
            self._failures = 0 if await self._publish(state) else self._failures + 1

    async def _install(self, state: MetadataState) -> None:
        """Tell the engine of scopes that changed; of all of them when some were forgotten."""
        if state.scopes is self._installed.scopes:
            return
        first = self._installed is EMPTY
        # What goes may have a lower id than one that went before: `scopes_gone` is the same then.
        whole = first or not self._installed.scopes.keys() <= state.scopes.keys()
        known = {} if whole else self._installed.scopes
        rules = [rule_of(scope) for number, scope in state.scopes.items() if known.get(number) is not scope]
        gone = state.scopes_gone if whole else None
        await self._native_node.order(partial(self._native_node.node.install_scopes, rules, gone))
        self._installed = state

    # ---- publishing
    # -----------------------------------------------------------------------------------------

    async def _publish(self, state: MetadataState) -> bool:
        """Publish what is due here, the oldest epochs first; False if something must be tried again."""
        due = list(due_of(state, self._here))
        self._unpublished.keep(one.place for one in due)
        done: dict[tuple[ScopeId, int], list[tuple[TopicId, PartitionId]]] = {}
        stuck: set[Line] = set()
        while due:
            chosen, due = round_of(due, stuck)
            if not chosen:
                break
            results = await asyncio.gather(*(self._publish_part(one) for one in chosen))
            for one, published in zip(chosen, results, strict=True):
                if published:
                    found = done.setdefault((one.scope, one.commit.epoch), [])
                    found.append((one.part.topic, one.part.partition))
                else:
                    stuck.add(one.line)
        confirmed = await asyncio.gather(*(self._confirm(*key, parts) for key, parts in done.items()))
        return not stuck and all(confirmed)

    async def _publish_part(self, due: Due) -> bool:
        if due.gone:
            return True
        part, tokens = due.part, b"".join(due.commit.tokens)
        give = partial(
            self._native_node.node.publish,
            part.topic,
            part.partition,
            due.scope,
            due.commit.epoch,
            tokens,
            part.rows,
            part.upto,
            due.after,
        )
        try:
            await self._native_node.order(give)
        except OrderError as error:
            scope, topic = self._state.scopes.get(due.scope), self._state.topics.get(part.topic)
            names = ("" if scope is None else scope.name, "" if topic is None else topic.name)
            self._unpublished.refused(due.place, names, str(error))
            return False
        return True

    async def _confirm(self, scope: ScopeId, epoch: int, parts: list[tuple[TopicId, PartitionId]]) -> bool:
        try:
            await self._proposer.propose(
                ConfirmPublished(scope=scope, epoch=epoch, parts=tuple(sorted(parts)))
            )
        except RequestRefused as refusal:
            return refusal.code == Code.INVALID_ARGUMENT  # the scope is gone: nothing is left to confirm
        return True


def tell_forgotten(before: MetadataState, after: MetadataState) -> None:
    """Of scopes that somebody named: begun anew, they know nothing of what they committed."""
    if after.scope_names is before.scope_names:
        return
    names = sorted(
        scope.name
        for number, scope in before.scopes.items()
        if number not in after.scopes and not scope.one_off
    )
    if not names:
        return
    if after.level >= scope_owners.LEVEL_OF_OWNERS:
        tell, why = _LOG.info, "given back, unused for longer than `idle_s`, or of a topic that was deleted"
    else:
        tell, why = _LOG.warning, "more scopes than `scopes_max`"
    why += "; an epoch of them that is written again is stored again"
    tell("named scopes forgotten", scopes=len(names), names=names[:NAMES_TOLD_MAX], why=why)


def rule_of(scope: Scope) -> Rule:
    """What the engine must know of a scope."""
    pending = [commit.epoch for commit in scope.pending]
    return scope.scope, scope.driver, scope.committed, scope.expired, pending


def round_of(due: Iterable[Due], stuck: set[Line]) -> tuple[list[Due], list[Due]]:
    """What is published next, at once, and what waits for it: one epoch of a line, the first of those due."""
    chosen: list[Due] = []
    rest: list[Due] = []
    seen, in_partition = set(stuck), Counter[tuple[TopicId, PartitionId]]()
    for one in due:
        place = one.part.topic, one.part.partition
        fits = len(chosen) < PARTS_AT_ONCE and in_partition[place] < IN_PARTITION_MAX
        if one.line in seen or not fits:
            rest.append(one)
        else:
            chosen.append(one)
            in_partition[place] += 1
        seen.add(one.line)
    return chosen, rest


def due_of(state: MetadataState, here: Replica) -> Iterator[Due]:
    """Pending parts whose partition this node owns, or that no topic has any more; epochs ascend in each."""
    for number, scope in sorted(state.scopes.items()):
        before: dict[tuple[TopicId, PartitionId], int] = {}
        for commit in scope.pending:
            for part in commit.parts:
                place = part.topic, part.partition
                topic = state.topics.get(part.topic)
                assignment = None if topic is None else topic.assignments.get(part.partition)
                if assignment is None:
                    yield Due(number, commit, part, gone=True)
                elif assignment.owner == here:
                    yield Due(number, commit, part, gone=False, after=before.get(place, 0))
                before[place] = commit.epoch
