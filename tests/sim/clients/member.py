"""A process with a member of a STREAM.

Its application works on rows for a while, and acknowledges by asking for the next ones, or by itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

from ringfence.common.codec import Answer
from ringfence.consumer import bodies
from ringfence.consumer.calls import Attach, Beat, Fetch, Settle, Settlement
from ringfence.consumer.member import Member
from ringfence.consumer.values import ConsumerPlace, MemberOptions, Point, TaskKind
from ringfence.native import cohort_messages as cohort
from tests.sim.checks.ledger import Stored
from tests.sim.checks.violation import ViolationError
from tests.sim.clients.keyed import first_id, ids_of
from tests.sim.clients.member_process import BEAT_US, HANDOVER_MS, Habits, MemberProcess
from tests.sim.clients.reader import records_of

if TYPE_CHECKING:
    from ringfence.consumer.calls import Call, NodeCall, Refusal, Reply
    from ringfence.consumer.gate import Stored as StoredAnswer
    from ringfence.consumer.giving import Turn
    from tests.checker.cohort_history import Held
    from tests.sim.clients.cast import StreamCast
    from tests.sim.clients.checkpoint_member import CheckpointCast
    from tests.sim.world.machine import Machine


@dataclass(frozen=True)
class StreamHabits(Habits):
    """Of an application that acknowledges positions."""

    work_us: int = 100_000
    """That it works on a batch, at most."""
    is_auto: bool = True
    acknowledges: float = 0.3
    """By itself: the share of batches behind which it does."""


class Rows(NamedTuple):
    """Of one record in an answer."""

    offset: int
    ids: tuple[int, ...]
    epoch: int


class StreamProcess(MemberProcess):
    """One life of a member of a STREAM."""

    mode = "stream"
    member: Member
    habits: StreamHabits

    def __init__(
        self,
        cast: StreamCast | CheckpointCast,
        member: str,
        number: int,
        random: Random,
        habits: StreamHabits,
        *,
        takeover: bool,
    ) -> None:
        super().__init__(cast, member, number, random, habits)
        self.record = cast.record
        self.member = self._new_member(self._options(takeover=takeover))
        self._in_hand: ConsumerPlace | None = None

    def _new_member(self, options: MemberOptions) -> Member:
        return Member(options)

    def _options(self, *, takeover: bool) -> MemberOptions:
        return MemberOptions(
            self.member_name,
            self.instance,
            is_auto=self.habits.is_auto,
            takeover=takeover,
            bytes_max=1 << 20,
            tells=frozenset({TaskKind.LOST}),
        )

    # ---- calls ----

    def _hears(self, call: Call, outcome: Reply | Refusal) -> None:
        self.record.heard(self, call, outcome)

    def _leaves(self, call: NodeCall, machine: Machine) -> None:
        del machine
        if isinstance(call, Settle):
            self.record.settles(self, call)

    def _sent(self, call: NodeCall) -> bodies.Sent:
        layout = self.layout
        assert layout is not None
        return bodies.sent(call, layout.topic, self.cohort, self.member.state.session, layout.version)

    def _reply_of(self, call: NodeCall) -> Any:
        assert self.layout is not None
        return {
            Attach: bodies.attached_of,
            Beat: bodies.renewed_of,
            Settle: partial(bodies.settled_of, topic=self.layout.name),
            Fetch: partial(bodies.fetched_of, call),  # type: ignore[arg-type]
        }[type(call)]

    def settings(self) -> cohort.CohortSettings:
        return cohort.CohortSettings(handover_ms=HANDOVER_MS)

    def lie(self, dice: Random, holds: list[Held]) -> None:
        """Acknowledge rows under a hold of another member, or under one that this member had before."""
        mine = {gate.hold for gate in self.member.state.gates.values()}
        others = [one for one in holds[-8:] if one.member != self.name or one.hold not in mine]
        layout = self.layout
        if not others or layout is None or self.is_paused:
            return
        held = dice.choice(others)
        node = self.member.state.routes.node_of(held.partition)
        machine = None if node is None else self.world.by_node(node)
        entry = Settlement(held.partition, held.hold, Point(1 << 30, 0), release=dice.random() < 0.5)

        def told(answer: Answer) -> None:
            self.world.count("lie_answered")
            if not bodies.settled_of(answer, layout.name).not_taken:
                what = f"{self.name} acknowledged rows under {held}, and it was taken"
                self.world.violate(ViolationError("cohort fenced hold", what))

        self.say(Settle(0, node or 0, (entry,)), machine, told)

    # ---- the application ----

    def _step(self) -> int:
        """Come back for the next rows. Returns how long the application works on them."""
        member, dice = self.member, self.random
        place, self._in_hand = self._in_hand, None
        if self.habits.is_auto:
            member.giving.acknowledge_given()
        elif place is not None and dice.random() < self.habits.acknowledges:
            member.acknowledge(place)
        while (task := member.next_task()) is not None:
            member.done(task)
        turn = member.turn(self.time_s)
        if turn is None:
            if not self.habits.is_auto and dice.random() < 0.2:
                member.giving.acknowledge_given()  # nothing came for a while
            return BEAT_US
        if (given := self._give(turn)) is None:
            return 10_000
        self._in_hand = given
        return 1_000 if self.world.healed else dice.randrange(1 + self.habits.work_us)

    def _give(self, turn: Turn) -> ConsumerPlace | None:
        stored, member = turn.stored, self.member
        if stored.batches is None:
            stored.batches = self._rows_of(turn.gate.partition, stored)
        if not stored.batches:
            member.giving.finish(turn)
            return None
        rows: Rows = stored.batches[0]
        given = member.giving.give(turn, rows.offset, len(rows.ids), rows.epoch, self.time_s)
        if given is None:
            return None
        stored.batches.pop(0)
        self.record.given(self, given, rows.ids)
        if given.end_offset >= stored.end:
            member.giving.finish(turn)
        return given

    def _rows_of(self, partition: int, stored: StoredAnswer) -> list[Rows]:
        answer: Answer | None = stored.body
        found: list[Rows] = []
        if answer is None:
            return found
        for record in records_of(answer.header, bytes(answer.body), first_id):
            self.world.ledger.read(partition, record)
            assert isinstance(record, Stored), "no transactions in these seeds"
            first, end = max(record.offset, stored.start), min(record.offset + record.rows, stored.end)
            if first < end:
                ids = ids_of(record.body)[first - record.offset : end - record.offset]
                found.append(Rows(first, ids, record.epoch))
        return found
