"""Runs the state machine of one producer on the link's thread.

Its effects become frames, its outcomes futures.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Protocol

from ringfence.common.retry import deadline_ms
from ringfence.common.routing import is_early, moved_between
from ringfence.common.send_effects import (
    Done,
    Effect,
    FetchTable,
    Identity,
    OpenEpoch,
    Refused,
    Transmit,
    Unknown,
)
from ringfence.native import messages, wire
from ringfence.native.errors import (
    FencedError,
    NotFoundError,
    RerouteError,
    RetriableError,
    RingfenceError,
)
from ringfence.network.connection import Pending
from ringfence.network.request import ANSWER_GRACE_S, Ask
from ringfence.send.failures import defect_error, fenced_error, topic_gone_error
from ringfence.send.inflight import Inflight, Phase
from ringfence.send.publish_headers import PublishHeaders
from ringfence.send.wait_reasons import why

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from ringfence.arrow.encode import Body
    from ringfence.arrow.partition_choice import Reach
    from ringfence.cluster.table_cache import Tables
    from ringfence.common.codec import Answer
    from ringfence.common.routing import Layout
    from ringfence.network.connection import Connection
    from ringfence.network.io_thread import Link
    from ringfence.network.peer import Peer
    from ringfence.send.send_future import SendFuture
    from ringfence.send.wait_reasons import Wait

TRY_S_MAX = 30.0  # the node's own default: how long it parks or queues one try
TICK_S = 0.02  # how late a back-off or a deadline may end
AGAIN_S = 0.25  # until a table or an identity is asked for again, after an error
logger = logging.getLogger("ringfence")


class Sink(Protocol):
    """What hears how the bodies of one send ended.

    A SendFuture, or many of them behind one coalesced body.
    """

    def expect(self, parts: int) -> None: ...
    def seal(self) -> bool: ...
    def stored(self, body: Body, first_offset: int) -> bool: ...
    def failed(self, body: Body | None, error: RingfenceError) -> bool: ...
    def tells(self, future: SendFuture) -> bool: ...


# One body, the send that it belongs to, and the `send` of the header, the same at every try.
Part = tuple["Body", Sink, int]


class Publish(Pending):
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
    """A `Member` of the link. Everything here runs on the link's thread."""

    def __init__(
        self,
        link: Link,
        tables: Tables,
        layout: Layout,
        identity: Identity,
        *,
        name: str | None,
        on_body_ended: Callable[[int], None],
        on_settled: Callable[[Sink], None],
        reach: Reach | None = None,
    ) -> None:
        """`reach`: kept up to date; None: nobody chooses a partition by it."""
        self.layout, self._reach = layout, reach
        self._inflight = Inflight(identity, topic=layout.name, named=name is not None)
        self._link, self._tables, self._name = link, tables, name
        self._on_body_ended, self._on_settled = on_body_ended, on_settled
        self._parts: dict[int, Part] = {}
        self._ways: dict[int, Connection] = {}  # by partition: over which its last batch went
        self._headers = PublishHeaders()
        self._wakes: dict[int, float] = {}  # by partition: the latest end of a pause that a timer waits for
        self._next_key = 0
        self.try_s_max, self.grace_s = TRY_S_MAX, ANSWER_GRACE_S  # tests are less patient
        self._expire_at = 0.0

    # ---- from the producer ------------------------------------------------------------------------------

    def submit(self, sink: Sink, bodies: list[Body], number: int, deadline: float, last: bool = True) -> None:  # noqa: FBT001, FBT002
        """Bodies of one send, in the order of their rows; `last`: no more will come."""
        sink.expect(len(bodies))
        for body in bodies:
            try:
                self._submit((body, sink, number), deadline)
            except Exception as error:  # noqa: BLE001  # whatever it is: this thread serves others too
                self.failed(error)
        if last:
            self.seal(sink)

    def _submit(self, part: Part, deadline: float) -> None:
        key = self._next_key
        self._next_key += 1
        self._parts[key] = part
        effects = self._inflight.submit(key, part[0].partition, deadline)
        if effects:
            self._run(effects)

    def seal(self, sink: Sink) -> None:
        """No more bodies of this send will come."""
        if sink.seal():
            self._on_settled(sink)

    def refuse_later(self, error: RingfenceError) -> None:
        """See `Inflight.refuse_later`."""
        self._inflight.refuse_later(error)

    def waits(self, future: SendFuture | None) -> list[Wait]:
        """What a send waits for, or all of them do: one for each partition."""
        parts = self._parts.values()
        found = {body.partition for body, sink, _ in parts if future is None or sink.tells(future)}
        return [self._why(partition) for partition in sorted(found)]

    def _why(self, partition: int) -> Wait:
        said, awaits = self._inflight.said(partition), self._inflight.awaits(partition)
        return why(self._link, self.layout, partition, said=said, awaits=awaits)

    def abandon(self, error: RingfenceError) -> None:
        """The producer is closed: what has no outcome gets one now."""
        self._run(self._inflight.die(error))

    def failed(self, error: Exception) -> None:
        """A defect in what this producer does here: it ends, and nothing else of the client does."""
        logger.error("the producer of topic %s ends by a defect", self.layout.name, exc_info=error)
        told = defect_error(self.layout.name, error)
        self.abandon(told)
        for key in list(self._parts):  # what the state machine does not know, by the defect
            self._failed(key, told)

    # ---- Member -------------------------------------------------------------------------------------------

    @property
    def busy(self) -> bool:
        return bool(self._parts) or (self._reach is not None and self._reach.looking)

    def tick(self, now: float) -> None:
        if self._reach is not None:
            self._reach.look(self._link, self.layout, self._inflight, now)
        if self._parts and now >= self._expire_at:
            # 50 us a lane bounds the share of the clock's work to a few percent, also with 10,000 partitions.
            self._expire_at = now + max(TICK_S, self._inflight.lanes * 50e-6)
            self._run(self._inflight.expire(now, self._why))

    def pump(self, now: float) -> None:
        """One body of each ready partition in turn, while there is credit."""
        inflight = self._inflight
        up: dict[int, Connection] = {}  # by partition; one that ends meanwhile has no room
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
                if self._ways.get(partition) is not connection and inflight.awaits(partition):
                    continue  # what is under way on another connection comes first: else this may overtake it
                order = inflight.transmit(partition, now)
                if order is not None:
                    sent = True
                    self._ways[partition] = connection
                    self._send(connection, order, now)
            if not sent:
                return

    def history_changed(self) -> None:
        error = RetriableError(
            "the cluster was restored from a backup: open the producer anew", topic=self.layout.name
        )
        error.retriable = False
        self._run(self._inflight.die(error))

    # ---- sending
    # --------------------------------------------------------------------------------------------

    def _peer_of(self, partition: int) -> Peer:
        entry = self.layout.partitions.get(partition)
        return self._link.first if entry is None else self._link.peer_of(self.layout, entry.owner)

    def _connection_to(self, partition: int) -> Connection | None:
        peer = self._peer_of(partition)
        up = peer.up
        if up is None and peer.failure is not None and not peer.failure.retriable:
            # It is tried again until the deadline: a token in a file may be replaced meanwhile.
            self._inflight.told(partition, peer.failure)
        return up

    def _send(self, connection: Connection, order: Transmit, now: float) -> None:
        body, _, number = self._parts[order.key]
        left = min(order.deadline, now + self.try_s_max)
        try:
            sent = connection.publish(
                self._headers.of(self.layout, order.identity, order.partition),
                body.data,
                Publish(self, order.key, order.attempt, left + self.grace_s),
                order.sequence,
                number,
                body.rows,
                body.schema_id,
                deadline_ms(left, now),
                body.extension_bytes,
                body.crc,
            )
        except RingfenceError as error:  # above this node's limit: nothing was sent
            self._run(self._inflight.refused(order.key, order.attempt, error, now))
            return
        if not sent:
            self.lost(order.key, order.attempt)

    def stored(self, key: int, attempt: int, first_offset: int) -> None:
        self._run(self._inflight.done(key, attempt, first_offset))

    def answered(self, key: int, attempt: int, answer: Answer) -> None:
        header = answer.header
        if header.status == wire.Status.OK:
            self.stored(key, attempt, header.first_offset)
            return
        now, jitter = self._link.now, self._link.jitter()
        try:
            error = answer.error(self.layout.name, held=self.layout.generation)
        except RingfenceError as damaged:
            error = damaged
        if isinstance(error, FencedError) and self._name is not None:
            error = fenced_error(self._name, error)
        if isinstance(error, NotFoundError) and error.code is wire.Code.UNKNOWN_TOPIC:
            error = topic_gone_error(self.layout, error)
        early = False
        if isinstance(error, RerouteError) and error.reason is not wire.RedirectReason.CLOSED:
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

    def _wake_after_pause(self, partition: int, now: float) -> None:
        """The clock alone would see the end of a pause TICK_S late."""
        until = self._inflight.paused_until(partition)
        if until > max(now, self._wakes.get(partition, 0.0)):
            self._wakes[partition] = until
            self._link.at(until, lambda: self._inflight.ready.setdefault(partition))

    def lost(self, key: int, attempt: int) -> None:
        self._run(self._inflight.lost([(key, attempt)]))

    # ---- effects
    # --------------------------------------------------------------------------------------------

    def _run(self, effects: list[Effect]) -> None:
        for effect in effects:
            if type(effect) is Done:  # almost all are; matching takes as long as the rest of it
                body, sink, _ = self._parts.pop(effect.key)
                self._on_body_ended(len(body.data))
                if sink.stored(body, effect.first_offset):
                    self._on_settled(sink)
                continue
            match effect:
                case Refused(key, error) | Unknown(key, error):
                    self._failed(key, error)
                case FetchTable():
                    self._fetch_table()
                case OpenEpoch():
                    self._open_epoch()

    def _failed(self, key: int, error: RingfenceError) -> None:
        body, sink, _ = self._parts.pop(key)
        self._on_body_ended(len(body.data))
        if sink.failed(body, error):
            self._on_settled(sink)

    def _fetch_table(self) -> None:
        self._tables.fetch(self.layout.topic, self._table_fetched)

    def _table_fetched(self, layout: Layout | None, error: RingfenceError | None) -> None:
        if layout is not None:
            self.table(layout)
        elif isinstance(error, NotFoundError):
            self._run(self._inflight.die(topic_gone_error(self.layout, error)))
        elif self._inflight.waits_for_table:
            self._link.at(self._link.now + AGAIN_S, self._fetch_table)

    def table(self, layout: Layout) -> None:
        """The newest layout that is held, fetched or pushed."""
        moved = list(moved_between(self.layout, layout))
        self.layout = layout
        active = (entry.partition for entry in layout.active)
        self._run(self._inflight.table_arrived(active, moved, now=self._link.now))

    def _open_epoch(self) -> None:
        """Of an unnamed producer: a named one keeps its identity."""
        body = messages.encode(messages.ProducerOpen(topic=self.layout.name))
        ask = Ask(wire.Opcode.PRODUCER_OPEN, body, time.monotonic() + TRY_S_MAX, topic=self.layout.name)
        ask.harmless_late = True
        ask.future.add_done_callback(self._epoch_opened)
        self._link.enqueue(ask)

    def _epoch_opened(self, future: Future[Answer]) -> None:
        if self._inflight.phase is not Phase.OPENING:
            return  # closed in the meantime
        try:
            opened = future.result().control(messages.ProducerOpened)
        except RetriableError:
            self._link.at(self._link.now + AGAIN_S, self._open_epoch)
        except NotFoundError as error:
            self._run(self._inflight.die(topic_gone_error(self.layout, error)))
        except RingfenceError as error:
            self._run(self._inflight.die(error))
        except Exception as error:  # noqa: BLE001  # of this producer alone
            self.failed(error)
        else:
            self._run(self._inflight.opened(Identity(opened.producer_id, opened.producer_epoch)))
