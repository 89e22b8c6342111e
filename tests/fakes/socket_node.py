"""A node in Python behind a real ROUTER socket: the protocol of docs/protocol.md, with faults on demand.

It keeps what it stores in lists, so a test can look at every stored batch. Not fast, not durable, not the
real thing: tests/system drives that. What only this one can do is answer wrongly at a chosen moment.
"""

from __future__ import annotations

import itertools
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Self

import pyarrow as pa
import zmq

from ringfence.arrow.decode import has_dictionary, read_body
from ringfence.native import messages, wire
from ringfence.native._node import crc32c
from ringfence.native.frame import open_request, pack_answer

CLUSTER, HISTORY, STORE = b"c" * 16, b"h" * 16, b"s" * 16
Op, Status, Code = wire.Opcode, wire.Status, wire.Code


@dataclass(frozen=True)
class Drop:
    """The request is served, or not, and no answer is sent."""

    served: bool


@dataclass(frozen=True)
class Refuse:
    code: wire.Code
    retry_after_ms: int = 0


@dataclass(frozen=True)
class Redirect:
    reason: wire.RedirectReason


Fault = Drop | Refuse | Redirect | None
Hook = Callable[[wire.RequestHeader], Fault]


@dataclass
class Log:
    """One partition."""

    partition: int
    lo: int
    hi: int
    epoch: int = 1
    start: int = 0
    end: int = 0
    records: list[bytes] = field(default_factory=list)
    stored: list[wire.RequestHeader] = field(default_factory=list)
    resumes: dict[int, messages.ResumePoint] = field(default_factory=dict)
    producers: dict[int, tuple[int, int, dict[int, tuple[int, int, int]]]] = field(default_factory=dict)


@dataclass
class Topic:
    topic: int
    name: str
    key: list[str]
    schemas: list[bytes]
    logs: dict[int, Log]
    version: int = 0


