"""The coordinator at work on the node that leads: its orders become questions, its entries proposals.

Each wanted order is asked until it is answered or wanted no more, with capped, jittered pauses. An applied
entry or an answer wakes it at once: a HOLD waits for nobody's clock.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

import structlog

from ringfence.control.machines.change_orders import Answer, LookOpen, Order, Sync
from ringfence.control.machines.config import limit
from ringfence.control.machines.coordinator import Coordinator
from ringfence.control.model.commands import Command
from ringfence.control.model.ids import PartitionId
from ringfence.control.runtime.errors import RequestRefused
from ringfence.control.runtime.raft_proposer import RaftProposer

_LOG = structlog.get_logger("ringfence.changes")
TICK_S: Final = 0.1
"""How often it looks without being woken: time limits are seconds."""
PAUSE_S: Final = 0.02
PAUSE_MAX_S: Final = 1.0
"""Between two questions that were not answered: doubled each time, up to a second."""
POLL_S: Final = 0.05
"""Between two questions how far a copy is, or whether somebody was acknowledged."""

LOADS_S: Final = 2.0
"""Between two looks at what owners append, while the policy is on."""

Figures = Callable[[], Awaitable[list[dict[str, Any]]]]
"""What nodes tell of their partitions: topic, partition, end_offset."""
Ask = Callable[[int, Order], Awaitable[Answer]]
"""(term, order): the node that it is for answers, or RequestRefused."""


class Loads:
    """Rows per second appended to each partition: differences of what was told, smoothed over some looks."""

    def __init__(self) -> None:
        self._before: dict[PartitionId, tuple[int, float]] = {}
        self._rates: dict[PartitionId, float] = {}

    def of(self, figures: list[dict[str, Any]], now_s: float) -> dict[PartitionId, float]:
        ends: dict[PartitionId, int] = {}
        for known in figures:
            number = PartitionId(known["partition"])
            ends[number] = max(ends.get(number, 0), known["end_offset"])
        rates = {}
        for number, end in ends.items():
            before, at_s = self._before.get(number, (end, now_s))
            if now_s > at_s:
                rate = max(0, end - before) / (now_s - at_s)
                rates[number] = (self._rates.get(number, rate) + rate) / 2
        self._before = {number: (end, now_s) for number, end in ends.items()}
        self._rates = rates
        return dict(rates)


class ChangeLeader:
    """Runs beside the members on every node; it sleeps where this node does not lead."""

    def __init__(self, proposer: RaftProposer, ask: Ask, figures: Figures) -> None:
        self._proposer, self._ask, self._figures = proposer, ask, figures
        self._loads = Loads()
        self._looking: asyncio.Task[None] | None = None
        self._looked_s = 0.0
        self.coordinator = Coordinator()
        self._term = 0
        self._wake = asyncio.Event()
        self._asking: dict[Order, asyncio.Task[None]] = {}
        self._proposing: set[asyncio.Task[None]] = set()
        self._task: asyncio.Task[None] | None = None
        self._jitter = random.Random()  # noqa: S311 - pauses, not secrets

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run(), name="changes")

    def poke(self) -> None:
        """Something was applied."""
        self._wake.set()

    async def close(self) -> None:
        self._forget()
        for task in [*self._proposing, *(task for task in (self._task, self._looking) if task)]:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _run(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(TICK_S):
                    await self._wake.wait()
            self._wake.clear()
            self._round()

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
        self._look_at_loads()
        wanted = self.coordinator.step(self._proposer.state, now_ms)
        for order in [order for order in self._asking if order not in wanted.orders]:
            self._asking.pop(order).cancel()
        for order in wanted.orders:
            if order not in self._asking:
                self._asking[order] = asyncio.get_running_loop().create_task(self._asked(self._term, order))
        for command in wanted.entries:
            task = asyncio.get_running_loop().create_task(self._propose(command))
            self._proposing.add(task)
            task.add_done_callback(self._proposing.discard)

    def _look_at_loads(self) -> None:
        """Loads are soft: nobody asks for them while nothing is decided by them."""
        now_s = time.monotonic()
        is_due = now_s - self._looked_s >= LOADS_S and (self._looking is None or self._looking.done())
        if is_due and limit(self._proposer.state, "policy_enabled"):
            self._looked_s = now_s
            self._looking = asyncio.get_running_loop().create_task(self._look())

    async def _look(self) -> None:
        figures = await self._figures()
        self.coordinator.loads = self._loads.of(figures, time.monotonic())

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
