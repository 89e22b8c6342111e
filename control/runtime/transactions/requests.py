"""Serve BEGIN, COMMIT and EXPIRE; publish committed epochs of this node's partitions in epoch order.

    COMMIT -> each owner: all of it staged -> entry -> each owner: publish order -> durable
           -> ConfirmPublished entry -> COMMIT is answered

The client may fail after its COMMIT, and so may the node that it asked. The pending commit is in the log, and
the owners still publish it. A publish is repeated until it is confirmed; a repeat changes nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

import structlog
from msgspec import UNSET
from msgspec.structs import replace

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
from ringfence.control.runtime.process.tasks import failure_of
from ringfence.control.runtime.raft.proposer import RaftProposer
from ringfence.control.runtime.raft.proposer_interface import Applied
from ringfence.control.runtime.rpc.dispatch import CALLER_PREFIX
from ringfence.control.runtime.transactions.begin_queue import BeginQueue
from ringfence.control.runtime.transactions.commit_queue import CommitQueue
from ringfence.control.runtime.transactions.consumed_positions import (
    ConsumedPositions,
    PositionItem,
    consumed_of,
    position_items,
)
from ringfence.control.runtime.transactions.forced_ends import ForcedEnds
from ringfence.control.runtime.transactions.publish_watch import PublishWatch
from ringfence.control.runtime.transactions.staged_row_counts import StagedRowCounts, with_sealed_parts
from ringfence.control.runtime.transactions.unpublished import PartKey, UnpublishedEpochs
from ringfence.control.state_machines.metadata import scope_owners
from ringfence.control.state_machines.metadata.consumed_ranges import scope_fault
from ringfence.control.state_machines.metadata.scopes import check_begin, is_discarded, is_own
from ringfence.native import cluster_messages as messages
from ringfence.native._node import Order
from ringfence.native.messages import Message
from ringfence.native.wire import Code

_LOG = structlog.get_logger("ringfence.scopes")
# Pause before failed publishes are repeated, in seconds, doubled up to the maximum.
RETRY_S: Final = 0.1
RETRY_S_MAX: Final = 5.0
# Concurrent publish orders; they share commit groups, and leave half of the node's order slots free.
PUBLISHES_MAX: Final = 256
# Concurrent publish orders per partition, each of another scope. After an owner fails, publishes that did
# not reach the replicas are undone, and the engine can undo 64 (`UNDO_MAX`,
# core/node/src/transactions/staged_batches.rs).
PUBLISHES_PER_PARTITION_MAX: Final = 32
# Tries of a commit whose partition a layout change holds: each waits until it is not held, for some seconds.
HELD_TRIES_MAX: Final = 3
# Names per log line: enough to find the owners; an eighth of `scopes_max` may be removed together.
NAMES_SHOWN_MAX: Final = 20

# Scope, driver, last committed epoch, last expired epoch, cohort whose members claim gates for it (0: none),
# pending epochs, their positions.
ScopeRule = tuple[int, int, int, int, int, list[int], list[PositionItem]]
# A scope in one partition. Its epochs are published one after the other.
PublishSequence = tuple[ScopeId, TopicId, PartitionId]


class PendingPart(NamedTuple):
    """A part of a pending commit whose partition this node owns, or whose topic is deleted."""

    scope: ScopeId
    commit: PendingCommit
    part: StagedPart
    is_deleted: bool  # the topic is deleted
    # The epoch to publish before this one in the same partition; 0: none.
    after: int = 0

    @property
    def key(self) -> PartKey:
        return self.scope, self.commit.epoch, self.part.topic, self.part.partition

    @property
    def sequence(self) -> PublishSequence:
        return self.scope, self.part.topic, self.part.partition


class TransactionRequests:
    """Handlers of requests, and one task that installs scope rules and publishes committed epochs."""

    def __init__(
        self,
        proposer: RaftProposer,
        native_node: NativeNode,
        here: Replica,
        staged_row_counts: StagedRowCounts,
        unpublished: UnpublishedEpochs,
        on_failed: Callable[[Exception], None],
    ) -> None:
        self._proposer, self._native_node, self._here, self._on_failed = (
            proposer,
            native_node,
            here,
            on_failed,
        )
        self._staged_row_counts, self._unpublished = staged_row_counts, unpublished
        self._state = EMPTY
        self._installed = EMPTY
        self._wake = asyncio.Event()
        self._changed = asyncio.Condition()
        self._commit_queue, self._watches = (
            CommitQueue(),
            PublishWatch(self._pending, self._changed, staged_row_counts),
        )
        self._begin_queue = BeginQueue(lambda command: check_begin(proposer.state, command) is not None)
        self._failures = 0
        self._positions = ConsumedPositions(native_node, here, unpublished.health, here.node)
        self._forced_ends = ForcedEnds(proposer, native_node)
        self._installing = asyncio.Lock()
        self._tasks: list[asyncio.Task[None]] = []

    # ---- requests -----------------------------------------------------------------------------------

    async def begin(self, request: messages.ScopeBegin) -> messages.ScopeBegun:
        """Begin a new driver of a scope; this node accepts its stages when this returns.

        A refusal with CONFLICT names the newest driver, so that the client can begin after it.
        """
        fault = scope_owners.access_fault(self._proposer.state, request.scope, CALLER_PREFIX.get())
        if fault is not None:
            raise RequestRefused(Code.UNAUTHORIZED, fault)
        has_idle_times = self._proposer.state.level >= scope_owners.LEVEL_OF_OWNERS
        # A BEGIN with a condition (`after`) needs no instance to recognize its retries.
        is_named = request.after is None or not request.drawn
        command = BeginScope(
            name=request.scope,
            instance=request.instance if is_named else b"",
            one_off=request.one_off,
            after=None if request.after is None else Index(request.after),
            prefix=CALLER_PREFIX.get(),
            idle_s=request.idle_s if request.idle_s and has_idle_times else UNSET,
        )
        try:
            async with self._begin_queue.turn(command):
                applied = await self._proposer.propose(command)
        except RequestRefused as refusal:
            if refusal.code == Code.CONFLICT:
                refusal.details["driver"] = self._driver_of(request.scope)
            raise
        begun = applied.result
        assert isinstance(begun, ScopeBegun), begun
        async with self._changed:
            await self._changed.wait_for(lambda: self._is_installed(begun))
        return messages.ScopeBegun(
            scope_id=begun.scope, driver=begun.driver, committed=begun.committed, decided=begun.decided
        )

    async def commit(self, request: messages.ScopeCommit) -> Message:
        """Answer when every row of the epoch is readable; refuse rows that are not the staged ones."""
        scope, epoch = ScopeId(request.scope_id), request.epoch
        await self._check_prefix(scope)
        command = CommitScope(
            scope=scope,
            driver=Index(request.driver),
            epoch=epoch,
            tokens=tuple(request.tokens),
            parts=tuple(StagedPart(TopicId(t), PartitionId(p), rows) for t, p, rows in request.parts),
            keep=True,
            consumed=consumed_of(request) or UNSET,
        )
        self._check_consumed(command)
        decided = await self._decide(command)
        await self._watches.until_published(scope, epoch)
        _LOG.debug("committed", scope=scope, epoch=epoch, already=decided.already)
        if not decided.already:
            return messages.ScopeCommitted()
        current = self._proposer.state.scopes.get(scope)
        if current is None:
            return messages.AlreadyCommitted()
        return messages.AlreadyCommitted(own=is_own(current, command), given_up=is_discarded(current, epoch))

    def _check_consumed(self, command: CommitScope) -> None:
        """RequestRefused for positions of a cohort whose scope this is not: no owner has claims for it."""
        scope = self._proposer.state.scopes.get(command.scope)
        if scope is None or command.consumed is UNSET or command.epoch <= scope.committed:
            return
        fault = scope_fault(scope.name, command.consumed)
        if fault is not None:
            raise RequestRefused(fault.code, fault.message)

    async def _decide(self, command: CommitScope) -> ScopeDecided:
        scope = self._proposer.state.scopes.get(command.scope)
        if scope is not None and command.epoch <= scope.committed:
            applied = await self._proposer.propose(command)  # a repeat needs no turn
        else:
            async with self._commit_queue.turn(command):
                applied = await self._propose_verified(command)
        decided = applied.result
        assert isinstance(decided, ScopeDecided), decided
        return decided

    async def _propose_verified(self, command: CommitScope) -> Applied:
        """Propose the command once its owners have its rows.

        A layout change may hold a partition, or seal it, between the owners' answers and the entry. A held
        one is asked again: the next try waits until it is open or sealed. Gates that have another owner by
        then are asked again, too.
        """
        rows = replace(command, consumed=UNSET)
        for remaining in reversed(range(HELD_TRIES_MAX)):
            verified = replace(await self._staged_row_counts.verify(rows), consumed=command.consumed)
            verified = await self._staged_row_counts.claims.verify(verified)
            try:
                return await self._proposer.propose(verified)
            except RequestRefused as refusal:
                with_sealed_parts(refusal, self._proposer.state, command)
                if refusal.code not in {Code.HELD, Code.STALE_CLAIM} or not remaining:
                    raise
        raise AssertionError("the last try returns or raises")

    async def expire(self, request: messages.ScopeExpire) -> Message:
        """Discard the staged rows of the epoch and of earlier ones, unless they are committed."""
        await self._check_prefix(ScopeId(request.scope_id))
        applied = await self._proposer.propose(
            ExpireScope(scope=ScopeId(request.scope_id), epoch=request.epoch, driver=Index(request.driver))
        )
        decided = applied.result
        assert isinstance(decided, ScopeDecided), decided
        return messages.AlreadyCommitted() if decided.already else messages.ScopeCommitted()

    async def _check_prefix(self, scope: ScopeId) -> None:
        """RequestRefused if the caller's token is restricted to a prefix that does not cover the scope."""
        prefix = CALLER_PREFIX.get()
        if not prefix:
            return
        if scope not in self._proposer.state.scopes:
            await self._proposer.read_barrier()  # another tenant may just have begun the scope elsewhere
        state = self._proposer.state
        current = state.scopes.get(scope)
        fault = None if current is None else scope_owners.access_fault(state, current.name, prefix)
        if fault is not None:
            raise RequestRefused(Code.UNAUTHORIZED, fault)

    async def forget_command(self, name: str, prefix: str) -> ForgetScope | None:
        """Build the command that forgets a scope; None if no scope has this name.

        Raises:
            RequestRefused: the scope belongs to topics or tokens that `prefix` does not cover.
        """
        await self._proposer.read_barrier()
        state = self._proposer.state
        fault = scope_owners.access_fault(state, name, prefix)
        if fault is not None:
            raise RequestRefused(Code.UNAUTHORIZED, fault)
        number = state.scope_names.get(name)
        return None if number is None else ForgetScope(scope=number, driver=state.scopes[number].driver)

    def _driver_of(self, name: str) -> Index:
        state = self._proposer.state
        scope = state.scope_names.get(name)
        return Index(0) if scope is None else state.scopes[scope].driver

    def _is_installed(self, begun: ScopeBegun) -> bool:
        scope = self._installed.scopes.get(begun.scope)
        return scope is not None and scope.driver >= begun.driver

    def _pending(self, scope: ScopeId, epoch: int) -> PendingCommit | None:
        current = self._state.scopes.get(scope)
        commits = () if current is None else current.pending
        return next((commit for commit in commits if commit.epoch == epoch), None)

    # ---- applied state ------------------------------------------------------------------------------

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        for run, name in ((self._run(), "scopes"), (self._forced_ends.run(), "forced ends of claims")):
            task = loop.create_task(run, name=name)
            task.add_done_callback(self._run_ended)
            self._tasks.append(task)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    def apply(self, state: MetadataState) -> None:
        """Take the state after an entry. Called in the order of indexes."""
        before, self._state = self._state, state
        log_forgotten(before, state)
        is_changed = before.topics is not state.topics or before.cohorts is not state.cohorts
        if before.scopes is not state.scopes or (is_changed and self._has_pending()):
            self._wake.set()

    def _has_pending(self) -> bool:
        return any(scope.pending for scope in self._state.scopes.values())

    def _run_ended(self, task: asyncio.Task[None]) -> None:
        if (error := failure_of(task)) is not None:
            self._on_failed(error)

    async def _run(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                delay = min(RETRY_S_MAX, RETRY_S * 2 ** min(self._failures, 8)) if self._failures else None
                async with asyncio.timeout(delay):
                    await self._wake.wait()
            self._wake.clear()
            try:
                state = await self.install()
            except OrderError as error:  # the engine has ended; `NativeNode` reports it
                _LOG.warning("rules of scopes not installed", why=str(error))
                self._failures += 1
                continue
            async with self._changed:
                self._changed.notify_all()
            self._failures = 0 if await self._publish(state) else self._failures + 1

    async def install(self) -> MetadataState:
        """Install the rules of all scopes, as of the newest applied state, which is returned.

        Rules of gates are installed after it: an owner that opens a gate knows every commit that names it.
        """
        async with self._installing:
            state = self._state
            await self._install(state)
            return state

    async def _install(self, state: MetadataState) -> None:
        """Install the rules of changed scopes in the engine; all rules after scopes were forgotten."""
        if state.scopes is self._installed.scopes:
            return
        is_first = self._installed is EMPTY
        # `scopes_gone` alone does not show every removal: a removed scope may have a lower id than it.
        all_scopes = is_first or not self._installed.scopes.keys() <= state.scopes.keys()
        installed = {} if all_scopes else self._installed.scopes
        rules = [
            scope_rule(scope) for number, scope in state.scopes.items() if installed.get(number) is not scope
        ]
        gone = state.scopes_gone if all_scopes else None
        await self._native_node.order(Order.install_scopes(rules, gone))
        self._installed = state

    # ---- publishing ---------------------------------------------------------------------------------

    async def _publish(self, state: MetadataState) -> bool:
        """Publish pending parts of this node, the oldest epochs first; False if a part must be repeated."""
        pending = list(pending_parts(state, self._here))
        self._unpublished.keep_only(one.key for one in pending)
        published: dict[tuple[ScopeId, int], list[tuple[TopicId, PartitionId]]] = {}
        stuck: set[PublishSequence] = set()
        while pending:
            chosen, pending = next_round(pending, stuck)
            if not chosen:
                break
            results = await asyncio.gather(*(self._publish_part(one) for one in chosen))
            for one, is_published in zip(chosen, results, strict=True):
                if is_published:
                    partitions = published.setdefault((one.scope, one.commit.epoch), [])
                    partitions.append((one.part.topic, one.part.partition))
                else:
                    stuck.add(one.sequence)
        settled, is_all_settled = await self._positions.settle(state)
        confirmed = await asyncio.gather(
            *(
                self._confirm(*key, published.get(key, []), settled.get(key, []))
                for key in {**published, **settled}
            )
        )
        return not stuck and is_all_settled and all(confirmed)

    async def _publish_part(self, pending: PendingPart) -> bool:
        if pending.is_deleted:
            return True
        part, tokens = pending.part, b"".join(pending.commit.tokens)
        order = Order.publish(
            part.topic,
            part.partition,
            pending.scope,
            pending.commit.epoch,
            tokens,
            part.rows,
            part.upto,
            pending.after,
        )
        try:
            await self._native_node.order(order)
        except OrderError as error:
            scope, topic = self._state.scopes.get(pending.scope), self._state.topics.get(part.topic)
            names = ("" if scope is None else scope.name, "" if topic is None else topic.name)
            self._unpublished.refused(pending.key, names, str(error))
            return False
        return True

    async def _confirm(
        self, scope: ScopeId, epoch: int, parts: list[tuple[TopicId, PartitionId]], settled: list[PartitionId]
    ) -> bool:
        consumed = tuple(sorted(settled)) if settled else UNSET
        command = ConfirmPublished(scope=scope, epoch=epoch, parts=tuple(sorted(parts)), consumed=consumed)
        try:
            await self._proposer.propose(command)
        except RequestRefused as refusal:
            return refusal.code == Code.INVALID_ARGUMENT  # the scope was removed: nothing is left to confirm
        return True


def log_forgotten(before: MetadataState, after: MetadataState) -> None:
    """Log removed scopes that have a name: begun again, they do not know their committed epochs."""
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
        log, why = _LOG.info, "removed, unused for longer than `idle_s`, or of a topic that was deleted"
    else:
        log, why = _LOG.warning, "more scopes than `scopes_max`"
    why += "; an epoch of these scopes that is written again is stored again"
    log("named scopes forgotten", scopes=len(names), names=names[:NAMES_SHOWN_MAX], why=why)


def scope_rule(scope: Scope) -> ScopeRule:
    """The rule of a scope for the engine."""
    pending = [commit.epoch for commit in scope.pending]
    positions = list(position_items(scope))
    cohort = scope_owners.claiming_cohort(scope.name) or 0
    return scope.scope, scope.driver, scope.committed, scope.expired, cohort, pending, positions


def next_round(
    pending: Iterable[PendingPart], stuck: set[PublishSequence]
) -> tuple[list[PendingPart], list[PendingPart]]:
    """Choose parts to publish concurrently; return them and the rest.

    Of each sequence only the first pending epoch is chosen, and none of a sequence in `stuck`.
    """
    chosen: list[PendingPart] = []
    rest: list[PendingPart] = []
    started, per_partition = set(stuck), Counter[tuple[TopicId, PartitionId]]()
    for one in pending:
        partition = one.part.topic, one.part.partition
        fits = len(chosen) < PUBLISHES_MAX and per_partition[partition] < PUBLISHES_PER_PARTITION_MAX
        if one.sequence in started or not fits:
            rest.append(one)
        else:
            chosen.append(one)
            per_partition[partition] += 1
        started.add(one.sequence)
    return chosen, rest


def pending_parts(state: MetadataState, here: Replica) -> Iterator[PendingPart]:
    """Pending parts whose partition `here` owns, or whose topic is deleted; epochs ascend per sequence."""
    for number, scope in sorted(state.scopes.items()):
        before: dict[tuple[TopicId, PartitionId], int] = {}
        for commit in scope.pending:
            for part in commit.parts:
                partition = part.topic, part.partition
                topic = state.topics.get(part.topic)
                assignment = None if topic is None else topic.assignments.get(part.partition)
                if assignment is None:
                    yield PendingPart(number, commit, part, is_deleted=True)
                elif assignment.owner == here:
                    yield PendingPart(number, commit, part, is_deleted=False, after=before.get(partition, 0))
                before[partition] = commit.epoch
