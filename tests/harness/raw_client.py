"""A bare protocol client for tests: it can say what the library never would."""

from __future__ import annotations

import itertools
import struct
from dataclasses import dataclass
from typing import Any, Self

import pyarrow as pa
import zmq

from ringfence.native import messages, wire
from ringfence.native._node import crc32c

ANSWER_TIMEOUT_MS = 15_000


def message_of(rows: pa.RecordBatch, codec: str | None) -> bytes:
    """The batch's own messages as pyarrow writes them, dictionaries first: what a PUBLISH carries."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=codec)
    with pa.ipc.new_stream(sink, rows.schema, options=options) as writer:
        writer.write_batch(rows)
    stream: bytes = sink.getvalue().to_pybytes()
    schema = len(pa.ipc.read_message(pa.py_buffer(stream)).serialize())
    return stream[schema:-8]


@dataclass(frozen=True)
class Answer:
    header: wire.AnswerHeader
    body: bytes

    @property
    def status(self) -> wire.Status:
        return wire.Status(self.header.status)

    @property
    def code(self) -> wire.Code | None:
        return wire.Code(self.header.code) if self.status == wire.Status.REFUSED else None

    @property
    def reason(self) -> wire.RedirectReason | None:
        return wire.RedirectReason(self.header.code) if self.status == wire.Status.REDIRECT else None

    def read(self, kind: type[messages.AnyMessage]) -> messages.AnyMessage:
        return messages.decode(kind, self.body)


class RawClient:
    """One DEALER socket; fields of headers are the test's, right or wrong."""

    def __init__(self, address: str, context: zmq.Context[Any] | None = None) -> None:
        self.context = context or zmq.Context.instance()
        self.socket = self.context.socket(zmq.DEALER)
        self.socket.linger = 0
        self.socket.connect(address)
        self._ids = itertools.count(1)

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def frames(self, opcode: int, body: bytes = b"", **fields: int) -> list[bytes]:
        """Header and body with right CRCs and lengths, unless `fields` says otherwise."""
        base = {
            "magic": wire.MAGIC,
            "version": wire.PROTOCOL_VERSION,
            "opcode": opcode,
            "request_id": next(self._ids),
            "body_bytes": len(body),
            "body_crc": crc32c(body) if body else 0,
            "deadline_ms": 5_000,
        }
        header = wire.REQUEST_STRUCT.pack(*wire.RequestHeader(**{**base, "header_crc": 0, **fields}))
        if "header_crc" not in fields:
            header = header[:-4] + struct.pack("<I", crc32c(header[:-4]))
        return [header, body] if body else [header]

    def send(self, opcode: int, body: bytes = b"", **fields: int) -> None:
        self.socket.send_multipart(self.frames(opcode, body, **fields))

    def receive(self, timeout_ms: int = ANSWER_TIMEOUT_MS) -> Answer | None:
        if not self.socket.poll(timeout_ms):
            return None
        parts = self.socket.recv_multipart()
        header = wire.AnswerHeader._make(wire.ANSWER_STRUCT.unpack(parts[0]))
        body = parts[1] if len(parts) > 1 else b""
        assert crc32c(parts[0][:-4]) == header.header_crc
        assert (len(body), crc32c(body) if body else 0) == (header.body_bytes, header.body_crc)
        return Answer(header, body)

    def ask(
        self, opcode: int, body: bytes = b"", timeout_ms: int = ANSWER_TIMEOUT_MS, **fields: int
    ) -> Answer:
        self.send(opcode, body, **fields)
        answer = self.receive(timeout_ms)
        # A pushed table answers nothing.
        while answer is not None and answer.header.opcode == wire.Opcode.TABLE_PUSH != opcode:
            answer = self.receive(timeout_ms)
        assert answer is not None, f"no answer to {wire.Opcode(opcode).name} within {timeout_ms} ms"
        return answer

    def control(self, opcode: int, message: messages.Message) -> Answer:
        return self.ask(opcode, messages.encode(message), flags=wire.RequestFlags.CONTROL, deadline_ms=30_000)

    def hello(self) -> Answer:
        return self.control(wire.Opcode.HELLO, messages.Hello(version_min=1, version_max=1, client="raw"))


class RawTopic:
    """A topic with one producer, for publishing by hand."""

    def __init__(
        self, client: RawClient, name: str, schema: pa.Schema, key: list[str], partitions: int = 1
    ) -> None:
        self.client = client
        created = client.control(
            wire.Opcode.TOPIC_CREATE,
            messages.TopicCreate(
                name=name, schema=schema.serialize().to_pybytes(), key=key, partitions=partitions
            ),
        )
        assert created.status == wire.Status.OK, created
        self._open(created.read(messages.TopicInfo).topic, name)

    @classmethod
    def existing(cls, client: RawClient, topic: int, name: str) -> RawTopic:
        made = cls.__new__(cls)
        made.client = client
        made._open(topic, name)
        return made

    def _open(self, topic: int, name: str) -> None:
        self.topic = topic
        self.stored = 0  # batches, for tests that count them here
        self.refresh()
        opened = self.client.control(wire.Opcode.PRODUCER_OPEN, messages.ProducerOpen(topic=name)).read(
            messages.ProducerOpened
        )
        self.producer_id, self.producer_epoch = opened.producer_id, opened.producer_epoch

    def refresh(self) -> messages.Table:
        self.table = self.client.ask(wire.Opcode.TABLE, topic=self.topic).read(messages.Table)
        return self.table

    def place(self, index: int = 0) -> dict[str, Any]:
        entry = self.table.partitions[index]
        return {
            "topic": self.topic,
            "partition": entry.partition,
            "layout_version": self.table.version,
            "owner_epoch": entry.epoch,
        }

    def fields(self, rows: int, sequence: int, index: int = 0, **changed: int) -> dict[str, int]:
        return {
            **self.place(index),
            "producer_id": self.producer_id,
            "producer_epoch": self.producer_epoch,
            "sequence": sequence,
            "send": sequence,
            "rows": rows,
            **changed,
        }

    def publish(
        self,
        batch: pa.RecordBatch | bytes,
        sequence: int,
        index: int = 0,
        rows: int | None = None,
        **changed: int,
    ) -> Answer:
        body = batch if isinstance(batch, bytes) else batch.serialize().to_pybytes()
        count = rows if rows is not None else (1 if isinstance(batch, bytes) else batch.num_rows)
        return self.client.ask(wire.Opcode.PUBLISH, body, **self.fields(count, sequence, index, **changed))

    def ends(self, index: int = 0) -> tuple[int, int]:
        place = self.place(index)
        answer = self.client.ask(wire.Opcode.END_OFFSETS, topic=place["topic"], partition=place["partition"])
        assert answer.status == wire.Status.OK, answer
        return answer.header.first_offset, answer.header.end_offset
