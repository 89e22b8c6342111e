"""Run the state machine of one producer on the I/O thread: effects become frames, outcomes end futures."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Protocol

from ringfence.arrow.body_router import BodyRouter
from ringfence.common.retry import deadline_ms
from ringfence.common.routes import routes_of
from ringfence.common.routing import is_early, moved_between
from ringfence.common.send_effects import (
    BatchRefused,
    BatchStored,
    BatchUnknown,
    Effect,
    FetchTable,
    Identity,
    JoinBatches,
    OpenEpoch,
    Piece,
    Sealed,
    SequenceOwner,
    Transmit,
)
from ringfence.native import messages, wire
from ringfence.native.errors import (
    BatchError,
    FencedError,
    NotFoundError,
    RerouteError,
    RetriableError,
    RingfenceError,
)
from ringfence.network.connection import Pending, PublishBatch
from ringfence.network.request import ANSWER_GRACE_S, Request
from ringfence.send.failures import defect_error, fenced_error, topic_gone_error
from ringfence.send.inflight import Inflight
from ringfence.send.publish_headers import PublishHeaders
from ringfence.send.reroute import Phase
from ringfence.send.wait_reasons import wait_reason

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Future

    from ringfence.arrow.encode import Body
    from ringfence.arrow.partition_choice import PartitionChoice
    from ringfence.cluster.table_cache import TableCache
    from ringfence.common.codec import Answer
    from ringfence.common.routing import Layout
    from ringfence.network.connection import Connection
    from ringfence.network.io_thread import IoThread
    from ringfence.network.peer import Peer
    from ringfence.send.send_future import SendFuture
    from ringfence.send.wait_reasons import WaitReason

TRY_S_MAX = 30.0  # how long a node parks or queues one try; the node's own default
TICK_S = 0.02  # delay with which the end of a backoff or a deadline may be noticed
AGAIN_S = 0.25  # pause before a table or an identity is requested again after an error
# Bodies that are routed again in one turn of the I/O thread: 2 ms of decoding and encoding. They are sent
# before the next ones are routed.
ROUTED_BYTES_MAX = 1 << 20
logger = logging.getLogger("ringfence")


class Sink(Protocol):
    """Receives the outcomes of the bodies of one send: a SendFuture, or a coalesced batch of many sends."""

    def expect(self, parts: int, *, last: bool) -> bool: ...
    def replaced(self, old: Sequence[Body], new: Sequence[Body]) -> None: ...
    def stored(self, body: Body, first_offset: int) -> bool: ...
    def failed(self, body: Body | None, error: RingfenceError) -> bool: ...
    def includes(self, future: SendFuture) -> bool: ...
    def take_settled(self) -> list[SendFuture]: ...


# A body, its send, and the `send` number of the header; the same at every try.
Part = tuple["Body", Sink, int]


class PendingPublish(Pending):
    """One try of one body."""

    __slots__ = ("_attempt", "_key", "_sender")
    publishes = True

    def __init__(self, sender: Sender, key: int, attempt: int, give_up_at: float) -> None:
        super().__init__(give_up_at)
        self._sender, self._key, self._attempt = sender, key, attempt

    def answered(self, answer: Answer) -> None:
        self._sender.answered(self._key, self._attempt, answer)

    def stored(self, first_offset: int) -> None:
        self._sender.stored(self._key, self._attempt, first_offset)

    def lost(self) -> None:
        self._sender.lost(self._key, self._attempt)

    def failed(self, error: Exception) -> None:
        self._sender.failed(error)


class Sender:
    """A `Member` of the I/O thread. All methods run on that thread."""

    def __init__(
        self,
        io_thread: IoThread,
        tables: TableCache,
        layout: Layout,
        identity: SequenceOwner,
        *,
        name: str | None,
        on_body_ended: Callable[[int], None],
        on_settled: Callable[[Sink], None],
        choice: PartitionChoice | None = None,
        slot_of_send: Callable[[int], int] | None = None,
    ) -> None:
        """`choice`: is kept up to date; None: partitions are chosen by key, or by the number of a send.

        `slot_of_send`: of a named producer in a topic without key.
        """
        self.layout, self._choice = layout, choice
        # The identity of a name, or of an attempt, is never replaced.
        is_kept = name is not None or not isinstance(identity, Identity)
        self._inflight = Inflight(identity, topic=layout.name, named=is_kept, routes=routes_of(layout))
        self._router = BodyRouter(slot_of_send, choice)
        self._io_thread, self._tables, self._name = io_thread, tables, name
        self._on_body_ended, self._on_settled = on_body_ended, on_settled
        self._parts: dict[int, Part] = {}
        self._last_connection: dict[int, Connection] = {}  # by partition: took its last batch
        self._headers = PublishHeaders()
        self._wakes: dict[int, float] = {}  # by partition: the latest pause end with a timer
        self._next_key = 0
        self.try_s_max, self.grace_s = TRY_S_MAX, ANSWER_GRACE_S  # tests use shorter times
        self._expire_at = 0.0

    # ---- from the producer ------------------------------------------------------------------------------

    def submit(self, sink: Sink, bodies: list[Body], number: int, deadline: float, last: bool = True) -> None:  # noqa: FBT001, FBT002
        """Queue bodies of one send, in the order of their rows; `last`: the send has no further bodies."""
        if sink.expect(len(bodies), last=last):
            self._on_settled(sink)
        for body in bodies:
            key = self._next_key
            self._next_key += 1
            self._parts[key] = body, sink, number
            try:
                effects = self._inflight.submit(key, body.partition, deadline, number)
                if effects:
                    self._run(effects)
            except Exception as error:  # noqa: BLE001  # ends this producer only
                self.failed(error)

    def refuse_later(self, error: RingfenceError) -> None:
        """See `Inflight.refuse_later`."""
        self._inflight.refuse_later(error)

    def waits(self, future: SendFuture | None) -> list[WaitReason]:
        """The reasons why one send, or all sends, are pending: one for each partition."""
        parts = self._parts.values()
        found = {body.partition for body, sink, _ in parts if future is None or sink.includes(future)}
        return [self._wait_reason(partition) for partition in sorted(found)]

    def _wait_reason(self, partition: int) -> WaitReason:
        last_refusal, awaits = self._inflight.last_refusal(partition), self._inflight.awaits(partition)
        return wait_reason(self._io_thread, self.layout, partition, last_refusal=last_refusal, awaits=awaits)

    def abandon(self, error: RingfenceError) -> None:
        """End all pending batches because the producer is closed."""
        self._run(self._inflight.end_all(error))

    def failed(self, error: Exception) -> None:
        """End this producer because of a defect; the rest of the client is not affected."""
        logger.error("the producer of topic %s ends because of a defect", self.layout.name, exc_info=error)
        defect = defect_error(self.layout.name, error)
        self.abandon(defect)
        for key in list(self._parts):  # parts that the state machine lost because of the defect
            self._failed(key, defect)

    # ---- Member -------------------------------------------------------------------------------------------

    @property
    def busy(self) -> bool:
        return bool(self._parts) or (self._choice is not None and self._choice.looking)

    def tick(self, now: float) -> None:
        if self._choice is not None:
            self._choice.look(self._io_thread, self.layout, self._inflight, now)
        if self._parts and now >= self._expire_at:
            # 50 us for each partition keep this work at a few percent of the time, even with 10,000
            # partitions.
            self._expire_at = now + max(TICK_S, self._inflight.partitions * 50e-6)
            self._run(self._inflight.expire(now, self._wait_reason))

    def pump(self, now: float) -> None:
        """Send one body of each ready partition in turn, while there is credit."""
        inflight = self._inflight
        if inflight.unrouted:
            self._route_again(now)
        up: dict[int, Connection] = {}  # by partition; a connection that ends meanwhile has no room
        while inflight.ready:
            sent = False
            for partition in list(inflight.ready):
                connection = up.get(partition)
                if connection is None:
                    connection = self._connection_to(partition)
                    if connection is None:
                        continue
                    up[partition] = connection
                if not connection.room_for(0):
                    continue
                if self._last_connection.get(partition) is not connection and inflight.awaits(partition):
                    continue  # batches on another connection go first, else this one could overtake them
                order = inflight.transmit(partition, now)
                if order is not None:
                    sent = True
                    self._last_connection[partition] = connection
                    self._send(connection, order, now)
            if not sent:
                return

    def history_changed(self) -> None:
        error = RetriableError(
            "the cluster was restored from a backup: open the producer again", topic=self.layout.name
        )
        error.retriable = False
        self._run(self._inflight.end_all(error))

    # ---- layout changes -------------------------------------------------------------------------------

    def _route_again(self, now: float) -> None:
        """Route bodies of sealed partitions by the newest layout; what is left follows in the next turn."""
        left = ROUTED_BYTES_MAX
        while (key := self._inflight.next_unrouted()) is not None:
            if left <= 0 and self.layout.key:
                self._io_thread.at(now, lambda: None)
                return
            body, sink, number = self._parts[key]
            left -= len(body.data)
            routed = self._router.routed(self.layout, body, number)
            pieces = []
            for part, slot in routed:
                pieces.append(Piece(self._next_key, part.partition, slot))
                self._parts[self._next_key] = part, sink, number
                self._next_key += 1
            self._replaced([key], [part for part, _ in routed])
            self._run(self._inflight.rerouted(key, pieces))

    def _replaced(self, keys: list[int], new: list[Body]) -> None:
        """Other bodies take the place of these: the send and the budget count them."""
        parts = [self._parts.pop(key) for key in keys]
        old = [body for body, _, _ in parts]
        parts[0][1].replaced(old, new)
        self._on_body_ended(sum(len(body.data) for body in old) - sum(len(body.data) for body in new))

    def _join(self, first: int, second: int) -> None:
        (one, sink, number), (other, _, _) = self._parts[first], self._parts[second]
        try:
            whole = self._router.joined(self.layout, one, other, self._io_thread.message_bytes_max)
        except BatchError as error:
            self._run(self._inflight.not_joined(first, second, error))
            return
        key = self._next_key
        self._next_key += 1
        self._parts[key] = whole, sink, number
        self._replaced([first, second], [whole])
        self._run(self._inflight.joined(first, second, key))

    # ---- sending ------------------------------------------------------------------------------------

    def _peer_of(self, partition: int) -> Peer:
        entry = self.layout.partitions.get(partition)
        return self._io_thread.first if entry is None else self._io_thread.peer_of(self.layout, entry.owner)

    def _connection_to(self, partition: int) -> Connection | None:
        peer = self._peer_of(partition)
        up = peer.up
        if up is None and peer.failure is not None and not peer.failure.retriable:
            # Retried until the deadline: the file of the token may be replaced meanwhile.
            self._inflight.note_refusal(partition, peer.failure)
        return up

    def _send(self, connection: Connection, order: Transmit, now: float) -> None:
        left = min(order.deadline, now + self.try_s_max)
        try:
            sent = self._put(connection, order, left, now)
        except RingfenceError as error:  # above the node's limit: nothing was sent
            self._run(self._inflight.refused(order.key, order.attempt, error, now))
            return
        if not sent:
            self.lost(order.key, order.attempt)

    def _put(self, connection: Connection, order: Transmit, left: float, now: float) -> bool:
        """One try. False if the connection has ended. BatchError above the node's limit."""
        body, _, number = self._parts[order.key]
        batch: PublishBatch = (
            self._headers.of(self.layout, order.producer, order.partition),
            body.data,
            order.sequence,
            number,
            body.rows,
            body.schema_id,
            deadline_ms(left, now),
            body.extension_bytes,
            body.crc,
        )
        pending = PendingPublish(self, order.key, order.attempt, left + self.grace_s)
        return connection.publish(batch, pending)

    def stored(self, key: int, attempt: int, first_offset: int) -> None:
        self._run(self._inflight.done(key, attempt, first_offset))

    def answered(self, key: int, attempt: int, answer: Answer) -> None:
        header = answer.header
        if header.status == wire.Status.OK:
            self.stored(key, attempt, header.first_offset)
            return
        now, jitter = self._io_thread.now, self._io_thread.jitter()
        try:
            error = answer.error(self.layout.name, held=self.layout.generation)
        except RingfenceError as damaged:
            error = damaged
        if isinstance(error, FencedError) and self._name is not None:
            error = fenced_error(self._name, error)
        if isinstance(error, NotFoundError) and error.code is wire.Code.UNKNOWN_TOPIC:
            error = self._topic_gone(error)
        early = False
        if isinstance(error, RerouteError) and error.reason is wire.RedirectReason.SEALED:
            effects = self._inflight.sealed(key, attempt, _word(error), header.generation)
        elif isinstance(error, RerouteError) and error.reason is not wire.RedirectReason.CLOSED:
            generation = header.generation
            early = is_early(error, generation, self.layout)
            effects = self._inflight.redirected(key, attempt, error, generation, now, jitter, early=early)
        else:
            if isinstance(error, RerouteError):
                early = True
                error = RetriableError(
                    "the partition is not open",
                    retry_after_s=header.retry_after_ms / 1000,
                    topic=self.layout.name,
                    partition=header.partition,
                )
            effects = self._inflight.refused(key, attempt, error, now, jitter, early=early)
        self._run(effects)
        self._wake_after_pause(header.partition, now)

    def _topic_gone(self, error: NotFoundError) -> NotFoundError:
        return topic_gone_error(self.layout, error)

    def _wake_after_pause(self, partition: int, now: float) -> None:
        """Set a timer for the end of a pause; `tick` would notice it TICK_S late."""
        until = self._inflight.paused_until(partition)
        if until > max(now, self._wakes.get(partition, 0.0)):
            self._wakes[partition] = until
            self._io_thread.at(until, lambda: self._inflight.ready.setdefault(partition))

    def lost(self, key: int, attempt: int) -> None:
        self._run(self._inflight.lost([(key, attempt)]))

    # ---- effects ------------------------------------------------------------------------------------

    def _run(self, effects: list[Effect]) -> None:
        for effect in effects:
            if type(effect) is BatchStored:  # nearly always; `match` would double the cost
                body, sink, _ = self._parts.pop(effect.key)
                self._on_body_ended(len(body.data))
                if sink.stored(body, effect.first_offset):
                    self._on_settled(sink)
                continue
            match effect:
                case BatchRefused(key, error) | BatchUnknown(key, error):
                    self._failed(key, error)
                case FetchTable(_, version):
                    self._fetch_table(version)
                case JoinBatches(first, second):
                    self._join(first, second)
                case OpenEpoch():
                    self._open_epoch()

    def _failed(self, key: int, error: RingfenceError) -> None:
        body, sink, _ = self._parts.pop(key)
        self._on_body_ended(len(body.data))
        if sink.failed(body, error):
            self._on_settled(sink)

    def _fetch_table(self, version: int = 0) -> None:
        self._tables.fetch(self.layout.topic, self._table_fetched, version)

    def _fetch_again(self) -> None:
        if self._inflight.waits_for_table:
            self._fetch_table(self._inflight.needed_version)

    def _table_fetched(self, layout: Layout | None, error: RingfenceError | None) -> None:
        if layout is not None:
            self.table(layout)
        elif isinstance(error, NotFoundError):
            self._run(self._inflight.end_all(self._topic_gone(error)))
        if self._inflight.waits_for_table:
            self._io_thread.at(self._io_thread.now + AGAIN_S, self._fetch_again)

    def table(self, layout: Layout) -> None:
        """Use a newer layout, fetched or pushed. After a defect nothing is routed by an old one."""
        try:
            moved = list(moved_between(self.layout, layout))
            self.layout = layout
            self._run(self._inflight.table_arrived(routes_of(layout), moved, now=self._io_thread.now))
        except Exception as error:  # noqa: BLE001  # ends this producer only
            self.failed(error)

    def _open_epoch(self) -> None:
        """Draw a new identity. Only unnamed producers do this; a named one keeps its identity."""
        body = messages.encode(messages.ProducerOpen(topic=self.layout.name))
        request = Request(
            wire.Opcode.PRODUCER_OPEN, body, time.monotonic() + TRY_S_MAX, topic=self.layout.name
        )
        request.harmless_late = True
        request.future.add_done_callback(self._epoch_opened)
        self._io_thread.enqueue(request)

    def _epoch_opened(self, future: Future[Answer]) -> None:
        if self._inflight.phase is not Phase.OPENING:
            return  # closed meanwhile
        try:
            opened = future.result().control(messages.ProducerOpened)
        except RetriableError:
            self._io_thread.at(self._io_thread.now + AGAIN_S, self._open_epoch)
        except NotFoundError as error:
            self._run(self._inflight.end_all(self._topic_gone(error)))
        except RingfenceError as error:
            self._run(self._inflight.end_all(error))
        except Exception as error:  # noqa: BLE001  # ends this producer only
            self.failed(error)
        else:
            self._run(self._inflight.opened(Identity(opened.producer_id, opened.producer_epoch)))


def _word(error: RerouteError) -> Sealed:
    """What REDIRECT(sealed) says about the producer's batches."""
    told = error.details
    answers = tuple((sequence, offset) for sequence, offset, _ in told.get("answers", ()))
    return Sealed(told.get("stored"), answers, told.get("version", told["layout_version"]))
