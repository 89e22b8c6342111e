"""Execute the leader's orders of layout changes on this node, and answer with what is done.

An order names a transition; this node's own metadata says which children and sources are its own. The work
of an order goes on after the answer: a repeated order gets what is done by then. A node judges an order by
its own log, and again in the turn of the loop in which the engine gets each call: a created child is durable,
and a call after the ABORT would make files that nothing lists.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final

import structlog

from ringfence.control.model.ids import Epoch, NodeId, PartitionId
from ringfence.control.model.layout_changes import Child, Transition
from ringfence.control.model.log_end import LogEnd
from ringfence.control.model.reassignments import ChangeId
from ringfence.control.model.state import MetadataState
from ringfence.control.model.topics import Replica
from ringfence.control.runtime.data_plane.executor import OrderExecutor
from ringfence.control.runtime.data_plane.native_node import OrderError, OrderWithdrawnError
from ringfence.control.runtime.layout.engine import ChildPlace, LayoutEngine, PartitionFigures, Permit, Place
from ringfence.control.runtime.layout.inheritance import Inheritance
from ringfence.control.runtime.process.errors import RequestRefused
from ringfence.control.runtime.raft.order_terms import OrderTerms
from ringfence.control.runtime.raft.proposer import RaftProposer
from ringfence.control.state_machines.layout.messages import (
    CreateChild,
    Created,
    Inherit,
    Inherited,
    LayoutAnswer,
    LayoutOrder,
    LookLayout,
    Seal,
    SealedEnds,
    evaluate_order,
    is_settled,
    own_sources,
)
from ringfence.control.state_machines.reassignment.messages import Failed, OrderDone, OrderVerdict
from ringfence.native.wire import Code

_LOG = structlog.get_logger("ringfence.layouts")
# Time that an order waits for this node's metadata, or for its first result, in seconds. The leader repeats
# the order after it.
WAIT_S: Final = 1.0
# Time that an answer waits for the other results after the first one, in seconds.
GATHER_S: Final = 0.1
# Calls of one order that the engine has at a time; the next ones wait.
CALLS_MAX: Final = 64
# Interval of looks at the engine's figures, in seconds, and as a multiple of the duration of a look.
LOOK_S: Final = 0.02
LOOK_PAUSE_FACTOR: Final = 4
# Refusals that a repeat does not change: they end the transition.
_LASTING: Final = frozenset({Code.TOO_LARGE, Code.INVALID_ARGUMENT, Code.NOT_SUPPORTED})


class LayoutParticipant:
    """Executes orders, once the node serves. One per node."""

    def __init__(
        self,
        proposer: RaftProposer,
        executor: OrderExecutor,
        engine: LayoutEngine,
        inheritance: Inheritance,
        here: Replica,
    ) -> None:
        self._proposer, self._executor, self._engine, self._here = proposer, executor, engine, here
        self._inheritance = inheritance
        self._terms = OrderTerms(proposer)
        # The work of orders by change, type and ends; open transitions bound it.
        self._jobs: dict[tuple[ChangeId, type[Any], Any], _Job] = {}

    async def execute(self, term: int, order: LayoutOrder) -> LayoutAnswer:
        """Execute an order of the leader of `term`, or return what is done of it.

        Raises:
            RequestRefused: the order is too early, or withdrawn, or nothing is done yet.
        """
        self._terms.check(term)
        await self._until_valid(order)
        await self._executor.until_executed(self._proposer.applied.index)
        if isinstance(order, LookLayout):
            return await self._look(order)
        # Entries may have been applied since the order was judged.
        if self._verdict(order) is not OrderVerdict.EXECUTE:
            raise self._refusal(order, "not in this phase any more")
        job = self._job(order)
        if not await job.wait():
            raise self._refusal(order, "nothing is done yet", Code.HELD)
        return self._answer(order, job)

    def apply(self, state: MetadataState) -> None:
        """Take the state after an entry: end the work of transitions that are over or committed."""
        if not self._jobs:
            return
        open_ones = {
            number: transition for number, transition in state.transitions.items() if transition.may_abort
        }
        for key in [key for key in self._jobs if key[0] not in open_ones]:
            self._jobs.pop(key).close()
        self._inheritance.keep_only(open_ones)

    async def close(self) -> None:
        jobs = list(self._jobs.values())
        self._jobs.clear()
        for job in jobs:
            job.close()
        await asyncio.gather(*(task for job in jobs for task in job.tasks), return_exceptions=True)

    # ---- judgement ----------------------------------------------------------------------------------

    def _verdict(self, order: LayoutOrder) -> OrderVerdict:
        return evaluate_order(self._proposer.state, self._proposer.applied.index, order, self._here)

    def _permit(self, order: LayoutOrder) -> Permit:
        return lambda: self._verdict(order) is OrderVerdict.EXECUTE

    async def _until_valid(self, order: LayoutOrder) -> None:
        end = time.monotonic() + WAIT_S
        while (verdict := self._verdict(order)) is not OrderVerdict.EXECUTE:
            if verdict is OrderVerdict.NEVER:
                raise self._refusal(order, "over, or not for this store")
            if time.monotonic() >= end:
                raise self._refusal(order, "not in this log, or in an earlier phase")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(end - time.monotonic()):
                    await self._proposer.until_applied(self._proposer.applied.index + 1)

    def _refusal(self, order: LayoutOrder, why: str, code: Code = Code.TOO_OLD) -> RequestRefused:
        message = f"{type(order).__name__} of layout change {order.change}: {why}"
        return RequestRefused(code, message, retry_after_ms=50)

    # ---- work ---------------------------------------------------------------------------------------

    def _job(self, order: LayoutOrder) -> _Job:
        """The work of the order; parts that failed for a while begin again."""
        ends = frozenset(order.ends) if isinstance(order, Inherit) and order.ends is not None else None
        key = order.change, type(order), ends
        job = self._jobs.get(key)
        if job is None:
            job = self._jobs[key] = _Job()
        state = self._proposer.state
        for number, work in self._parts(state, state.transitions[order.change], order).items():
            job.begin(number, work)
        return job

    def _parts(
        self, state: MetadataState, transition: Transition, order: LayoutOrder
    ) -> dict[PartitionId, Callable[[], Awaitable[Any]]]:
        """The work of an order by partition. Each part gives a result or raises."""
        permit = self._permit(order)
        match order:
            case CreateChild():
                here = [child for child in transition.children if self._here in child.replicas]
                # Followed ones first: they end by themselves, and the owners of other nodes wait for them.
                here.sort(key=lambda child: child.replicas[0] == self._here)
                return {child.partition: partial(self._create, transition, child, permit) for child in here}
            case Inherit(ends=ends):
                known = None if ends is None else dict(ends)
                own = [child for child in transition.children if child.replicas[0] == self._here]
                return {
                    child.partition: partial(self._inherit, state, transition, child, known, permit)
                    for child in own
                }
            case Seal():
                sources = sorted(own_sources(state, transition, self._here))
                return {source: partial(self._hold, transition, source, permit) for source in sources}
            case LookLayout():
                raise AssertionError("a question has no work")

    async def _create(self, transition: Transition, child: Child, permit: Permit) -> bool:
        """Create a child here. True if this store owns it, and its first record is on a quorum."""
        owner = child.replicas[0]
        others = tuple(place for place in child.replicas if place != self._here)
        is_owner = owner == self._here
        # A child has no assignment yet, so no order of this node's log has told the engine these addresses.
        for place in others if is_owner else (owner,):
            await self._locate(place.node)
        here = ChildPlace(
            transition.topic, child.partition, child.slots, Epoch(transition.change), owner.node, others
        )
        if is_owner:
            await self._engine.create_owned(here, permit)
            return True
        try:
            await self._engine.create_followed(here, permit)
        except OrderWithdrawnError:
            raise
        except OrderError as error:
            # A quorum is enough: the order is repeated as long as one is missing.
            raise RequestRefused(Code.HELD, str(error)) from error
        return False

    async def _locate(self, node: NodeId) -> None:
        member = self._proposer.state.nodes.get(node)
        if member is None:
            raise RequestRefused(Code.HELD, f"node {node} is not a member any more")
        await self._engine.locate(node, member.addresses)

    async def _inherit(
        self,
        state: MetadataState,
        transition: Transition,
        child: Child,
        ends: Mapping[PartitionId, LogEnd] | None,
        permit: Permit,
    ) -> dict[PartitionId, int]:
        """Copy what the child inherits; the sizes of gates, without `ends`."""
        if ends is None:
            return await self._inheritance.copy_base(state, transition, child, permit)
        await self._inheritance.copy_rest(state, transition, child, ends, permit)
        return {}

    async def _hold(self, transition: Transition, source: PartitionId, permit: Permit) -> tuple[LogEnd, int]:
        try:
            return await self._engine.hold((transition.topic, source), transition.change, permit)
        except OrderWithdrawnError:
            raise
        except OrderError as error:
            raise RequestRefused(Code.HELD, f"partition {source}: {error}") from error

    def _answer(self, order: LayoutOrder, job: _Job) -> LayoutAnswer:
        if job.failure:
            return Failed(why=job.failure)
        match order:
            case CreateChild():
                return Created(
                    children=self._ends_of(order, [key for key, own in job.results.items() if own])
                )
            case Inherit():
                sizes = {source: size for result in job.results.values() for source, size in result.items()}
                return Inherited(
                    children=self._ends_of(order, job.results), reader_bytes=tuple(sorted(sizes.items()))
                )
            case _:
                figures = self._engine.figures([(order.topic, source) for source in job.results])
                return SealedEnds(
                    sources=tuple(
                        (source, end, stopped_us or _last_us(figures.get((order.topic, source))))
                        for source, (end, stopped_us) in sorted(job.results.items())
                    )
                )

    def _ends_of(
        self, order: LayoutOrder, children: Mapping[PartitionId, Any] | list[PartitionId]
    ) -> tuple[tuple[PartitionId, LogEnd], ...]:
        """The present ends of children, under the number as their epoch."""
        figures = self._engine.figures([(order.topic, child) for child in children])
        ends = []
        for number in sorted(children):
            known = figures.get((order.topic, number))
            if known is not None:
                end = known.end
                ends.append((number, LogEnd(Epoch(order.change), end.records, end.offset, end.chain)))
        return tuple(ends)

    # ---- questions ----------------------------------------------------------------------------------

    async def _look(self, order: LookLayout) -> OrderDone:
        """Answer once this store's part is as the phase needs it, within WAIT_S."""
        end = time.monotonic() + WAIT_S
        while True:
            begun_s = time.monotonic()
            local = _Figures(self._engine.figures(self._places(order)), order)
            if is_settled(self._proposer.state, order, self._here, local):
                return OrderDone(first_us=local.first_us(order.change) if order.is_committed else 0)
            now_s = time.monotonic()
            if now_s >= end:
                raise self._refusal(order, "not settled yet", Code.HELD)
            await asyncio.sleep(max(LOOK_S, LOOK_PAUSE_FACTOR * (now_s - begun_s)))
            await self._executor.until_executed(self._proposer.applied.index)

    def _places(self, order: LookLayout) -> list[Place]:
        """The partitions that the transition changes and makes."""
        transition = self._proposer.state.transitions.get(order.change)
        if transition is None:
            return []
        children = (child.partition for child in transition.children)
        return [(transition.topic, number) for number in (*transition.sources, *children)]


