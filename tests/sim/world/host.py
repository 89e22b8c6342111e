"""One node on its simulated disk: rounds of its loop, disk work that takes time, every way to die.

It mirrors what the runtime's threads do: a job is under way from `turn` until it is run, the next group fills
meanwhile, jobs of different shards and reads end in any order.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any, Final

from ringfence.native.errors import ClosedError, StorageError
from ringfence.native.frame import open_answer
from ringfence.native.wire import Status
from tests.sim.checks.violation import ViolationError
from tests.sim.world.agenda import Agenda

UNIX_MS: Final = 1_700_000_000_000
LOOKS: Final = 4  # of so many requests, one is looked at for what its refusal changed
CALLS_MAX: Final = 7  # calls to the disk in one job: one more than most need


class Host:
    """`make` builds a SimNode on the disk, `on_answer` and `on_outcome` hear of what comes out of it."""

    tick_us = 20_000
    """As the runtime's."""

    def __init__(
        self,
        agenda: Agenda,
        random: Random,
        disk: Any,
        make: Callable[[Any], Any],
        *,
        slow: float,
        on_answer: Callable[[int, bytes, bytes], None],
        on_outcome: Callable[[tuple[Any, ...]], None],
    ) -> None:
        self.agenda, self.random, self.disk, self.node = agenda, random, disk, make(disk)
        self.faults: Counter[str] = Counter()
        self.life = 0
        self._slow, self._on_answer, self._on_outcome = slow, on_answer, on_outcome
        self._booted_us = 0
        self._wake_us = -1
        self._requests = 0
        self._jobs: set[int] = set()
        self._reads: set[int] = set()

    @property
    def running(self) -> bool:
        return bool(self.node.running)

    def clocks(self) -> tuple[int, int]:
        """Unix ms, and ms since the machine started."""
        now_us = self.agenda.now_us
        return UNIX_MS + now_us // 1000, (now_us - self._booted_us) // 1000

    # ---- life and death ----

    def start(self, calls: int | None = None) -> dict[str, Any] | None:
        """What recovery found; None if the disk failed at it, or the power did after `calls` calls."""
        self._booted_us = self.agenda.now_us
        try:
            report: dict[str, Any] = self.node.recover(*self.clocks(), calls)
        except StorageError:
            self.faults["start_failed"] += 1
            return None
        self._recovered()
        return report

    def _recovered(self) -> None:
        self._jobs.clear()
        self._reads.clear()
        self._wake_us = -1
        self.later(self.tick_us, self._tick)

    def crash(self, *, power: bool, mid_job: bool = False) -> None:
        """The process dies, the power too or not; `mid_job`: in the middle of what writers are doing."""
        if self.running:
            if mid_job:
                for shard in self.node.jobs()[0]:
                    self.node.run_job(shard, self.random.randrange(CALLS_MAX))
                    self.faults["crash_in_job"] += 1
            self.node.crash()
            self.life += 1
        if power:
            self.disk.crash()
        self.faults["power_cut" if power else "crash"] += 1

    def stop(self) -> None:
        """An orderly end: what is under way becomes durable, unless the disk failed."""
        with contextlib.suppress(ClosedError):
            self.node.stop(1.0)
        self.life += 1
        self.faults["stop"] += 1

    # ---- rounds ----

    def request(self, connection: int, request_id: int, header: bytes, body: bytes) -> bool:
        """As of the node. A request that is refused at once must have changed nothing."""
        self._requests += 1
        is_looked_at = self._requests % LOOKS == 0
        before = self.node.state_hash() if is_looked_at else 0
        if not self.node.request(connection, header, body):
            return False
        answers = self.node.take_answers()
        if is_looked_at:
            self._check_refusals(before, {(connection, request_id)}, answers)
        for answer in answers:
            self._on_answer(*answer)
        self.pump()
        return True

    def _check_refusals(
        self, before: int, asked: set[tuple[int, int]], answers: list[tuple[int, bytes, bytes]]
    ) -> None:
        for connection, frame, _ in answers:
            header = open_answer(frame)
            is_taken = header.status in (Status.OK, Status.STAGED)
            if (connection, header.request_id) not in asked or is_taken:
                continue
            if self.node.state_hash() != before:
                raise ViolationError("I15", f"a request refused with code {header.code} changed the state")
            self.faults["refusal_looked_at"] += 1

    def pump(self) -> None:
        """The end of a round: after every event."""
        node = self.node
        shards, tickets = node.turn()
        for shard in shards:
            if shard not in self._jobs:
                self._jobs.add(shard)
                self.later(self._group_us(), partial(self._job, shard))
        for ticket in tickets:
            if ticket not in self._reads:
                self._reads.add(ticket)
                self.later(self._delay_us(50, 500), partial(self._read, ticket))
        for connection, header, body in node.take_answers():
            self._on_answer(connection, header, body)
        self._carry_peer_messages()
        node.check()
        wakes_ms = node.wakes_at()
        if wakes_ms is not None:
            self._wake(max(1_000, (wakes_ms - self.clocks()[1]) * 1000))
        self._hand_over_outcomes()

    def _carry_peer_messages(self) -> None:
        """A node alone has none."""

    def _hand_over_outcomes(self) -> None:
        outcomes = self.node.poll()
        for outcome in outcomes:
            self._on_outcome(outcome)
        if outcomes:
            self.pump()  # orders that they led to

    def begin(self, life: int) -> bool:
        """The node of that life still runs; its clocks are set."""
        if life != self.life or not self.node.running:
            return False
        self.node.clock(*self.clocks())
        return True

    def later(self, delay_us: int, call: Callable[[], None]) -> None:
        """Call it with the clocks set, if the node still lives then."""
        life = self.life

        def run() -> None:
            if self.begin(life):
                call()

        self.agenda.after(delay_us, run)

    def _delay_us(self, low: int, high: int) -> int:
        slower = 20 if self._slow and self.random.random() < self._slow else 1
        return self.random.randrange(low, high) * slower

    def _group_us(self) -> int:
        """Until what a writer has begun is on disk, and the engine hears of it."""
        return self._delay_us(300, 3_000)

    def _tick(self) -> None:
        self.node.tick(*self.clocks())
        self.pump()
        self.later(self.tick_us, self._tick)

    def _wake(self, delay_us: int) -> None:
        at = self.agenda.now_us + delay_us
        if self._wake_us > self.agenda.now_us and self._wake_us <= at:
            return
        self._wake_us = at
        self.later(delay_us, self.pump)

    def _job(self, shard: int) -> None:
        self._jobs.discard(shard)
        self.node.run_job(shard)
        self.pump()

    def _read(self, ticket: int) -> None:
        self._reads.discard(ticket)
        if ticket in self.node.jobs()[1]:  # or a check has read ahead
            self.node.run_read(ticket)
            self.pump()
