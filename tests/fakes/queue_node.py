"""A fake node with a QUEUE over sockets: rows on lease, and what members say of them."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import ringfence
from ringfence.consumer.queue_bodies import LEASED, NOT_TAKEN, TOLD, TRAILER, TRAILER_VERSION
from ringfence.consumer.queue_calls import Told, What
from ringfence.native import wire
from tests.fakes.client_topic import SCHEMA, rows
from tests.fakes.cohort_node import CohortNode
from tests.fakes.fake_queue import FakeQueue

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.fakes.socket_node import Log

Status, Code = wire.Status, wire.Code


class QueueNode(CohortNode):
    """`queues` by partition, `said` in the order of arrival."""

    def __init__(self) -> None:
        super().__init__()
        self.queues: dict[int, FakeQueue] = {}
        self.said: list[Told] = []

    def queue(self, partition: int) -> FakeQueue:
        """The state of a partition, with all rows of its log."""
        log = self._log(partition)
        queue = self.queues.setdefault(partition, FakeQueue(incarnation=self.incarnation))
        queue.publish(log.end - len(queue.epochs), log.epoch)
        return queue

    def _log(self, partition: int) -> Log:
        topic = next(iter(self.topics.values()))
        return topic.logs[partition]

    def _member_fetch(
        self, way: bytes, header: wire.RequestHeader, *, is_over: bool = False
    ) -> list[bytes] | None:
        member = self._member_of(way)
        if member is None:
            return self._refuse(header, Code.FENCED_MEMBER)
        for partition in sorted(next(iter(self.topics.values())).logs):
            queue = self.queue(partition)
            lines = queue.lease(member.session, time.monotonic(), header.rows or 65_536)
            if not lines:
                continue
            head, body = self._fetch(self._log(partition), header._replace(sequence=lines[0].first))
            plain = wire.AnswerHeader._make(wire.ANSWER_STRUCT.unpack(head))
            trailer = TRAILER.pack(TRAILER_VERSION, len(lines), 0, 0, 0)
            for line in lines:
                trailer += LEASED.pack(line.first, line.end - line.first, line.is_again, line.failures, 0)
            trailer += bytes(-len(trailer) % wire.BODY_ALIGN_BYTES)
            names = ("first_offset", "end_offset", "rows", "owner_epoch")
            fields = {name: getattr(plain, name) for name in names}
            fields |= {"partition": partition, "sequence": queue.incarnation, "send": len(trailer)}
            return self._answer(header, Status.OK, body + trailer, **fields)
        return self._answer(header, Status.OK, b"", sequence=self.incarnation) if is_over else None

    def _acknowledge(self, way: bytes, header: wire.RequestHeader, body: bytes) -> list[bytes]:
        member = self._member_of(way)
        if member is None:
            return self._refuse(header, Code.FENCED_MEMBER)
        at = header.rows * TOLD.size
        lines = []
        for first, epoch, count, what, failures, size, delay_ms, _ in TOLD.iter_unpack(body[:at]):
            told = Told(first, first + count, epoch, What(what), failures, delay_ms, body[at : at + size])
            at += size
            lines.append(told)
        self.said += lines
        not_taken = self.queue(header.partition).tell(member.session, tuple(lines), time.monotonic())
        packed = (NOT_TAKEN.pack(one.first, one.end - one.first, one.why) for one in not_taken)
        return self._answer(header, Status.OK, b"".join(packed))

    def ranges(self, what: What) -> list[tuple[int, int]]:
        """Of which rows that was said."""
        with self._turn:
            return [(one.first, one.end) for one in self.said if one.what is what]


@contextmanager
def queue_topic(count: int = 100, each: int = 10) -> Iterator[tuple[QueueNode, ringfence.Client]]:
    """A node with topic "t" of `count` rows in one partition."""
    with QueueNode() as node, ringfence.connect(node.address, timeout_s=10) as client:
        client.create_topic("t", schema=SCHEMA, key=("id",), partitions=1)
        with client.producer("t") as producer:
            for first in range(0, count, each):
                producer.send(rows(first, each))
        yield node, client
        node.hook = None


def member(client: ringfence.Client, **options: Any) -> ringfence.Consumer:
    """A member of the queue."""
    return client.consumer("t", cohort="c", mode="queue", **options)