class FakeNode:
    """`hook` sees every request after its header is checked; `log` has (opcode, header) of all requests."""

    def __init__(
        self,
        *,
        node: int = 1,
        hook: Hook | None = None,
        credit_bytes: int = 1 << 25,
        address: str | None = None,
        message_bytes_max: int = wire.MESSAGE_BYTES_MAX,
    ) -> None:
        self.node, self.hook, self.credit_bytes = node, hook, credit_bytes
        self.message_bytes_max = message_bytes_max
        self.history = HISTORY
        self.topics: dict[str, Topic] = {}
        self.owners: dict[int, int] = {}  # partition -> node, where it is not this one
        self.addresses: dict[int, list[str]] = {}
        self.loads: dict[int, int] = {}
        self.generation = 10
        self.seen: list[wire.RequestHeader] = []
        self.ways: list[bytes] = []  # of each of them the connection that it came over
        self._ids = itertools.count(100)
        self._epochs: dict[str, tuple[int, int]] = {}  # producer name -> id, epoch
        self.forgotten_names: set[str | None] = set()
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.ROUTER)
        self._socket.linger = 0
        if address is None:
            self.address = f"tcp://127.0.0.1:{self._socket.bind_to_random_port('tcp://127.0.0.1')}"
        else:
            self._socket.bind(address)
            self.address = address
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(10)
        self._socket.close(0)
        self._context.term()

    def sent(self, opcode: wire.Opcode) -> list[wire.RequestHeader]:
        return [header for header in list(self.seen) if header.opcode == opcode]

    def topic_of(self, name: str) -> Topic:
        return self.topics[name if name.count("/") == 2 else f"public/default/{name}"]

    def stored(self, name: str) -> list[wire.RequestHeader]:
        return [header for log in self.topic_of(name).logs.values() for header in log.stored]

    # ---- loop
    # -----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stop.is_set():
            self._send_unasked()
            if not self._socket.poll(20):
                continue
            identity, head, *rest = self._socket.recv_multipart()
            header, body = open_request(head), rest[0] if rest else b""
            assert (header.body_bytes, header.body_crc) == (len(body), crc32c(body) if body else 0)
            self.ways.append(identity)
            self.seen.append(header)
            fault = self.hook(header) if self.hook is not None else None
            if fault == Drop(served=False):
                continue
            answer = (
                self._fault(header, fault)
                if isinstance(fault, Refuse | Redirect)
                else self._serve(header, body)
            )
            if answer is not None and not isinstance(fault, Drop):
                self._socket.send_multipart([identity, *answer])

    def _send_unasked(self) -> None:
        """Send what no request asks for; this node pushes nothing."""

    def _answer(
        self, header: wire.RequestHeader, status: int, body: bytes = b"", **fields: int
    ) -> list[bytes]:
        out = bytearray(wire.HEADER_BYTES)
        fields = {
            "credit_bytes": self.credit_bytes,
            "generation": self.generation,
            "topic": header.topic,
            "partition": header.partition,
            **fields,
        }
        pack_answer(
            out,
            0,
            header.opcode,
            status,
            header.request_id,
            body_bytes=len(body),
            body_crc=crc32c(body) if body else 0,
            **fields,
        )
        return [bytes(out), body] if body else [bytes(out)]

    def _reply(
        self, header: wire.RequestHeader, message: messages.Message, status: int = Status.OK, **fields: int
    ) -> list[bytes]:
        return self._answer(
            header, status, messages.encode(message), flags=wire.AnswerFlags.CONTROL, **fields
        )

    def _refuse(
        self, header: wire.RequestHeader, code: wire.Code, text: str = "no", **fields: int
    ) -> list[bytes]:
        return self._reply(header, messages.Refused(message=text), Status.REFUSED, code=code, **fields)

    def _fault(self, header: wire.RequestHeader, fault: Refuse | Redirect) -> list[bytes]:
        if isinstance(fault, Refuse):
            return self._refuse(header, fault.code, "a planted refusal", retry_after_ms=fault.retry_after_ms)
        body = messages.Redirected(owner=self.node, addresses=[self.address])
        return self._reply(header, body, Status.REDIRECT, code=fault.reason)

    def _serve(self, header: wire.RequestHeader, body: bytes) -> list[bytes] | None:
        match header.opcode:
            case Op.HELLO:
                ready = messages.Ready(
                    cluster=CLUSTER,
                    history=self.history,
                    node=self.node,
                    store=STORE,
                    version_min=1,
                    version_max=1,
                    program="fake",
                    message_bytes_max=self.message_bytes_max,
                    window=wire.DEDUPE_WINDOW,
                    heartbeat_ms=10_000,
                )
                return self._reply(header, ready, Status.READY)
            case Op.TABLE_ACK:
                return None
            case Op.TOPIC_CREATE | Op.TOPIC_DESCRIBE | Op.TOPIC_LIST | Op.PRODUCER_OPEN | Op.TABLE:
                return self._control(header, body)
        topic = next((found for found in self.topics.values() if found.topic == header.topic), None)
        if topic is None:
            return self._refuse(header, Code.UNKNOWN_TOPIC)
        log = topic.logs[header.partition]
        if header.opcode == Op.PUBLISH:
            return self._publish(topic, log, header, body)
        if header.opcode == Op.END_OFFSETS:
            return self._answer(
                header,
                Status.OK,
                first_offset=log.start,
                end_offset=log.end,
                send=log.epoch if log.end else 0,
            )
        assert header.opcode == Op.FETCH, header
        return self._fetch(log, header)

    # ---- control
    # --------------------------------------------------------------------------------------------

    def _control(self, header: wire.RequestHeader, body: bytes) -> list[bytes]:
        if header.opcode == Op.TABLE:
            topic = next((found for found in self.topics.values() if found.topic == header.topic), None)
            return (
                self._refuse(header, Code.UNKNOWN_TOPIC)
                if topic is None
                else self._reply(header, self.table(topic), topic=topic.topic)
            )
        if header.opcode == Op.TOPIC_LIST:
            return self._reply(
                header, messages.Topics(topics=[self._info(topic) for topic in self.topics.values()])
            )
        if header.opcode == Op.PRODUCER_OPEN:
            return self._open(header, messages.decode(messages.ProducerOpen, body))
        if header.opcode == Op.TOPIC_CREATE:
            return self._create(header, messages.decode(messages.TopicCreate, body))
        name = messages.decode(messages.TopicName, body).name
        try:
            return self._reply(header, self._info(self.topic_of(name)))
        except KeyError:
            return self._refuse(header, Code.UNKNOWN_TOPIC, f"no topic {name}")

    def _create(self, header: wire.RequestHeader, made: messages.TopicCreate) -> list[bytes]:
        name = f"public/default/{made.name}"
        if name in self.topics:
            if not made.exist_ok:
                return self._refuse(header, Code.ALREADY_EXISTS, f"{name} exists")
            return self._reply(header, self._info(self.topics[name]))
        logs, lo = {}, 0
        for index in range(made.partitions):
            hi = (index + 1) * wire.SLOT_COUNT // made.partitions - 1
            partition = next(self._ids)
            logs[partition] = Log(partition, lo, hi)
            lo = hi + 1
        self.topics[name] = Topic(next(self._ids), name, made.key, [made.schema], logs)
        info = self._info(self.topics[name])
        return self._reply(
            header,
            messages.TopicInfo(**{**{f: getattr(info, f) for f in info.__struct_fields__}, "created": True}),
        )

    def _open(self, header: wire.RequestHeader, asked: messages.ProducerOpen) -> list[bytes]:
        if asked.name in self.forgotten_names and not asked.accept_fresh_start:
            parts = sorted(self.topic_of(asked.topic).logs)
            told = messages.Refused(
                message="forgotten", details={"producer": asked.name, "partitions": parts}
            )
            return self._reply(header, told, Status.REFUSED, code=wire.Code.RESUME_UNKNOWN)
        epoch = next(self._ids)
        producer, _ = self._epochs.get(asked.name or "", (next(self._ids), 0))
        resume = []
        if asked.name is not None:
            self._epochs[asked.name] = (producer, epoch)
            for log in self.topic_of(asked.topic).logs.values():
                before = log.producers.get(producer)
                if before is not None and before[1] >= 0:
                    sequence = before[1]
                    first, rows, _ = before[2][sequence]
                    last = next(h for h in reversed(log.stored) if h.producer_id == producer)
                    log.resumes[producer] = messages.ResumePoint(
                        partition=log.partition,
                        sequence=sequence,
                        send=last.send,
                        note=None,
                        first_offset=first,
                        rows=rows,
                    )
                if producer in log.resumes:  # an epoch that stored nothing leaves the one before it
                    resume.append(log.resumes[producer])
                log.producers[producer] = (epoch, -1, {})
        return self._reply(
            header, messages.ProducerOpened(producer_id=producer, producer_epoch=epoch, resume=resume)
        )

    def table(self, topic: Topic) -> messages.Table:
        nodes = [
            messages.NodeEntry(node=node, addresses=where)
            for node, where in {self.node: [self.address], **self.addresses}.items()
        ]
        partitions = [
            messages.PartitionEntry(
                partition=log.partition,
                lo=log.lo,
                hi=log.hi,
                state="ACTIVE",
                owner=self.owners.get(log.partition, self.node),
                epoch=log.epoch,
            )
            for log in topic.logs.values()
        ]
        return messages.Table(
            topic=topic.topic,
            name=topic.name,
            history=self.history,
            generation=self.generation,
            version=topic.version,
            key=topic.key,
            schemas=topic.schemas,
            replication=1,
            partitions=partitions,
            nodes=nodes,
            loads={number: load for number, load in self.loads.items() if number in topic.logs},
        )

    def _info(self, topic: Topic) -> messages.TopicInfo:
        partitions = [
            messages.PartitionStats(
                partition=log.partition,
                name=f"{log.lo:04x}-{log.hi:04x}-{log.partition}",
                lo=log.lo,
                hi=log.hi,
                state="ACTIVE",
                owner=self.node,
                epoch=log.epoch,
                start_offset=log.start,
                end_offset=log.end,
                bytes=sum(map(len, log.records)),
            )
            for log in topic.logs.values()
        ]
        return messages.TopicInfo(
            topic=topic.topic,
            name=topic.name,
            version=topic.version,
            key=topic.key,
            schema_messages=topic.schemas,
            replication=1,
            retention_bytes=None,
            retention_ms=None,
            properties={},
            partitions=partitions,
        )

    # ---- rows
    # -----------------------------------------------------------------------------------------------

    def _publish(self, topic: Topic, log: Log, header: wire.RequestHeader, body: bytes) -> list[bytes]:
        where: dict[str, Any] = {
            "layout_version": topic.version,
            "owner_epoch": log.epoch,
            "sequence": header.sequence,
        }
        reason = (
            wire.RedirectReason.STALE_VERSION
            if header.layout_version != topic.version
            else wire.RedirectReason.STALE_EPOCH
            if header.owner_epoch != log.epoch
            else wire.RedirectReason.NOT_OWNER
            if self.owners.get(log.partition, self.node) != self.node
            else None
        )
        if reason is not None:
            owner = self.owners.get(log.partition, self.node)
            redirected = messages.Redirected(owner=owner, addresses=self.addresses.get(owner, [self.address]))
            return self._reply(
                header,
                redirected,
                Status.REDIRECT,
                code=reason,
                layout_version=topic.version,
                owner_epoch=log.epoch,
            )
        epoch, last, answers = log.producers.get(header.producer_id, (header.producer_epoch, -1, {}))
        if header.producer_epoch < epoch:
            return self._refuse(header, Code.FENCED_PRODUCER)
        if header.producer_epoch > epoch:
            epoch, last, answers = header.producer_epoch, -1, {}
        if header.sequence <= last:
            if header.sequence not in answers:
                return self._refuse(header, Code.TOO_OLD)
            first, rows, crc = answers[header.sequence]
            if crc != header.body_crc:
                return self._refuse(header, Code.CONFLICT)
            return self._answer(
                header,
                Status.OK,
                first_offset=first,
                rows=rows,
                flags=wire.AnswerFlags.REPEATED,
                end_offset=log.end,
                **where,
            )
        if header.sequence > last + 1:
            return self._refuse(header, Code.SEQUENCE_GAP, **{**where, "sequence": last + 1})
        message = pa.py_buffer(topic.schemas[header.schema_id])
        schema = pa.ipc.read_schema(message)
        batch = read_body(message, schema, body[header.extension_bytes :], is_stream=has_dictionary(schema))
        assert batch.num_rows == header.rows, (batch.num_rows, header)
        first = log.end
        log.records.append(self._record(log, header, body))
        log.stored.append(header)
        log.end += header.rows
        answers = {
            **dict(list(answers.items())[-63:]),
            header.sequence: (first, header.rows, header.body_crc),
        }
        log.producers[header.producer_id] = (epoch, header.sequence, answers)
        return self._answer(
            header, Status.OK, first_offset=first, rows=header.rows, end_offset=log.end, **where
        )

    def _record(self, log: Log, header: wire.RequestHeader, body: bytes) -> bytes:
        span = -(-(wire.RECORD_HEADER_BYTES + len(body)) // 64) * 64
        values: dict[str, Any] = {
            "magic": wire.RECORD_MAGIC,
            "kind": wire.RecordKind.ROWS,
            "span_bytes": span,
            "rows": header.rows,
            "topic": header.topic,
            "partition": header.partition,
            "record_number": len(log.records),
            "first_offset": log.end,
            "owner_epoch": log.epoch,
            "producer_id": header.producer_id,
            "producer_epoch": header.producer_epoch,
            "sequence": header.sequence,
            "send": header.send,
            "schema_id": header.schema_id,
            "extension_bytes": header.extension_bytes,
            "body_bytes": len(body),
            "body_crc": header.body_crc,
            "time_ms": 1_700_000_000_000 + len(log.records),
        }
        head = wire.RECORD_STRUCT.pack(*wire.RecordHeader(**values))
        head = head[:4] + struct.pack("<I", crc32c(head[8:])) + head[8:]
        return head + body + bytes(span - len(head) - len(body))

    def _fetch(self, log: Log, header: wire.RequestHeader) -> list[bytes]:
        wanted = header.sequence
        if wanted < log.start:
            return self._refuse(header, Code.TRUNCATED, first_offset=log.start)
        found: list[bytes] = []
        size = first = rows = 0
        for record in log.records:
            made = wire.RecordHeader._make(wire.RECORD_STRUCT.unpack_from(record))
            if made.first_offset + made.rows <= wanted or (
                found and size + len(record) > (header.send or 1 << 20)
            ):
                continue
            if not found:
                first = made.first_offset
            found.append(record)
            size += len(record)
            rows = made.first_offset + made.rows - first
        return self._answer(
            header,
            Status.OK,
            b"".join(found),
            first_offset=first,
            end_offset=log.end,
            rows=rows,
            owner_epoch=log.epoch,
        )
