"""Run the reassignment coordinator on the leader: send its orders to nodes, propose its entries.

An order is sent until a node answers it or the coordinator withdraws it, with capped pauses. An
applied entry or an answer wakes the coordinator immediately, so that a HOLD does not wait for a timer.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import structlog

from ringfence.control.model.commands import Command
from ringfence.control.model.ids import NodeId
from ringfence.control.runtime.process.errors import RequestRefused
from ringfence.control.runtime.raft.proposer import RaftProposer
from ringfence.control.state_machines.metadata.config import limit
from ringfence.control.state_machines.reassignment.coordinator import Coordinator
from ringfence.control.state_machines.reassignment.messages import (
    LookOpen,
    ReassignmentAnswer,
    ReassignmentOrder,
    Sync,
)
from ringfence.control.state_machines.rebalance.loads import LoadSource, Pressure

_LOG = structlog.get_logger("ringfence.changes")
# Interval of rounds without a wake-up, in seconds: time limits are seconds.
TICK_S: Final = 0.1
PAUSE_S: Final = 0.02
# Pause after a request without an answer, in seconds: doubled each time, up to the maximum.
PAUSE_MAX_S: Final = 1.0
# Interval of requests for the progress of a copy or of an opening, in seconds.
POLL_S: Final = 0.05
# Wait for answers when an operator looks, in seconds: a round trip to a loaded node.
REFRESH_S: Final = 0.25
# Copies that a look asks for: `moves_concurrent` allows 64.
REFRESHED_MAX: Final = 64

# Pause between rounds while many reassignments are open: answers of that time go into one entry.
ROUND_S: Final = 0.01
CHANGES_MANY: Final = 16

# (term, order): the answer of the order's node, or RequestRefused.
Ask = Callable[[int, ReassignmentOrder], Awaitable[ReassignmentAnswer]]


def until_common_time_s(now_s: float, pause_s: float) -> float:
    """Return a pause of `pause_s / 2` to `pause_s` that ends when other orders' pauses of this length end.

    Orders that are sent again together share a request; random pauses would give each a request of its own.
    """
    step_s = pause_s / 2
    return step_s + step_s - now_s % step_s


class ReassignmentLeader:
    """Runs on every node; idle while the node does not lead."""

    def __init__(
        self,
        proposer: RaftProposer,
        ask: Ask,
        loads: LoadSource,
        pressures: Callable[[int], Mapping[NodeId, Pressure]] = lambda _: {},
    ) -> None:
        """`loads` are those of all nodes while this node leads, for the policy; `pressures` break ties
        between nodes that may become owners.
        """
        self._proposer, self._ask, self._loads, self._pressures = proposer, ask, loads, pressures
        self.coordinator = Coordinator()
        self._term = 0
        self._wake = asyncio.Event()
        self._requests: dict[ReassignmentOrder, asyncio.Task[None]] = {}
        self._proposing: set[asyncio.Task[None]] = set()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run(), name="changes")
        self._proposer.replica.supervise(self._task)

    def wake(self) -> None:
        """Run a round soon: an entry was applied."""
        self._wake.set()

    async def refresh(self) -> None:
        """Ask for the progress of all copies now: operators see what was copied by now, and not what the last
        regular answer said. Copies whose owner does not answer in time keep their last progress.
        """
        term = self._term
        orders = [order for order in self._requests if isinstance(order, Sync)][:REFRESHED_MAX]

        async def ask(order: Sync) -> None:
            try:
                answer = await self._ask(term, order)
            except RequestRefused:
                return
            if self._term == term and order in self._requests:
                self.coordinator.observe_answer(order, answer)

        tasks = [asyncio.get_running_loop().create_task(ask(order)) for order in orders]
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=REFRESH_S)
            for task in late:
                task.cancel()

    async def close(self) -> None:
        self._cancel_requests()
        tasks = {*self._proposing, *([self._task] if self._task else [])}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)  # the replica reports a failure of a task

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            tick = loop.call_later(TICK_S, self._wake.set)
            await self._wake.wait()
            tick.cancel()
            self._wake.clear()
            begun_s = loop.time()
            self._round()
            if len(self._proposer.state.changes) > CHANGES_MANY:
                # Answers arrive by the hundred, and a round visits every open reassignment.
                await asyncio.sleep(max(ROUND_S, loop.time() - begun_s))

    def _round(self) -> None:
        replica = self._proposer.replica
        # A leader that has applied no entry of its own term may lack committed entries.
        if not replica.leads or replica.applied.term != replica.term or not self._proposer.state.cluster:
            self._cancel_requests()
            self._term = 0
            return
        now_ms = time.monotonic_ns() // 1_000_000
        if replica.term != self._term:
            self._cancel_requests()
            self._term = replica.term
            self.coordinator.begin(now_ms)
        if limit(self._proposer.state, "policy_enabled"):
            self.coordinator.loads = self._loads.by_partition(now_ms)
            self.coordinator.unlisted_loads = self._loads.unlisted(now_ms)
        if self._proposer.state.changes:
            self.coordinator.pressures = self._pressures(now_ms)
        decisions = self.coordinator.step(self._proposer.state, now_ms)
        current = set(decisions.orders)
        for order in [order for order in self._requests if order not in current]:
            self._requests.pop(order).cancel()
        for order in decisions.orders:
            if order not in self._requests:
                self._requests[order] = asyncio.get_running_loop().create_task(
                    self._send_until_cancelled(self._term, order)
                )
        for command in decisions.entries:
            task = asyncio.get_running_loop().create_task(self._propose(command))
            self._proposing.add(task)
            task.add_done_callback(self._proposing.discard)

    def _cancel_requests(self) -> None:
        for task in self._requests.values():
            task.cancel()
        self._requests.clear()

    async def _send_until_cancelled(self, term: int, order: ReassignmentOrder) -> None:
        """Send `order` until cancelled. After an answer, repeats ask for its progress."""
        pause_s = PAUSE_S
        while True:
            try:
                answer = await self._ask(term, order)
            except RequestRefused as refusal:
                _LOG.debug("order not executed", order=repr(order), why=refusal.message)
                await asyncio.sleep(until_common_time_s(asyncio.get_running_loop().time(), pause_s))
                pause_s = min(2 * pause_s, PAUSE_MAX_S)
                continue
            if self._term == term:
                self.coordinator.observe_answer(order, answer)
                self._wake.set()
            pause_s = PAUSE_S
            await asyncio.sleep(POLL_S if isinstance(order, Sync | LookOpen) else PAUSE_MAX_S)

    async def _propose(self, command: Command) -> None:
        try:
            await self._proposer.propose(command)
            _LOG.info("decided", command=repr(command)[:500])
        except RequestRefused as refusal:
            _LOG.info("decision refused", command=repr(command)[:500], why=refusal.message)
