"""A fake node with one cohort: it lets members in, gives rows under holds, and takes acknowledgements."""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass, field

from ringfence.consumer.bodies import HELD, NOT_TAKEN, PARTITION, SETTLEMENT, STANDS
from ringfence.native import cohort_messages as cohort
from ringfence.native import messages, wire
from ringfence.native._node import crc32c
from ringfence.native.frame import pack_answer
from tests.fakes.socket_node import FakeNode

Op, Status, Code = wire.Opcode, wire.Status, wire.Code
LEASE_MS = 10_000


@dataclass
class NodeGate:
    settled: int = 0
    epoch: int = 0
    session: int = 0
    hold: int = 0
    is_released: bool = True


@dataclass
class NodeMember:
    session: int
    instance: bytes
    slice: list[int] = field(default_factory=list)
    replaced: list[bytes] = field(default_factory=list)


@dataclass
class Waiting:
    way: bytes
    header: wire.RequestHeader
    until: float


class CohortNode(FakeNode):
    """`features` of READY; `members` by name. Plans are the test's: `plan` gives partitions to members.

    `level`: below 3 the cohort is refused as a node of an old level refuses it.
    """

    def __init__(self, *, features: int = int(wire.Features.COHORTS | wire.Features.LINEAGE)) -> None:
        super().__init__()
        self.features, self.level = features, 3
        self.members: dict[str, NodeMember] = {}
        self.gates: dict[int, NodeGate] = {}
        self.plan_generation, self.incarnation = 1, 7
        self.attached: dict[bytes, int] = {}  # connection -> session
        self.sought: list[cohort.CohortSeek] = []
        self.joins: list[cohort.Join] = []
        self.spreads = True  # a member that joins gets all partitions
        self._sessions, self._holds = 100, 1000
        self._waiting: list[Waiting] = []
        self._pushes: deque[list[bytes]] = deque()
        self._turn = threading.RLock()

    # ---- from the test -----------------------------------------------------------------------------------

    def plan(self, **slices: list[int]) -> None:
        """Give partitions to members by name, and tell them."""
        with self._turn:
            self.plan_generation += 1
            for name, member in self.members.items():
                member.slice = sorted(slices.get(name, []))
            for way, session in self.attached.items():
                self._push(way, session)

    def seek(self) -> None:
        """Begin again at 0."""
        with self._turn:
            self.incarnation += 1
            self.gates = {one: NodeGate() for one in self.gates}
            self.plan(**{name: member.slice for name, member in self.members.items()})

    def settled(self) -> dict[int, int]:
        with self._turn:
            return {one: gate.settled for one, gate in self.gates.items() if gate.settled}

    def evict(self, name: str) -> None:
        with self._turn:
            del self.members[name]

    # ---- the node ----------------------------------------------------------------------------------------

    def _send_unasked(self) -> None:
        with self._turn:
            while self._pushes:
                self._socket.send_multipart(self._pushes.popleft())
            for one in list(self._waiting):
                answer = self._member_fetch(one.way, one.header, is_over=time.monotonic() >= one.until)
                if answer is not None:
                    self._waiting.remove(one)
                    self._socket.send_multipart([one.way, *answer])

    def _push(self, way: bytes, session: int) -> None:
        member = next((one for one in self.members.values() if one.session == session), None)
        if member is None:
            return
        topic = next(iter(self.topics.values()))
        assign = cohort.Assign(
            version=topic.version,
            cohort=5,
            generation=self.plan_generation,
            incarnation=self.incarnation,
            session=session,
            slices=[cohort.Slice(partition=one, lo=0, hi=0, name="") for one in member.slice],
        )
        body, out = messages.encode(assign), bytearray(wire.HEADER_BYTES)
        fields = {"topic": topic.topic, "flags": int(wire.AnswerFlags.CONTROL)}
        pack_answer(out, 0, Op.ASSIGN, Status.PUSH, 0, body_bytes=len(body), body_crc=crc32c(body), **fields)
        self._pushes.append([way, bytes(out), body])

    def _serve(self, header: wire.RequestHeader, body: bytes) -> list[bytes] | None:
        way = self.ways[-1]
        with self._turn:
            match header.opcode:
                case Op.HELLO:
                    ready = messages.Ready(
                        cluster=b"c" * 16,
                        history=self.history,
                        node=self.node,
                        store=b"s" * 16,
                        version_min=1,
                        version_max=1,
                        program="fake",
                        message_bytes_max=self.message_bytes_max,
                        window=wire.DEDUPE_WINDOW,
                        heartbeat_ms=10_000,
                        features=self.features,
                    )
                    return self._reply(header, ready, Status.READY)
                case Op.JOIN:
                    return self._join(header, messages.decode(cohort.Join, body))
                case Op.LEAVE:
                    left = messages.decode(cohort.Leave, body)
                    self.members.pop(left.member, None)
                    return self._reply(header, cohort.Left(removed=True))
                case Op.COHORT_SEEK:
                    self.sought.append(messages.decode(cohort.CohortSeek, body))
                    self.seek()
                    sought = cohort.CohortSought(
                        incarnation=self.incarnation, generation=self.plan_generation
                    )
                    return self._reply(header, sought)
                case Op.ATTACH | Op.MEMBER_BEAT:
                    return self._attach_or_beat(way, header, body)
                case Op.OFFSET_FOR_TIME:
                    log = next(iter(self.topics.values())).logs[header.partition]
                    half = {"first_offset": log.end // 2, "end_offset": log.end, "send": log.epoch}
                    return self._answer(header, Status.OK, b"", **half)
                case Op.ACKNOWLEDGE:
                    return self._acknowledge(way, header, body)
                case Op.FETCH if header.flags & wire.RequestFlags.COHORT:
                    answer = self._member_fetch(way, header)
                    if answer is None:
                        until = time.monotonic() + header.deadline_ms / 1000
                        self._waiting.append(Waiting(way, header, until))
                    return answer
            return super()._serve(header, body)

    def _join(self, header: wire.RequestHeader, asked: cohort.Join) -> list[bytes]:
        self.joins.append(asked)
        if self.level < 3:
            text = "the cluster's level is 2, cohorts need 3: run `ringfence cluster finalize`"
            return self._refuse(header, Code.CONFLICT, text)
        member = self.members.get(asked.member)
        if member is not None and asked.instance in member.replaced:
            return self._refuse(header, Code.FENCED_MEMBER, "a newer process has this name")
        if member is not None and member.instance != asked.instance:
            if asked.after != member.session:
                taken = {"session": member.session, "presence": "connected"}
                refused = messages.Refused(message="the name is taken", details=taken)
                return self._reply(header, refused, Status.REFUSED, code=Code.CONFLICT)
            self._register(asked, [*member.replaced, member.instance], member.slice)
        elif member is None:
            topic = next(iter(self.topics.values()))
            self._register(asked, [], sorted(topic.logs) if self.spreads else [])
        member = self.members[asked.member]
        joined = cohort.Joined(
            version=0,
            generation=self.plan_generation,
            slices=[cohort.Slice(partition=one, lo=0, hi=0, name="") for one in member.slice],
            cohort=5,
            session=member.session,
            incarnation=self.incarnation,
            lease_ms=LEASE_MS,
            home=self.node,
            settings=cohort.CohortSettings(),
        )
        return self._reply(header, joined)

    def _register(self, asked: cohort.Join, replaced: list[bytes], partitions: list[int]) -> None:
        self._sessions += 1
        self.members[asked.member] = NodeMember(self._sessions, asked.instance, partitions, replaced)

    def _member_of(self, way: bytes) -> NodeMember | None:
        session = self.attached.get(way)
        return next((one for one in self.members.values() if one.session == session), None)

    def _attach_or_beat(self, way: bytes, header: wire.RequestHeader, body: bytes) -> list[bytes]:
        if header.opcode == Op.ATTACH and any(
            one.session == header.producer_id for one in self.members.values()
        ):
            self.attached[way] = header.producer_id
        member = self._member_of(way)
        if member is None:
            return self._refuse(header, Code.FENCED_MEMBER)
        lost = b""
        if header.opcode == Op.MEMBER_BEAT:
            for partition, hold in HELD.iter_unpack(body):
                gate = self.gates.setdefault(partition, NodeGate())
                if gate.hold != hold or partition not in member.slice:
                    lost += PARTITION.pack(partition)
        return self._answer(header, Status.OK, lost, sequence=self.plan_generation, send=LEASE_MS)

    def _acknowledge(self, way: bytes, header: wire.RequestHeader, body: bytes) -> list[bytes]:
        member = self._member_of(way)
        if member is None:
            return self._refuse(header, Code.FENCED_MEMBER)
        refused = b""
        for partition, hold, through, epoch, kind, _ in SETTLEMENT.iter_unpack(body):
            gate = self.gates.setdefault(partition, NodeGate())
            if (gate.session, gate.hold) != (member.session, hold) or gate.is_released:
                refused += NOT_TAKEN.pack(partition, gate.hold, Code.NOT_ASSIGNED, 0, 0)
                continue
            if through > gate.settled:
                gate.settled, gate.epoch = through, epoch
            gate.is_released = kind == 1
        return self._answer(header, Status.OK, refused)

    def _member_fetch(
        self, way: bytes, header: wire.RequestHeader, *, is_over: bool = False
    ) -> list[bytes] | None:
        member = self._member_of(way)
        if member is None:
            return self._refuse(header, Code.FENCED_MEMBER)
        gate = self.gates.setdefault(header.partition, NodeGate())
        refused = {"sequence": gate.hold, "send": self.plan_generation}
        if header.partition not in member.slice:
            return self._refuse(header, Code.NOT_ASSIGNED, "not yours", **refused)
        if header.flags & wire.RequestFlags.REOPEN:
            is_alive = any(one.session == gate.session for one in self.members.values())
            if is_alive and not gate.is_released and gate.session != member.session:
                flags = int(wire.AnswerFlags.BLOCKED)
                return self._answer(header, Status.OK, flags=flags) if is_over else None
            self._holds += 1
            gate.session, gate.hold, gate.is_released = member.session, self._holds, False
            refused["sequence"] = gate.hold
        elif (gate.session, gate.hold) != (member.session, header.producer_epoch) or gate.is_released:
            return self._refuse(header, Code.NOT_ASSIGNED, "not yours", **refused)
        return self._rows(header, gate, is_over=is_over)

    def _rows(self, header: wire.RequestHeader, gate: NodeGate, *, is_over: bool) -> list[bytes] | None:
        topic = next(one for one in self.topics.values() if one.topic == header.topic)
        log = topic.logs[header.partition]
        start = gate.settled if header.sequence == STANDS else max(header.sequence, gate.settled)
        if start < log.start:
            return self._refuse(header, Code.TRUNCATED, first_offset=log.start, sequence=gate.hold)
        if start == log.end:
            if not is_over and not header.flags & wire.RequestFlags.REOPEN:
                return None
            fields = {"first_offset": start, "end_offset": log.end, "owner_epoch": gate.epoch}
            return self._answer(header, Status.OK, b"", sequence=gate.hold, **fields)
        head, body = self._fetch(log, header._replace(sequence=start))
        plain = wire.AnswerHeader._make(wire.ANSWER_STRUCT.unpack(head))
        names = ("first_offset", "end_offset", "rows", "owner_epoch")
        fields = {name: getattr(plain, name) for name in names}
        return self._answer(header, Status.OK, body, sequence=gate.hold, send=start, **fields)
