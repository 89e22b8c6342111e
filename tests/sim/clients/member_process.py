"""A process with a member of a cohort, whatever its mode: connections, calls, tables, and the ways to die.

It stands still, is killed and hears of nothing meanwhile. The state machine and the bodies are the consumer's
own. `member.py`, `queue_member.py` and `checkpoint_member.py` have the applications.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, Final

from ringfence.common.codec import Answer, checked, request_header
from ringfence.common.routing import Layout, layout_of
from ringfence.consumer import bodies, link
from ringfence.consumer.calls import (
    HOME,
    Attach,
    Beat,
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
)
from ringfence.consumer.queue_calls import QueueFetch, QueueSettle
from ringfence.consumer.routes import Routes
from ringfence.native import cohort_messages as cohort
from ringfence.native import messages
from ringfence.native._node import crc32c
from ringfence.native.frame import open_answer
from ringfence.native.wire import Features, Opcode, Status
from ringfence.network.request import DONE
from tests.sim.checks.violation import ViolationError
from tests.sim.clients.customer import ClusterClient
from tests.sim.clients.held_table import newest
from tests.sim.clients.reader import fetch_header

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringfence.consumer.calls import Call, NodeCall
    from ringfence.consumer.member import Member
    from ringfence.consumer.queue_member import QueueMember
    from tests.sim.clients.cast import Cast
    from tests.sim.world.machine import Machine

BEAT_US: Final = 50_000
CALL_MS: Final = 5_000
GRACE_US: Final = 2_000_000
"""A request is given up so long after its deadline."""
TABLE_US: Final = 5_000_000
HANDOVER_MS: Final = 11_000
"""The least that a cohort may have: a seed lasts for half a minute."""


@dataclass(frozen=True)
class Habits:
    """Of a process."""

    clock: float = 1.0
    """How fast its clock runs."""


class MemberProcess(ClusterClient, ABC):
    """One life of a member; `number` tells lives of one name apart."""

    features = int(Features.COHORTS | Features.LINEAGE | Features.RESUME_RANGES)
    mode: str
    member: Member | QueueMember
    asks_tables = False
    """Pushed tables are lost, so that redirects must be enough. Where no node redirects, it asks at times."""

    def __init__(self, cast: Cast, member: str, number: int, random: Random, habits: Habits) -> None:
        super().__init__(cast.world, f"{member}.{number}", random)
        self.topic = cast.world.topic_name
        self._cast, self.member_name, self.habits = cast, member, habits
        self.instance = random.randbytes(16)
        self.layout: Layout | None = None
        self.is_alive, self.paused_until = True, 0
        self.cohort = 0
        self.call_of: dict[int, Call] = {}  # by request
        self._up: dict[int, str] = {}
        self._home: Machine | None = None
        self._unheard: list[tuple[bytes, bytes]] = []
        self._table_at = TABLE_US
        self.world.agenda.after(random.randrange(BEAT_US), self._beat)
        self.world.agenda.after(random.randrange(BEAT_US), self._work)

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
                self._cut(name)
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
            self._take_table(self._cast.world.publishers[0].layout if self.layout is None else None)
            if self.layout is not None:
                self._connect()
                self._look_for_table()
                self._after()
        self.world.agenda.after(BEAT_US, self._beat)

    def _look_for_table(self) -> None:
        if self.asks_tables and self.world.agenda.now_us >= self._table_at:
            self._table_at = self.world.agenda.now_us + TABLE_US
            self._refresh(0)

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

    def _cut(self, name: str) -> None:
        """The connection to a machine ends."""

    def hang_up(self, name: str, late: float = 0.0) -> None:
        if name in self._lines:
            self._cut(name)
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
        if not self.is_alive or self.is_paused or self.layout is None:
            return
        self.member.tick(self.time_s)
        for effect in self.member.take():
            self._carry_out(effect)
        for fault in self.member.faults():
            self.world.violate(ViolationError("member", f"{self.name}: {fault}"))
        if self.member.state.final_error is not None:
            self._cast.ended(self, self.member.state.final_error)

    def _told(self, call: Call, reply: Any, answer: Answer | None) -> None:
        """A call ended."""
        if not self.is_alive:
            return
        number, now = call.number, self.time_s
        if answer is None:
            self.member.unanswered(number, now)
            return
        outcome = self._outcome(call, reply, answer)
        self._hears(call, outcome)
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
        if not isinstance(call, Join | Leave | Read):
            return bodies.refusal_of(call, answer, self.layout.name, self.layout.generation)
        failed = Future[Answer]()
        failed.set_exception(answer.error(self.layout.name))
        return link._outcome(failed, reply)

    # ---- what the mode says ----

    @abstractmethod
    def _hears(self, call: Call, outcome: Reply | Refusal) -> None:
        """A node answered: before the member hears of it."""

    @abstractmethod
    def _leaves(self, call: NodeCall, machine: Machine) -> None:
        """A call leaves the member."""

    @abstractmethod
    def _sent(self, call: NodeCall) -> bodies.Sent:
        """The request of a call."""

    @abstractmethod
    def _reply_of(self, call: NodeCall) -> Any:
        """What makes a reply of an answer OK to a call."""

    @abstractmethod
    def settings(self) -> cohort.CohortSettings:
        """Of a cohort that JOIN creates."""

    @abstractmethod
    def _step(self) -> int:
        """The application's next step. Returns how long it works then."""

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
                    topic=layout.name, cohort=self.mode, member=self.member_name, session=effect.session
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
            case Attach() | Beat() | Settle() | Fetch() | QueueFetch() | QueueSettle():
                self._call(effect)
            case _:
                pass

    def _call(self, call: NodeCall) -> None:
        machine = next((one for one in self.world.machines if one.name == self._up.get(call.node)), None)
        if machine is not None:
            self._leaves(call, machine)
        sent, wait_ms = self._sent(call), int(getattr(call, "poll_s", CALL_MS / 1_000) * 1_000)
        self._put(call, machine, self._framed(sent, wait_ms), sent.body, self._reply_of(call), wait_ms)

    def _framed(self, sent: bodies.Sent, wait_ms: int) -> Callable[[int], bytes]:
        more = {"body_bytes": len(sent.body), "body_crc": crc32c(sent.body)} if sent.body else {}

        def frame(request_id: int) -> bytes:
            return bytes(request_header(sent.opcode, request_id, deadline_ms=wait_ms, **sent.fields, **more))

        return frame

    def say(self, call: NodeCall, machine: Machine | None, told: Callable[[Answer], None]) -> None:
        """Something that the member knows nothing of; `told` hears an answer OK."""
        if machine is None or not self.reach(machine):
            return
        sent, number = self._sent(call), self.next_request()

        def heard(answer: Answer | None) -> None:
            if answer is not None and answer.header.status in DONE:
                told(answer)

        frame = self._framed(sent, CALL_MS)(number)
        self.put(machine, number, frame, sent.body, heard, CALL_MS * 1_000 + GRACE_US)

    def _put(
        self, call: Call, machine: Machine | None, frame: Any, body: bytes, reply: Any, wait_ms: int
    ) -> None:
        if machine is None or not self.reach(machine):
            self.world.agenda.after(1_000, partial(self._told, call, reply, None))
            return
        number = self.next_request()
        self.call_of[number] = call
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
            cohort=self.mode,
            mode=self.mode,
            member=self.member_name,
            instance=self.instance,
            after=call.after,
            start="earliest",
            settings=self.settings(),
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
