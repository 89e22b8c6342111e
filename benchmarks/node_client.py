"""The few control requests that a native sender needs answered: a topic, its table, producer ids."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import zmq

from ringfence.native import frame, messages, wire
from ringfence.native._node import crc32c

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import pyarrow as pa

ANSWER_TIMEOUT_MS = 60_000  # opening 10,000 partitions takes as many epoch records


# Of one topic; the node refuses more.
TOPIC_PARTITIONS_MAX = 4096


class Lane(NamedTuple):
    """One producer in one partition, as a line of the load generator's lane file."""

    topic: int
    layout_version: int
    partition: int
    owner_epoch: int
    producer_id: int
    producer_epoch: int


def save_lanes(lanes: Sequence[Lane], path: Path) -> None:
    """The file for `loadgen --lanes`."""
    path.write_text("".join(f"{' '.join(map(str, lane))}\n" for lane in lanes))


class NodeClient:
    """One DEALER; asks one thing at a time."""

    def __init__(self, address: str) -> None:
        self._context: zmq.Context[Any] = zmq.Context()
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.linger = 0
        self._socket.connect(address)
        self._ids = itertools.count(1)
        hello = messages.Hello(version_min=1, version_max=1, client="ringfence-bench")
        self._ask(wire.Opcode.HELLO, hello, messages.Ready)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()
        self._context.term()

    def _ask(
        self,
        opcode: wire.Opcode,
        request: messages.Message | None,
        kind: type[messages.AnyMessage],
        topic: int = 0,
    ) -> messages.AnyMessage:
        body = messages.encode(request) if request is not None else b""
        header = bytearray(wire.HEADER_BYTES)
        number = next(self._ids)
        frame.pack_request(
            header,
            0,
            opcode,
            number,
            topic=topic,
            flags=wire.RequestFlags.CONTROL if body else 0,
            deadline_ms=ANSWER_TIMEOUT_MS,
            body_bytes=len(body),
            body_crc=crc32c(body) if body else 0,
        )
        self._socket.send_multipart([header, body] if body else [header])
        while True:
            if not self._socket.poll(ANSWER_TIMEOUT_MS):
                raise TimeoutError(f"no answer to {opcode.name} within {ANSWER_TIMEOUT_MS} ms")
            answer, *rest = self._socket.recv_multipart()
            told = frame.open_answer(answer)
            if told.request_id == number:
                break
        if told.status not in {wire.Status.OK, wire.Status.READY}:
            raise RuntimeError(f"{opcode.name}: status {told.status} code {told.code}: {rest!r}")
        return messages.decode(kind, rest[0])

    def create_topic(
        self,
        name: str,
        schema: pa.Schema,
        *,
        key: Sequence[str],
        partitions: int,
        retention_bytes: int | None,
    ) -> None:
        create = messages.TopicCreate(
            name=name,
            schema=schema.serialize().to_pybytes(),
            key=list(key),
            partitions=partitions,
            retention_bytes=retention_bytes,
        )
        self._ask(wire.Opcode.TOPIC_CREATE, create, messages.TopicInfo)

    def create_topics(
        self,
        name: str,
        schema: pa.Schema,
        *,
        key: Sequence[str],
        partitions: int,
        retention_bytes: int | None,
    ) -> list[str]:
        """As many topics as so many partitions need. Returns their names: `name`, `name-1`, ..."""
        names = []
        for number, first in enumerate(range(0, partitions, TOPIC_PARTITIONS_MAX)):
            names.append(f"{name}-{number}" if number else name)
            count = min(TOPIC_PARTITIONS_MAX, partitions - first)
            self.create_topic(names[-1], schema, key=key, partitions=count, retention_bytes=retention_bytes)
        return names

    def lanes(self, names: Sequence[str], producers: int) -> list[Lane]:
        """New producer ids, `producers` for every partition. Lanes take the partitions in turn."""
        opened = [self._lanes(name, producers) for name in names]
        return [lane for number in range(producers) for topic in opened for lane in topic[number]]

    def _lanes(self, name: str, producers: int) -> list[list[Lane]]:
        info = self._ask(wire.Opcode.TOPIC_DESCRIBE, messages.TopicName(name=name), messages.TopicInfo)
        table = self._ask(wire.Opcode.TABLE, None, messages.Table, topic=info.topic)
        opened = self._ask(
            wire.Opcode.PRODUCER_OPEN,
            messages.ProducerOpen(topic=name, count=producers),
            messages.ProducerOpened,
        )
        epoch = opened.producer_epoch
        return [
            [
                Lane(info.topic, table.version, entry.partition, entry.epoch, producer, epoch)
                for entry in table.partitions
                if entry.state == "ACTIVE"
            ]
            for producer in range(opened.producer_id, opened.producer_id + producers)
        ]

    def status(self) -> messages.Status:
        return self._ask(wire.Opcode.STATUS, None, messages.Status)
