"""A process with a member of a cohort: the consumer's own state machine and bodies, over simulated lines.

It stands still, is killed and hears of nothing meanwhile. Its application works on rows for a while, and
acknowledges by asking for the next ones, or by itself.
"""

from __future__ import annotations

from concurrent.futures import Future
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ringfence.common.codec import Answer, checked, request_header
from ringfence.common.routing import Layout, layout_of
from ringfence.consumer import bodies, link
from ringfence.consumer.calls import (
    HOME,
    Attach,
    Beat,
    Call,
    Effect,
    Fetch,
    Join,
    Leave,
    Left,
    Read,
    Refresh,
    Refusal,
    Reply,
    Settle,
    Settlement,
)
from ringfence.consumer.member import Member
from ringfence.consumer.routes import Routes
from ringfence.consumer.values import ConsumerPlace, MemberOptions, Point, TaskKind
from ringfence.native import cohort_messages as cohort
from ringfence.native import messages
from ringfence.native._node import crc32c
from ringfence.native.frame import open_answer
from ringfence.native.wire import Features, Opcode, Status
from ringfence.network.request import DONE
from tests.sim.checks.ledger import Stored
from tests.sim.checks.violation import ViolationError
from tests.sim.clients.customer import ClusterClient
from tests.sim.clients.held_table import newest
from tests.sim.clients.keyed import first_id, ids_of
from tests.sim.clients.reader import fetch_header, records_of

if TYPE_CHECKING:
    from ringfence.consumer.gate import Stored as StoredAnswer
    from ringfence.consumer.giving import Turn
    from tests.checker.cohort_history import Held
    from tests.sim.cohorts import CohortSimulation
    from tests.sim.world.machine import Machine

BEAT_US: Final = 50_000
CALL_MS: Final = 5_000
GRACE_US: Final = 2_000_000
"""A request is given up so long after its deadline."""
COHORT: Final = "readers"
HANDOVER_MS: Final = 11_000
"""The least that a cohort may have: a seed lasts for half a minute."""


class Habits(NamedTuple):
    """Of an application."""

    work_us: int = 100_000
    """That it works on a batch, at most."""
    is_auto: bool = True
    acknowledges: float = 0.3
    """By itself: the share of batches behind which it does."""
    clock: float = 1.0
    """How fast its clock runs."""


class Rows(NamedTuple):
    """Of one record in an answer."""

    offset: int
    ids: tuple[int, ...]
    epoch: int


