"""A process with a member of a QUEUE: the consumer's own state machine, and its own steps of an application.

The application has one batch, or a few, works on each for a while, and says that its rows are done, have
failed, go back or are given up. Some rows can never be worked on.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

from ringfence.common.codec import Answer, checked
from ringfence.consumer import bodies, queue_bodies
from ringfence.consumer.any_core import Batch
from ringfence.consumer.calls import Attach, Beat, Joined, Refusal
from ringfence.consumer.queue_calls import Leased, QueueFetch, QueueSettle, Told, What
from ringfence.consumer.queue_member import QueueMember
from ringfence.consumer.queue_rows import Range, without
from ringfence.consumer.values import ConsumerPlace, MemberOptions, Task, TaskKind
from ringfence.native import cohort_messages as cohort
from ringfence.native.frame import open_answer
from ringfence.native.wire import Status
from tests.sim.clients.cores import SimQueueCore, clock_of
from tests.sim.clients.member_process import BEAT_US, HANDOVER_MS, Habits, MemberProcess

if TYPE_CHECKING:
    from ringfence.consumer.calls import Call, NodeCall, Reply
    from tests.sim.clients.queue_cast import QueueCast
    from tests.sim.world.machine import Machine

DELAYS_MS = (0, 0, 500, 3_000)
"""Of rows that failed."""


@dataclass(frozen=True)
class QueueHabits(Habits):
    """Of an application that takes rows on lease."""

    work_us: int = 100_000
    """That it works on a batch, at most."""
    is_auto: bool = True
    width: int = 1
    """Batches that it has at a time, if it acknowledges by itself."""
    rows_max: int = 0
    is_exact: bool = True
    """Whether it names the rows that fail; else the whole batch does."""
    fails: float = 0.02
    """Share of batches that fail for once."""
    releases: float = 0.02
    gives_up: float = 0.01
    dozes: float = 0.02
    """Share of batches that take longer than a lease."""


@dataclass
class InHand:
    """A batch that the application works on."""

    place: ConsumerPlace
    ids: tuple[int, ...]
    due_us: int


class QueueProcess(MemberProcess):
    """One life of a member of a QUEUE."""

    mode = "queue"
    asks_tables = True  # a FETCH of a queue names no partition
    member: QueueMember
    habits: QueueHabits

    def __init__(
        self,
        cast: QueueCast,
        member: str,
        number: int,
        random: Random,
        habits: QueueHabits,
        *,
        takeover: bool,
    ) -> None:
        super().__init__(cast, member, number, random, habits)
        self.cast, self.record, self.lock = cast, cast.record, nullcontext()
        options = MemberOptions(
            member,
            self.instance,
            is_auto=habits.is_auto,
            takeover=takeover,
            bytes_max=1 << 20,
            rows_max=habits.rows_max,
            tells=frozenset({TaskKind.LOST}),
        )
        self.core = SimQueueCore(self, options)
        self.member = self.core.member
        self.said = defaultdict[tuple[int, int], set[tuple[int, What]]](set)
        """By incarnation and partition: rows, and what the application said of them."""
        self._hands: list[InHand] = []

    # ---- calls ----

    def _leaves(self, call: NodeCall, machine: Machine) -> None:
        if isinstance(call, QueueSettle):
            self.record.settles(self, machine, call)

    def _hears(self, call: Call, outcome: Reply | Refusal) -> None:
        if isinstance(outcome, Joined):
            self.record.joined(self, outcome.plan.session)
        self.record.heard(self, call, outcome)

    def left_node(self, machine: Machine, frame: bytes, body: bytes) -> None:
        header = open_answer(frame)
        if not isinstance(self.call_of.get(header.request_id), QueueFetch) or header.status != Status.OK:
            return
        leased = queue_bodies.leased_of(checked(header, memoryview(body)))
        if leased.lines:
            self.cast.leased.append(leased)
            self.record.left(self, machine, leased)

    def _cut(self, name: str) -> None:
        self.record.cut(self, next(one for one in self.world.machines if one.name == name))

    def _sent(self, call: NodeCall) -> bodies.Sent:
        layout, session = self.layout, self.member.state.session
        assert layout is not None
        if isinstance(call, QueueFetch | QueueSettle):
            return queue_bodies.sent(call, layout.topic, session, layout.version)
        return bodies.sent(call, layout.topic, self.cohort, session, layout.version)

    def _reply_of(self, call: NodeCall) -> Callable[[Answer], Any]:
        return {
            Attach: bodies.attached_of,
            Beat: bodies.renewed_of,
            QueueFetch: queue_bodies.leased_of,
            QueueSettle: queue_bodies.settled_of,
        }[type(call)]

    def settings(self) -> cohort.CohortSettings:
        lease_ms, limit = int(self.record.lease_s * 1_000), self.record.limit
        return cohort.CohortSettings(handover_ms=HANDOVER_MS, lease_ms=lease_ms, limit=limit)

    # ---- the application ----

    def _step(self) -> int:
        with clock_of(self):
            now_us, is_healed = self.world.agenda.now_us, self.world.healed
            ended = [one for one in self._hands if one.due_us <= now_us or is_healed]
            self._hands = [one for one in self._hands if one not in ended]
            for one in ended:
                self._worked(one)
            width = 1 if self.habits.is_auto else self.habits.width
            if len(self._hands) < width and not self.member.state.is_closing:
                found = self.core.step(comes_back=bool(ended))
                if isinstance(found, Task):
                    self.core.done(found)
                elif found is not None:
                    self._took(found)
                    return 1_000
            return min([BEAT_US, *(max(1, one.due_us - now_us) for one in self._hands)])

    def _took(self, batch: Batch) -> None:
        ids = batch.rows.ids
        self.record.given(self, batch.place, ids)
        work_us, lease_us = self.habits.work_us, int(self.record.lease_s * 1e6)
        if self.random.random() < self.habits.dozes:
            work_us = 3 * lease_us
        due_us = self.world.agenda.now_us + self.random.randrange(1 + work_us)
        self._hands.append(InHand(batch.place, ids, due_us))

    def _worked(self, one: InHand) -> None:
        """The application has worked on a batch, and says what became of it."""
        place, dice, habits = one.place, self.random, self.habits
        whole = [(place.first_offset, place.end_offset)]
        bad = [place.first_offset + at for at, number in enumerate(one.ids) if self.cast.is_bad(number)]
        drawn = 1.0 if self.world.healed else dice.random()
        rest: list[Range] = whole
        if bad:
            failed = [(row, row + 1) for row in bad] if habits.is_exact else whole
            rest = self._settle(place, failed, What.FAILED)
        elif (drawn := drawn - habits.fails) < 0:
            rest = self._settle(place, whole, What.FAILED)
        elif (drawn := drawn - habits.releases) < 0:
            rest = self._settle(place, whole, What.RELEASED)
        elif (drawn := drawn - habits.gives_up) < 0:
            row = dice.randrange(place.first_offset, place.end_offset)
            rest = self._settle(place, [(row, row + 1)], What.PARKED)
        self._say(place, rest, What.DONE)
        if rest and not habits.is_auto:
            then = partial(self._acknowledged, place, rest) if dice.random() < 0.5 else None
            self.core.acknowledge(place, then)

    def _settle(self, place: ConsumerPlace, ranges: list[Range], what: What) -> list[Range]:
        """Returns the rest of the place."""
        self._say(place, ranges, what)
        delay_ms = 0 if what is not What.FAILED or self.world.healed else self.random.choice(DELAYS_MS)
        self.core.settle(place, ranges, what, delay_ms=delay_ms, reason=what.name)
        return list(without([(place.first_offset, place.end_offset)], ranges))

    def _say(self, place: ConsumerPlace, ranges: list[Range], what: What) -> None:
        said = self.said[place.fencing_token, place.partition]
        said.update((row, what) for first, end in ranges for row in range(first, end))

    def _acknowledged(self, place: ConsumerPlace, ranges: list[Range], error: Exception | None) -> None:
        self.world.count("acknowledgement_lost" if error else "acknowledgement_heard")
        if error is None:
            self.record.acknowledged(self, place, ranges)

    def fail(self) -> None:
        """An exception ends the application's loop, and the process."""
        for one in self._hands[-1:]:
            self._say(one.place, [(one.place.first_offset, one.place.end_offset)], What.FAILED)
        with clock_of(self):
            self.core.interrupted(ValueError("the application fails"))
            self.member.close(leave=self.random.random() < 0.5)

    def lie(self, leased: Leased) -> None:
        """Say something of rows that are on lease to others."""
        layout, node = self.layout, self.member.state.routes.node_of(leased.partition)
        if layout is None or node is None or self.is_paused:
            return
        line = self.random.choice(leased.lines)
        rows = self.record.rows(leased.incarnation, leased.partition, line.first, line.end)
        if any(self.name in state.by_process for _, state in rows):
            return  # it would be no lie
        what = self.random.choice((What.FAILED, What.RELEASED, What.PARKED))
        line_told = Told(line.first, line.end, line.epoch, what, line.failures, 0, b"a lie")
        call = QueueSettle(0, node, leased.partition, leased.incarnation, (line_told,))

        def told(answer: Answer) -> None:
            self.world.count("lie_answered")
            self.record.lied(self, call, queue_bodies.settled_of(answer))

        self.say(call, self.world.by_node(node), told)


__all__ = ["QueueHabits", "QueueProcess"]
