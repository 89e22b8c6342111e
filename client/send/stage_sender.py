"""Send the batches of one attempt to the partitions of one topic: a `Sender` whose batches are staged."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from ringfence.common.retry import deadline_ms
from ringfence.common.send_effects import StageToken
from ringfence.native import wire
from ringfence.network.connection import Pending
from ringfence.send.failures import unstaged_error
from ringfence.send.sender import Sender
from ringfence.send.wait_reasons import looked_up

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ringfence.arrow.encode import Body
    from ringfence.arrow.partition_choice import PartitionChoice
    from ringfence.cluster.table_cache import TableCache
    from ringfence.common.codec import Answer
    from ringfence.common.routing import Layout
    from ringfence.common.scope_values import Parts
    from ringfence.common.send_effects import Transmit
    from ringfence.native.errors import NotFoundError, RingfenceError
    from ringfence.network.connection import Connection
    from ringfence.network.io_thread import IoThread
    from ringfence.send.send_future import SendFuture
    from ringfence.send.sender import Sink
    from ringfence.send.wait_reasons import PendingSends

# Length of one try at an owner. Then a newer table is looked for: another owner may have the partition.
TRY_S = 5.0
STAGED = frozenset({wire.Status.OK, wire.Status.STAGED, wire.Status.ALREADY_COMMITTED})


class StagedSoFar:
    """What the batches of an attempt have become, in all topics. Thread-safe.

    Attributes:
        parts: rows by topic and partition that are on disk.
        already: the epoch was committed before, so that nothing is stored.
        error: the first refusal; nothing of the attempt can be committed then.
    """

    def __init__(self) -> None:
        self.changed = threading.Condition(threading.Lock())
        self.parts: Parts = {}
        self.already = False
        self.error: RingfenceError | None = None
        self._pending = 0

    @property
    def pending(self) -> int:
        """Number of batches without an outcome."""
        return self._pending

    def set_error(self, error: RingfenceError) -> None:
        with self.changed:
            self.error = self.error or error
            self.changed.notify_all()

    def add(self, count: int) -> None:
        """More batches are pending; negative: fewer."""
        with self.changed:
            self._pending += count
            self.changed.notify_all()

    def took(self, place: tuple[int, int], rows: int) -> None:
        """A batch is on disk."""
        with self.changed:
            self._pending -= 1
            self.parts[place] = self.parts.get(place, 0) + rows
            self.changed.notify_all()

    def failed(self, error: RingfenceError) -> None:
        """A batch is not on disk, or that is not known."""
        with self.changed:
            self._pending -= 1
            self.error = self.error or error
            self.changed.notify_all()


class StagedTopic:
    """The sink of the batches of one topic; it never ends."""

    def __init__(self, topic: int, name: str, so_far: StagedSoFar) -> None:
        self._topic, self._name, self._so_far = topic, name, so_far

    def expect(self, parts: int, *, last: bool) -> bool:
        """Does nothing: `Stager` has counted the batches, and there may always be more."""
        del parts, last
        return False

    def replaced(self, old: Sequence[Body], new: Sequence[Body]) -> None:
        """A layout change made other batches of pending ones."""
        self._so_far.add(len(new) - len(old))

    def take_settled(self) -> list[SendFuture]:
        return []

    def includes(self, future: SendFuture) -> bool:
        del future
        return False

    def stored(self, body: Body, first_offset: int) -> bool:
        del first_offset
        self._so_far.took((self._topic, body.partition), body.rows)
        return False

    def failed(self, body: Body | None, error: RingfenceError) -> bool:
        del body
        self._so_far.failed(unstaged_error(self._name, error))
        return False


class PendingStage(Pending):
    """One try of one batch."""

    __slots__ = ("_attempt", "_key", "_sender")

    def __init__(self, sender: Sender, key: int, attempt: int, give_up_at: float) -> None:
        super().__init__(give_up_at)
        self._sender, self._key, self._attempt = sender, key, attempt

    def answered(self, answer: Answer) -> None:
        self._sender.answered(self._key, self._attempt, answer)

    def lost(self) -> None:
        self._sender.lost(self._key, self._attempt)

    def failed(self, error: Exception) -> None:
        self._sender.failed(error)


class StageSender(Sender):
    """The batches of one topic under one token."""

    def __init__(
        self,
        io_thread: IoThread,
        tables: TableCache,
        layout: Layout,
        token: bytes,
        so_far: StagedSoFar,
        *,
        on_body_ended: Callable[[int], None],
        choice: PartitionChoice | None,
    ) -> None:
        super().__init__(
            io_thread,
            tables,
            layout,
            StageToken(token),
            name=None,
            on_body_ended=on_body_ended,
            on_settled=_nothing_settles,
            choice=choice,
        )
        self._so_far = so_far
        self.sink = StagedTopic(layout.topic, layout.name, so_far)
        self.try_s_max = TRY_S

    def _put(self, connection: Connection, order: Transmit, left: float, now: float) -> bool:
        body, _, _ = self._parts[order.key]
        entry = self.layout.partitions.get(order.partition)
        return connection.send(
            wire.Opcode.STAGE,
            body.data,
            PendingStage(self, order.key, order.attempt, left + self.grace_s),
            crc=body.crc,
            topic=self.layout.topic,
            partition=order.partition,
            layout_version=self.layout.version,
            owner_epoch=0 if entry is None else entry.epoch,
            sequence=order.sequence,
            rows=body.rows,
            schema_id=body.schema_id,
            deadline_ms=deadline_ms(left, now),
            extension_bytes=body.extension_bytes,
        )

    def answered(self, key: int, attempt: int, answer: Answer) -> None:
        status = answer.header.status
        if status not in STAGED:
            super().answered(key, attempt, answer)
            return
        if status == wire.Status.ALREADY_COMMITTED:
            self._so_far.already = True
        self.stored(key, attempt, 0)

    def _topic_gone(self, error: NotFoundError) -> NotFoundError:
        return error


class StageSenders:
    """The senders of one attempt, by topic. They end with `end`, also if the attempt is dropped."""

    def __init__(self, io_thread: IoThread, tables: TableCache, so_far: StagedSoFar) -> None:
        self._io_thread, self._tables, self._so_far = io_thread, tables, so_far
        self.senders: dict[int, StageSender] = {}

    def begin(self, sender: StageSender, choice: PartitionChoice | None) -> None:
        """Let a sender send; waits until it is known which owners of a topic without key are available."""
        topic = sender.layout.topic
        self.senders[topic] = sender

        def register() -> None:
            if choice is not None:
                choice.begin(self._io_thread.now)
            self._io_thread.members.append(sender)
            self._tables.listen(topic, sender.table)

        self._io_thread.call(register)
        if choice is not None and not self._io_thread.inside:
            choice.wait()

    def end(self, error: RingfenceError) -> None:
        """End what is pending, on the I/O thread."""
        for topic, sender in self.senders.items():
            if sender in self._io_thread.members:
                self._io_thread.members.remove(sender)
            self._tables.forget(topic, sender.table)
            sender.abandon(error)

    def waits(self) -> PendingSends:
        """The reasons why batches are pending, and the first topic of them."""
        senders = list(self.senders.values())
        name = next((one.layout.name for one in senders if one.busy), senders[0].layout.name)
        return name, looked_up(self._io_thread, lambda: [one for each in senders for one in each.waits(None)])


def _nothing_settles(sink: Sink) -> None:
    raise AssertionError(f"{sink} ends")
