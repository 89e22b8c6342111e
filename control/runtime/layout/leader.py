"""Run the coordinator of layout changes on the leader: send its orders to nodes, propose its entries.

An order is sent until the coordinator withdraws it, with capped pauses: an answer may be partial. An applied
entry or an answer wakes the coordinator immediately, because clients wait from the seal to the COMMIT.

The leader also removes sealed partitions that are empty: their owners tell so, and each round takes what the
metadata allows.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Collection, Iterable
from itertools import groupby
from typing import Any, Final

import structlog

from ringfence.control.model.commands import Command
from ringfence.control.model.ids import NodeId, PartitionId, TopicId
from ringfence.control.model.layout_changes import LAYOUT_LEVEL, Transition
from ringfence.control.model.layout_commands import FinalizeLayout
from ringfence.control.model.reassignments import ChangeId
from ringfence.control.runtime.layout.times import LayoutTimes
from ringfence.control.runtime.process.errors import RequestRefused
from ringfence.control.runtime.raft.proposer import RaftProposer
from ringfence.control.runtime.rpc.layout_messages import SEALED_MAX, SealedLogs, TellSealed
from ringfence.control.state_machines.layout import prune
from ringfence.control.state_machines.layout.adoption import NodeAdoption
from ringfence.control.state_machines.layout.coordinator import LayoutCoordinator
from ringfence.control.state_machines.layout.hand_over import LackBoard
from ringfence.control.state_machines.layout.messages import LayoutAnswer, LayoutOrder, LookLayout
from ringfence.control.state_machines.layout.prune import PRUNE_INTERVAL_MS, Candidate, SealedFigures
from ringfence.control.state_machines.metadata.state_machine import validate
from ringfence.control.state_machines.reassignment.messages import OrderDone

_LOG = structlog.get_logger("ringfence.layouts")
# Interval of rounds without a wake-up while layout changes are open, in seconds: time limits are seconds.
TICK_S: Final = 0.1
# Pause after a request without an answer, in seconds: doubled each time, up to the maximum.
PAUSE_S, PAUSE_MAX_S = 0.02, 1.0
# Pause after an answer, in seconds: it may have been partial, and the rest is done soon.
POLL_S: Final = 0.02
# Looks at the children of a committed change, for its gap: seconds to the first repeat, and altogether.
GAP_PAUSE_S: Final = 0.05
GAP_WAIT_S: Final = 10.0
# Owners that are asked at a time: any one that has acknowledged rows tells nearly when the first one did.
GAP_ASKED_MAX: Final = 16
# Changes whose gaps are measured at a time.
MEASURED_MAX: Final = 256
# Owners that one round of prunes asks at a time.
ASKED_MAX: Final = 16

# (term, order): the answer of the order's node, or RequestRefused.
Send = Callable[[int, LayoutOrder], Awaitable[LayoutAnswer]]
# Asks the owner of sealed partitions. RequestRefused.
AskSealed = Callable[[NodeId, TellSealed], Awaitable[SealedLogs]]


class LayoutLeader:
    """Runs on every node; idle while the node does not lead, or without a layout change."""

    def __init__(
        self, proposer: RaftProposer, send: Send, ask_sealed: AskSealed, times: LayoutTimes | None = None
    ) -> None:
        self._proposer, self._send, self._ask_sealed = proposer, send, ask_sealed
        self._times = times or LayoutTimes()
        # Changes of this term whose gap is measured, or was.
        self._measured: set[ChangeId] = set()
        self.coordinator, self.lacks = LayoutCoordinator(), LackBoard()
        # Transitions that ended by the time limit instead of adoption, proposed by this node.
        self.timed_out = 0
        self._term = 0
        self._wake = asyncio.Event()
        self._requests: dict[LayoutOrder, asyncio.Task[None]] = {}
        self._proposing: set[asyncio.Task[None]] = set()
        self._tasks: list[asyncio.Task[None]] = []
        self._jitter = random.SystemRandom()

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._tasks = [
            loop.create_task(self._run(), name="layouts"),
            loop.create_task(self._prune_forever(), name="prunes"),
        ]
        for task in self._tasks:
            self._proposer.replica.supervise(task)

    def wake(self) -> None:
        """Run a round soon: an entry was applied."""
        if self._proposer.state.transitions or self._requests:
            self._wake.set()

    def record_lacking(self, node: NodeId, partitions: Collection[PartitionId]) -> None:
        """Take what a heartbeat told of sealed partitions that a node lacks; begin due hand-overs."""
        if not self._leads():
            return
        self._begin_term()
        board = self.lacks
        board.record(node, partitions)
        if partitions:
            for command in board.due(self._proposer.state, time.monotonic_ns() // 1_000_000):
                self._spawn(self._propose(command))

    def record_adoption(self, node: NodeId, adoption: NodeAdoption) -> None:
        """Take what a heartbeat told of the tables that a node's clients hold."""
        if self._leads():
            self._begin_term()
            self.coordinator.adoption.record(node, adoption)

    @property
    def orders(self) -> tuple[LayoutOrder, ...]:
        """Orders that nodes have not answered, or not in full."""
        return tuple(self._requests)

    def leads(self) -> bool:
        """Whether this node's observations are those of the present leadership."""
        return self._leads() and self._term == self._proposer.replica.term

    async def close(self) -> None:
        self._cancel_requests()
        tasks = {*self._proposing, *self._tasks}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)  # the replica reports a failure of a task

    # ---- orders and entries -------------------------------------------------------------------------

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            has_work = bool(self._proposer.state.transitions)
            tick = loop.call_later(TICK_S, self._wake.set) if has_work else None
            await self._wake.wait()
            if tick is not None:
                tick.cancel()
            self._wake.clear()
            self._round()

    def _leads(self) -> bool:
        replica = self._proposer.replica
        # A leader that has applied no entry of its own term may lack committed entries.
        return bool(replica.leads and replica.applied.term == replica.term and self._proposer.state.cluster)

    def _begin_term(self) -> None:
        if self._term != self._proposer.replica.term:
            self._cancel_requests()
            self._term = self._proposer.replica.term
            self._measured.clear()
            self.coordinator.begin()
            self.lacks = LackBoard()

    def _round(self) -> None:
        if not self._leads():
            self._cancel_requests()
            self._term = 0
            return
        self._begin_term()
        now_ms = time.monotonic_ns() // 1_000_000
        decisions = self.coordinator.step(self._proposer.state, now_ms, self._proposer.now_ms())
        current = set(decisions.orders)
        for order in [order for order in self._requests if order not in current]:
            self._requests.pop(order).cancel()
        for order in decisions.orders:
            if order not in self._requests:
                self._requests[order] = asyncio.get_running_loop().create_task(
                    self._send_until_cancelled(self._term, order)
                )
        for command in decisions.entries:
            self._spawn(self._propose(command))
        self._measure_gaps()

    def _measure_gaps(self) -> None:
        """Begin to measure the gap of each change that is committed by now."""
        transitions = self._proposer.state.transitions
        self._measured &= transitions.keys()
        for number, transition in transitions.items():
            is_due = not transition.may_abort and transition.stopped_us and number not in self._measured
            if is_due and len(self._measured) < MEASURED_MAX:
                self._measured.add(number)
                self._spawn(self._measure_gap(self._term, transition))

    async def _measure_gap(self, term: int, transition: Transition) -> None:
        """Ask owners of the children until one has acknowledged rows. Without producers there is no gap."""
        pause_s, end_s = GAP_PAUSE_S, time.monotonic() + GAP_WAIT_S
        while self._term == term and time.monotonic() < end_s:
            topic = self._proposer.state.topics.get(transition.topic)
            if topic is None:
                return
            assigned = (topic.assignments.get(child.partition) for child in transition.children)
            owners = list(dict.fromkeys(one.owner for one in assigned if one is not None))[:GAP_ASKED_MAX]
            looks = [
                LookLayout(to=owner, topic=transition.topic, change=transition.change, is_committed=True)
                for owner in owners
            ]
            answers = await asyncio.gather(
                *(self._send(term, look) for look in looks), return_exceptions=True
            )
            times_us = [answer.first_us for answer in answers if isinstance(answer, OrderDone)]
            first_us = min(filter(None, times_us), default=0)
            if first_us:
                self._times.note_gap(transition.change, max(0, first_us - transition.stopped_us))
                return
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_MAX_S)

    def _cancel_requests(self) -> None:
        for task in self._requests.values():
            task.cancel()
        self._requests.clear()

    async def _send_until_cancelled(self, term: int, order: LayoutOrder) -> None:
        pause_s = PAUSE_S
        while True:
            try:
                answer = await self._send(term, order)
            except RequestRefused as refusal:
                _LOG.debug("order not executed", order=repr(order)[:500], why=refusal.message)
                await asyncio.sleep(pause_s * self._jitter.uniform(0.5, 1.0))
                pause_s = min(2 * pause_s, PAUSE_MAX_S)
                continue
            if self._term == term:
                self.coordinator.observe_answer(order, answer)
                self._wake.set()
            pause_s = PAUSE_S
            await asyncio.sleep(POLL_S)

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._proposing.add(task)
        task.add_done_callback(self._proposing.discard)

    async def _propose(self, command: Command) -> None:
        try:
            await self._proposer.propose(command)
        except RequestRefused as refusal:
            _LOG.info("decision refused", command=repr(command)[:500], why=refusal.message)
            if validate(self._proposer.state, command) is None:
                # The reason is gone, or was not the state: the next round may propose it again.
                self.coordinator.note_refusal(command)
            return
        _LOG.info("decided", command=repr(command)[:500])
        if isinstance(command, FinalizeLayout):
            self.timed_out += command.timed_out
            self._times.note_end(command.change, command.waited_ms, timed_out=command.timed_out)

    # ---- prunes -------------------------------------------------------------------------------------

    async def _prune_forever(self) -> None:
        while True:
            await asyncio.sleep(PRUNE_INTERVAL_MS / 1_000 * self._jitter.uniform(0.75, 1.25))
            if self._leads() and self._proposer.state.level >= LAYOUT_LEVEL:
                await self.prune()

    async def prune(self) -> None:
        """Ask the owners of candidates, and propose the prunes that follow."""
        time_ms = self._proposer.now_ms()
        candidates = list(prune.candidates(self._proposer.state, time_ms))
        figures: dict[PartitionId, SealedFigures] = {}
        for batch in _batches(candidates):
            for answer in await asyncio.gather(*(self._ask(node, call) for node, call in batch)):
                figures |= answer
        for command in prune.due(self._proposer.state, figures, time_ms):
            await self._propose(command)

    async def _ask(self, node: NodeId, call: TellSealed) -> dict[PartitionId, SealedFigures]:
        try:
            reply = await self._ask_sealed(node, call)
        except RequestRefused as refusal:
            _LOG.debug("sealed partitions not told", node=node, why=refusal.message)
            return {}
        return {
            PartitionId(log.partition): SealedFigures(log.start_offset, log.end_offset, log.stages)
            for log in reply.logs
        }


def _batches(candidates: Iterable[Candidate]) -> Iterable[list[tuple[NodeId, TellSealed]]]:
    """Questions to owners, as many at a time as may be under way."""

    def key(candidate: Candidate) -> tuple[NodeId, TopicId]:
        return candidate.owner.node, candidate.topic

    calls: list[tuple[NodeId, TellSealed]] = []
    for (node, topic), group in groupby(sorted(candidates, key=key), key=key):
        partitions = tuple(candidate.partition for candidate in group)
        for first in range(0, len(partitions), SEALED_MAX):
            part = partitions[first : first + SEALED_MAX]
            calls.append((node, TellSealed(topic=topic, partitions=part)))
    for first in range(0, len(calls), ASKED_MAX):
        yield calls[first : first + ASKED_MAX]