class MemberProcess(ClusterClient):
    """One life of a member; `number` tells lives of one name apart."""

    features = int(Features.COHORTS | Features.LINEAGE | Features.RESUME_RANGES)

    def __init__(
        self,
        world: CohortSimulation,
        member: str,
        number: int,
        random: Random,
        habits: Habits,
        *,
        takeover: bool,
    ) -> None:
        super().__init__(world, f"{member}.{number}", random)
        self.simulation, self.member_name, self.habits = world, member, habits
        self.instance = random.randbytes(16)
        self.member = Member(
            MemberOptions(
                member,
                self.instance,
                is_auto=habits.is_auto,
                takeover=takeover,
                bytes_max=1 << 20,
                tells=frozenset({TaskKind.LOST}),
            )
        )
        self.layout: Layout | None = None
        self.is_alive, self.paused_until = True, 0
        self.cohort = 0
        self._up: dict[int, str] = {}
        self._home: Machine | None = None
        self._unheard: list[tuple[bytes, bytes]] = []
        self._in_hand: ConsumerPlace | None = None
        world.agenda.after(random.randrange(BEAT_US), self._beat)
        world.agenda.after(random.randrange(BEAT_US), self._work)

    # ---- life ----

    @property
    def time_s(self) -> float:
        """By its own clock."""
        return self.now_s * self.habits.clock

    @property
    def is_paused(self) -> bool:
        return self.world.agenda.now_us < self.paused_until

    def kill(self) -> None:
        """The process is gone."""
        if self.is_alive:
            self.is_alive = False
            for name in list(self._lines):
                super().hang_up(name, self.random.random())
            self.world.clients.remove(self)

    def pause(self, us: int) -> None:
        """It stands still; what nodes send waits for it."""
        self.paused_until = max(self.paused_until, self.world.agenda.now_us + us)

    def _beat(self) -> None:
        if not self.is_alive:
            return
        if not self.is_paused:
            unheard, self._unheard = self._unheard, []
            for frame, body in unheard:
                self.heard(frame, body)
            self.lose_patience()
            self._take_table(self.simulation.publishers[0].layout if self.layout is None else None)
            if self.layout is not None:
                self._connect()
                self._after()
        self.world.agenda.after(BEAT_US, self._beat)

    def _connect(self) -> None:
        nodes = self.member.session.nodes
        for node in [node for node in self._up if node not in nodes]:
            self._drop(node)
        for node in sorted(nodes):
            if node in self._up:
                continue
            if node == HOME:
                self._home = self._home or self.tried()
            machine = self._home if node == HOME else self.world.by_node(node)
            if machine is not None and self.reach(machine):
                self._up[node] = machine.name
                self.member.up(node)

    def _drop(self, node: int) -> None:
        del self._up[node]
        if node == HOME:
            self._home = None
        self.member.down(node, self.time_s)

    def hang_up(self, name: str, late: float = 0.0) -> None:
        super().hang_up(name, late)
        for node in [node for node, known in self._up.items() if known == name]:
            self._drop(node)

    # ---- what nodes say ----

    def heard(self, frame: bytes, body: bytes) -> None:
        if not self.is_alive:
            return
        if self.is_paused:
            self._unheard.append((frame, body))
            return
        header = open_answer(frame)
        if header.opcode == Opcode.ASSIGN and not header.request_id:
            assigned = checked(header, memoryview(body)).control(cohort.Assign)
            self.world.count("assign_pushed")
            if assigned.cohort == self.cohort:
                self.member.pushed(bodies.plan_of(assigned))
        elif header.opcode != Opcode.TABLE_PUSH:
            super().heard(frame, body)
        self._after()

    def _take_table(self, offered: Layout | None) -> None:
        if offered is None:
            return
        held, self.layout = self.layout, newest(self.layout, offered)
        if self.layout is not held:
            self.member.routed(Routes(self.layout))

    def _after(self) -> None:
        if not self.is_alive or self.is_paused:
            return
        self.member.tick(self.time_s)
        for effect in self.member.take():
            self._carry_out(effect)
        for fault in self.member.faults():
            self.world.violate(ViolationError("member", f"{self.name}: {fault}"))
        if self.member.state.final_error is not None:
            self.simulation.ended_member(self, self.member.state.final_error)

    def _told(self, call: Call, reply: Any, answer: Answer | None) -> None:
        """A call ended."""
        if not self.is_alive:
            return
        number, now = call.number, self.time_s
        if answer is None:
            self.member.unanswered(number, now)
            return
        outcome = self._outcome(call, reply, answer)
        self.simulation.record.heard(self, call, outcome)
        if isinstance(outcome, Refusal):
            self.world.count(f"member_{outcome.why.name.lower()}")
            self.member.refused(number, outcome, now)
        else:
            self.member.answered(number, outcome, now)

    def _outcome(self, call: Call, reply: Any, answer: Answer) -> Reply | Refusal:
        assert self.layout is not None
        if answer.header.status in DONE:
            told: Reply = reply(answer)
            return told
        if isinstance(call, Attach | Beat | Settle | Fetch):
            return bodies.refusal_of(call, answer, self.layout.name, self.layout.generation)
        failed = Future[Answer]()
        failed.set_exception(answer.error(self.layout.name))
        return link._outcome(failed, reply)

    # ---- what the member wants ----

    def _carry_out(self, effect: Effect) -> None:
        layout = self.layout
        assert layout is not None
        match effect:
            case Refresh(version):
                self._refresh(version)
            case Join():
                self._join(effect)
            case Leave():
                body = cohort.Leave(
                    topic=layout.name, cohort=COHORT, member=self.member_name, session=effect.session
                )
                self._request(effect, Opcode.LEAVE, body, lambda _: Left())
            case Read():
                entry = layout.partitions.get(effect.partition)
                machine = self.world.machine_of(entry)
                frame = partial(
                    fetch_header,
                    layout.topic,
                    partition=effect.partition,
                    offset=effect.offset,
                    epoch=effect.epoch,
                    wait_ms=1_000,
                    bytes_max=effect.bytes_max,
                )
                self._put(effect, machine, frame, b"", bodies.read_of, 1_000)
            case Attach() | Beat() | Settle() | Fetch():
                self._call(effect)
            case _:
                pass

    def _call(self, call: Attach | Beat | Settle | Fetch) -> None:
        layout = self.layout
        assert layout is not None
        session = self.member.state.session
        sent = bodies.sent(call, layout.topic, self.cohort, session, layout.version)
        wait_ms = int(call.poll_s * 1_000) if isinstance(call, Fetch) else CALL_MS
        reply = {
            Attach: bodies.attached_of,
            Beat: bodies.renewed_of,
            Settle: partial(bodies.settled_of, topic=layout.name),
            Fetch: partial(bodies.fetched_of, call),  # type: ignore[arg-type]
        }[type(call)]
        more = {"body_bytes": len(sent.body), "body_crc": crc32c(sent.body)} if sent.body else {}

        def frame(request_id: int) -> bytes:
            return bytes(request_header(sent.opcode, request_id, deadline_ms=wait_ms, **sent.fields, **more))

        machine = next((one for one in self.world.machines if one.name == self._up.get(call.node)), None)
        if isinstance(call, Settle) and machine is not None:
            self.simulation.record.settles(self, call)
        self._put(call, machine, frame, sent.body, reply, wait_ms)

    def _put(
        self, call: Call, machine: Machine | None, frame: Any, body: bytes, reply: Any, wait_ms: int
    ) -> None:
        if machine is None or not self.reach(machine):
            self.world.agenda.after(1_000, partial(self._told, call, reply, None))
            return
        number = self.next_request()
        told = partial(self._told, call, reply)
        self.put(machine, number, frame(number), body, told, wait_ms * 1_000 + GRACE_US)

    def _request(self, call: Join | Leave, opcode: int, body: messages.Message, reply: Any) -> None:
        machine = next((one for one in self.world.machines if one.name == self._up.get(HOME)), None)
        if machine is None or not self.reach(machine):
            self.world.agenda.after(1_000, partial(self._told, call, reply, None))
            return
        told, patience_us = partial(self._told, call, reply), CALL_MS * 1_000 + GRACE_US
        packed = messages.encode(body)
        self.ask(machine, opcode, told, body=packed, patience_us=patience_us, deadline_ms=CALL_MS)

    def _join(self, call: Join) -> None:
        assert self.layout is not None
        body = cohort.Join(
            topic=self.layout.name,
            cohort=COHORT,
            mode="stream",
            member=self.member_name,
            instance=self.instance,
            after=call.after,
            start="earliest",
            settings=cohort.CohortSettings(handover_ms=HANDOVER_MS),
            after_partition=call.after_partition,
        )
        self._request(call, Opcode.JOIN, body, self._joined)

    def _joined(self, answer: Answer) -> Reply:
        joined = answer.control(cohort.Joined)
        self.cohort = joined.cohort
        self.world.count("member_joined")
        return bodies.joined_of(joined)

    def _refresh(self, version: int) -> None:
        machine, layout = self.tried(), self.layout
        assert layout is not None
        if machine is None:
            self.world.agenda.after(100_000, partial(self._again_refresh, version))
            return

        def told(answer: Answer | None) -> None:
            if answer is not None and answer.header.status == Status.OK:
                self._take_table(layout_of(answer.control(messages.Table)))
            elif self.is_alive:
                self.world.agenda.after(100_000, partial(self._again_refresh, version))

        self.ask(
            machine,
            Opcode.TABLE,
            told,
            patience_us=1_500_000,
            topic=layout.topic,
            layout_version=version,
            deadline_ms=1_000,
        )

    def _again_refresh(self, version: int) -> None:
        if self.is_alive and self.layout is not None and self.layout.version <= version:
            self._refresh(version)

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
        if machine is None or not self.reach(machine):
            return
        entry = Settlement(held.partition, held.hold, Point(1 << 30, 0), release=dice.random() < 0.5)
        settle = Settle(0, node or 0, (entry,))
        sent = bodies.sent(settle, layout.topic, self.cohort, self.member.state.session, layout.version)
        number = self.next_request()
        header = request_header(
            sent.opcode,
            number,
            deadline_ms=CALL_MS,
            body_bytes=len(sent.body),
            body_crc=crc32c(sent.body),
            **sent.fields,
        )

        def told(answer: Answer | None) -> None:
            if answer is None or answer.header.status not in DONE:
                return
            self.world.count("lie_answered")
            if not bodies.settled_of(answer, layout.name).not_taken:
                what = f"{self.name} acknowledged rows under {held}, and it was taken"
                self.world.violate(ViolationError("cohort fenced hold", what))

        self.put(machine, number, bytes(header), sent.body, told, CALL_MS * 1_000 + GRACE_US)

    # ---- the application ----

    def _work(self) -> None:
        if not self.is_alive:
            return
        took_us = BEAT_US
        if not self.is_paused and self.layout is not None:
            try:
                took_us = self._step()
            except ViolationError as broken:
                self.world.violate(broken)
                return
            self._after()
        self.world.agenda.after(1 + took_us, self._work)

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
        self.simulation.record.given(self, given, rows.ids)
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
