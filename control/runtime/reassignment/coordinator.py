"""The coordinator at work on the node that leads: its orders become questions, its entries proposals.

Each wanted order is asked until it is answered or wanted no more, with capped, jittered pauses. An applied
entry or an answer wakes it at once: a HOLD waits for nobody's clock.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from ringfence.control.model.commands import Command
from ringfence.control.runtime.process.errors import RequestRefused
from ringfence.control.runtime.raft.proposer import RaftProposer
from ringfence.control.state_machines.metadata.config import limit
from ringfence.control.state_machines.reassignment.coordinator import Coordinator
from ringfence.control.state_machines.reassignment.messages import Answer, LookOpen, Order, Sync
from ringfence.control.state_machines.rebalance.loads import Board

_LOG = structlog.get_logger("ringfence.changes")
TICK_S: Final = 0.1
"""How often it looks without being woken: time limits are seconds."""
PAUSE_S: Final = 0.02
PAUSE_MAX_S: Final = 1.0
"""Between two questions that were not answered: doubled each time, up to a second."""
POLL_S: Final = 0.05
"""Between two questions how far a copy is, or whether somebody was acknowledged."""

ROUND_S: Final = 0.01
"""Between two rounds while many changes are open: what is answered meanwhile goes into one entry."""
MANY: Final = 16

Ask = Callable[[int, Order], Awaitable[Answer]]
"""(term, order): the node that it is for answers, or RequestRefused."""


class ReassignmentLeader:
    """Runs beside the members on every node; it sleeps where this node does not lead."""

    def __init__(self, proposer: RaftProposer, ask: Ask, board: Board) -> None:
        """`board` has the loads that heartbeats carried: those of all nodes while this one leads."""
        self._proposer, self._ask, self._board = proposer, ask, board
        self.coordinator = Coordinator()
        self._term = 0
        self._wake = asyncio.Event()
        self._asking: dict[Order, asyncio.Task[None]] = {}
        self._proposing: set[asyncio.Task[None]] = set()
        self._task: asyncio.Task[None] | None = None
        self._jitter = random.SystemRandom()

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run(), name="changes")
        self._proposer.replica.needs(self._task)

    def wake(self) -> None:
        """Something was applied."""
        self._wake.set()

    async def close(self) -> None:
        self._forget()
        tasks = {*self._proposing, *([self._task] if self._task else [])}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)  # one that failed was told of

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            tick = loop.call_later(TICK_S, self._wake.set)
            await self._wake.wait()
            tick.cancel()
            self._wake.clear()
            begun_s = loop.time()
            self._round()
            if len(self._proposer.state.changes) > MANY:
                # Answers come by the hundred, and a round goes over all that is open.
                await asyncio.sleep(max(ROUND_S, loop.time() - begun_s))

    def _round(self) -> None:
        replica = self._proposer.replica
        # A leader that has applied nothing of its own term does not know yet what the log says.
        if not replica.leads or replica.applied.term != replica.term or not self._proposer.state.cluster:
            self._forget()
            self._term = 0
            return
        now_ms = time.monotonic_ns() // 1_000_000
        if replica.term != self._term:
            self._forget()
            self._term = replica.term
            self.coordinator.begin(now_ms)
        if limit(self._proposer.state, "policy_enabled"):
            self.coordinator.loads = self._board.by_partition(now_ms)
            self.coordinator.unnamed = self._board.unnamed(now_ms)
        wanted = self.coordinator.step(self._proposer.state, now_ms)
        kept = set(wanted.orders)
        for order in [order for order in self._asking if order not in kept]:
            self._asking.pop(order).cancel()
        for order in wanted.orders:
            if order not in self._asking:
                self._asking[order] = asyncio.get_running_loop().create_task(self._asked(self._term, order))
        for command in wanted.entries:
            task = asyncio.get_running_loop().create_task(self._propose(command))
            self._proposing.add(task)
            task.add_done_callback(self._proposing.discard)

    def _forget(self) -> None:
        for task in self._asking.values():
            task.cancel()
        self._asking.clear()

    async def _asked(self, term: int, order: Order) -> None:
        """Until it is cancelled: an order that is answered and still wanted is a question how far it is."""
        pause_s = PAUSE_S
        while True:
            try:
                answer = await self._ask(term, order)
            except RequestRefused as refusal:
                _LOG.debug("not obeyed", order=repr(order), why=refusal.message)
                await asyncio.sleep(pause_s * self._jitter.uniform(0.5, 1.0))
                pause_s = min(2 * pause_s, PAUSE_MAX_S)
                continue
            if self._term == term:
                self.coordinator.hear(order, answer)
                self._wake.set()
            pause_s = PAUSE_S
            await asyncio.sleep(POLL_S if isinstance(order, Sync | LookOpen) else PAUSE_MAX_S)

    async def _propose(self, command: Command) -> None:
        try:
            await self._proposer.propose(command)
            _LOG.info("decided", command=repr(command)[:500])
        except RequestRefused as refusal:
            _LOG.info("decision refused", command=repr(command)[:500], why=refusal.message)