class _Figures:
    """The engine's figures at one moment, as `is_settled` asks for them."""

    def __init__(self, figures: Mapping[Place, PartitionFigures], order: LookLayout) -> None:
        self._figures, self._topic = figures, order.topic

    def has_stages(self, partition: PartitionId) -> bool:
        known = self._figures.get((self._topic, partition))
        return known is not None and known.stages > 0

    def is_open(self, partition: PartitionId, epoch: Epoch) -> bool:
        known = self._figures.get((self._topic, partition))
        return known is not None and known.is_open and known.owner_epoch == epoch

    def first_us(self, change: ChangeId) -> int:
        """When a child of the change was first acknowledged here, Unix us; 0: no child was."""
        times_us = (
            known.first_acknowledged_us
            for (topic, _), known in self._figures.items()
            if topic == self._topic and known.is_open and known.owner_epoch == change
        )
        return min(filter(None, times_us), default=0)

    def is_quarantined(self, partition: PartitionId) -> bool:
        known = self._figures.get((self._topic, partition))
        return known is not None and known.is_quarantined


class _Job:
    """The work of one order: one task a partition. `failure` is not empty once a repeat is useless."""

    def __init__(self) -> None:
        self.results: dict[PartitionId, Any] = {}
        self.failure = ""
        self._tasks: dict[PartitionId, asyncio.Task[None]] = {}
        self._calls = asyncio.Semaphore(CALLS_MAX)

    @property
    def tasks(self) -> tuple[asyncio.Task[None], ...]:
        return tuple(self._tasks.values())

    def begin(self, number: PartitionId, work: Callable[[], Awaitable[Any]]) -> None:
        """Begin a part, unless it is done or under way."""
        if number not in self.results and number not in self._tasks and not self.failure:
            task = asyncio.get_running_loop().create_task(self._run(number, work))
            self._tasks[number] = task
            task.add_done_callback(lambda _: self._tasks.pop(number, None))

    async def wait(self) -> bool:
        """Wait for all parts, but only GATHER_S once one is done, else WAIT_S. Whether any part is done."""
        begun_s = time.monotonic()
        end = begun_s + (GATHER_S if self.results else WAIT_S)
        while self._tasks and not self.failure and (left_s := end - time.monotonic()) > 0:
            await asyncio.wait(self.tasks, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
            if self.results:
                end = min(end, time.monotonic() + GATHER_S)
        return bool(self.results or self.failure)

    def close(self) -> None:
        for task in self._tasks.values():
            task.cancel()

    async def _run(self, number: PartitionId, work: Callable[[], Awaitable[Any]]) -> None:
        try:
            async with self._calls:
                self.results[number] = await work()
        except RequestRefused as refusal:
            if refusal.code in _LASTING:
                self.failure = self.failure or refusal.message[:1_000]
            _LOG.debug("part of an order not done", partition=number, why=refusal.message)
        except OrderWithdrawnError:
            _LOG.debug("part of an order withdrawn", partition=number)
        except OrderError as error:
            self.failure = self.failure or f"partition {number}: {error}"[:1_000]
        except Exception as error:  # noqa: BLE001 - a defect must end one layout change, not the node
            _LOG.exception("part of an order failed", partition=number)
            self.failure = self.failure or f"partition {number}: a defect: {error!r}"[:1_000]


def _last_us(figures: PartitionFigures | None) -> int:
    return 0 if figures is None else figures.last_acknowledged_us
