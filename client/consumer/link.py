"""Run a member on the I/O thread of its own: send its calls, and give it answers, pushes, tables and time.

One connection has one session. So a consumer shares its connections with nobody.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from msgspec import UNSET

from ringfence.common.codec import control_body
from ringfence.common.retry import deadline_ms
from ringfence.consumer import bodies
from ringfence.consumer.calls import (
    HOME,
    Attach,
    Beat,
    Claim,
    Fetch,
    Join,
    Leave,
    Left,
    Note,
    Read,
    Refresh,
    Refusal,
    Ring,
    Settle,
    Why,
)
from ringfence.consumer.clock import now_s
from ringfence.consumer.queue_calls import QueueFetch, QueueSettle, RowsParked
from ringfence.consumer.routes import Routes
from ringfence.consumer.values import partitions_text
from ringfence.native import cohort_messages as cohort
from ringfence.native import wire
from ringfence.native.errors import (
    ConflictError,
    FencedError,
    ProtocolError,
    RerouteError,
    RetriableError,
    RingfenceError,
    UnknownOutcomeError,
)
from ringfence.network.connection import Connection, Pending
from ringfence.network.request import ANSWER_GRACE_S, DONE, Request

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future
    from contextlib import AbstractContextManager

    from ringfence.cluster.table_cache import TableCache
    from ringfence.common.codec import Answer
    from ringfence.common.routing import Layout
    from ringfence.consumer.any_member import AnyMember
    from ringfence.consumer.calls import Effect, NodeCall, Reply
    from ringfence.native import messages
    from ringfence.network.io_thread import IoThread

CALL_S = 5.0  # ATTACH, MEMBER_BEAT
SETTLE_S = 5.0
JOIN_S = 5.0  # a cohort at the latest rows waits so long for partitions that have not begun
READ_S = 10.0
WARN_S = 5.0  # an application that gathers rows has so long to acknowledge them
WARN_AGAIN_S = 60.0
logger = logging.getLogger("ringfence")


class Identity(NamedTuple):
    """What JOIN says of the member and of a cohort that it creates."""

    topic: str
    cohort: str
    mode: str
    member: str
    instance: bytes
    start: str
    settings: cohort.CohortSettings | None


class MemberCall(Pending):
    """A call that waits for its answer on one connection."""

    __slots__ = ("_link", "call", "polls_until")

    def __init__(self, link: Link, call: NodeCall, give_up_at: float, polls_until: float) -> None:
        super().__init__(give_up_at)
        self._link, self.call, self.polls_until = link, call, polls_until

    def answered(self, answer: Answer) -> None:
        self._link.answered(self.call, answer)

    def lost(self) -> None:
        self._link.unanswered(self.call.number)

    def failed(self, error: Exception) -> None:
        self._link.failed(error)


class Link:
    """Drives one member. All methods run on the I/O thread, unless they say otherwise.

    `lock` protects the member: the application uses it in its own thread. `ring` wakes the application.
    """

    def __init__(
        self,
        io_thread: IoThread,
        tables: TableCache,
        layout: Layout,
        member: AnyMember,
        identity: Identity,
        *,
        lock: AbstractContextManager[object],
        ring: Callable[[], None],
    ) -> None:
        self._io_thread, self._tables, self._layout = io_thread, tables, layout
        self._member, self._identity = member, identity
        self._lock, self._ring = lock, ring
        self._connections: dict[int, Connection] = {}  # by node
        self.cohort = 0  # its id, from JOIN
        self._warned_at, self._warn_at = -WARN_AGAIN_S, 0.0
        self._waits: set[int] = set()

    def begin(self) -> None:
        """Join. From any thread."""
        self._io_thread.call(self._begin)

    def _begin(self) -> None:
        self._tables.listen(self._layout.topic, self._routed)
        self._io_thread.on_push.append(self._pushed)
        self._io_thread.members.append(self)
        self._routed(self._layout)

    # ---- Member of the I/O thread ------------------------------------------------------------------------

    busy = True  # leases and beats need ticks

    def pump(self, now: float) -> None:
        """Nothing is sent in turns."""

    def tick(self, now: float) -> None:
        """Look at the connections and at the time."""
        self._event(self._look)
        if now >= self._warn_at:
            self._warn(now)

    def _warn(self, now: float) -> None:
        """Name partitions whose children wait for the application for two looks."""
        self._warn_at = now + WARN_S
        with self._lock:
            waits = set(self._member.waits_for())
        both, self._waits = waits & self._waits, waits
        if both and now - self._warned_at >= WARN_AGAIN_S:
            self._warned_at = now
            logger.warning(
                "topic %s, cohort %s: partitions %s were split or merged, their rows are not acknowledged: "
                "their children wait (consumer.waits_for, on_drain)",
                self._layout.name,
                self._identity.cohort,
                partitions_text(both),
            )

    def abandon(self, error: RingfenceError) -> None:
        """The I/O thread ends."""
        with self._lock:
            self._member.state.fall_silent(error)
        self._ring()

    def failed(self, error: Exception) -> None:
        """A defect: the consumer ends."""
        logger.error("a consumer ended because of a defect", exc_info=error)
        self.abandon(
            ProtocolError(f"the consumer ended because of a defect: {type(error).__name__}: {error}")
        )

    def history_changed(self) -> None:
        """Cohorts of the old history mean nothing."""
        error = FencedError("the cluster was restored from a backup: create the consumer again")
        self.abandon(error)

    # ---- events ------------------------------------------------------------------------------------------

    def turn(self) -> None:
        """The application did something."""
        self._event(_nothing)

    def _event(self, event: Callable[[float], None]) -> None:
        with self._lock:
            now = now_s()
            event(now)
            self._member.tick(now)
            effects = self._member.take()
        for effect in effects:
            self._carry_out(effect)

    def _look(self, now: float) -> None:
        nodes = self._member.session.nodes
        for node in list(self._connections):
            if node not in nodes or self._up(node) is not self._connections[node]:
                del self._connections[node]
                self._member.down(node, now)
        for node in nodes - self._connections.keys():
            connection = self._up(node)
            if connection is not None and self._is_able(connection):
                self._connections[node] = connection
                self._member.up(node)

    def _up(self, node: int) -> Connection | None:
        if node == HOME:
            return self._io_thread.first.up
        return self._io_thread.peer_of(self._layout, node).up

    def _is_able(self, connection: Connection) -> bool:
        """Whether the node's program knows cohorts."""
        ready = connection.ready
        assert ready is not None
        features = ready.features if isinstance(ready.features, int) else 0
        if features & wire.Features.COHORTS:
            return True
        self._member.state.fail(
            ProtocolError(
                f"node {ready.node} ({ready.program}) is older than cohorts: update all nodes, then run "
                "`ringfence cluster finalize`",
                address=connection.address,
                node=ready.node,
            ),
            is_final=True,
        )
        return False

    def _routed(self, layout: Layout) -> None:
        self._layout = layout
        routes = Routes(layout)
        self._event(lambda _: self._member.routed(routes))

    def _pushed(self, connection: Connection, answer: Answer) -> None:
        del connection
        if answer.header.opcode == wire.Opcode.ASSIGN:
            assigned = answer.control(cohort.Assign)
            if assigned.cohort == self.cohort:
                plan = bodies.plan_of(assigned)
                self._event(lambda _: self._member.pushed(plan))

    def unanswered(self, number: int) -> None:
        """A call got no answer."""
        self._event(partial(self._member.unanswered, number))

    def _heard(self, number: int, outcome: Reply | Refusal) -> None:
        if isinstance(outcome, Refusal):
            self._event(partial(self._member.refused, number, outcome))
        else:
            self._event(partial(self._member.answered, number, outcome))

    def answered(self, call: NodeCall, answer: Answer) -> None:
        """A call was answered on its connection."""
        if answer.header.status not in DONE:
            refusal = bodies.refusal_of(call, answer, self._layout.name, self._layout.generation)
            self._heard(call.number, refusal)
        else:
            self._heard(call.number, self.reply_of(call, answer))

    def reply_of(self, call: NodeCall, answer: Answer) -> Reply:
        """The reply of an answer OK."""
        match call:
            case Attach():
                return bodies.attached_of(answer)
            case Beat():
                return bodies.renewed_of(answer)
            case Settle():
                return bodies.settled_of(answer, self._layout.name)
            case Claim():
                return bodies.settled_of(answer, self._layout.name, is_claim=True)
            case Fetch():
                return bodies.fetched_of(call, answer)
            case _:
                raise AssertionError(call)

    # ---- effects -----------------------------------------------------------------------------------------

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case Ring():
                self._ring()
            case Note(text):
                logger.warning("topic %s, cohort %s: %s", self._layout.name, self._identity.cohort, text)
            case RowsParked():
                pass  # `QueueLink` tells who exports them
            case Refresh():
                self._tables.fetch(self._layout.topic, self._fetched_table, effect.version)
            case Join():
                self._join(effect)
            case Leave():
                self._leave(effect)
            case Read():
                self._read(effect)
            case _:
                self._call(effect)

    def _fetched_table(self, layout: Layout | None, error: RingfenceError | None) -> None:
        """The listener has the table if it is newer."""

    def sent(self, call: NodeCall) -> bodies.Sent:
        """The request of a call."""
        session = self._member.state.session
        return bodies.sent(call, self._layout.topic, self.cohort, session, self._layout.version)

    def _call(self, call: NodeCall) -> None:
        sent = self.sent(call)
        now = self._io_thread.now
        wait_s = SETTLE_S if isinstance(call, Settle | QueueSettle) else CALL_S
        polls = isinstance(call, Fetch | QueueFetch)
        if isinstance(call, Fetch | QueueFetch):
            wait_s = call.poll_s
        polls_until = now + wait_s + ANSWER_GRACE_S if polls else 0.0
        pending = MemberCall(self, call, now + wait_s + ANSWER_GRACE_S, polls_until)
        connection = self._connections.get(call.node)
        if connection is None or not connection.room_for(len(sent.body)):
            self.unanswered(call.number)
            return
        deadline = deadline_ms(now + wait_s, now)
        if not connection.send(sent.opcode, sent.body, pending, deadline_ms=deadline, **sent.fields):
            self.unanswered(call.number)

    def _join(self, call: Join) -> None:
        given = self._identity
        body = cohort.Join(
            topic=given.topic,
            cohort=given.cohort,
            mode=given.mode,
            member=given.member,
            instance=given.instance,
            after=call.after,
            start=given.start,
            settings=given.settings if given.settings is not None else UNSET,
            after_partition=call.after_partition,
        )
        self._request(call.number, wire.Opcode.JOIN, body, JOIN_S, self._joined)

    def _joined(self, answer: Answer) -> Reply:
        joined = answer.control(cohort.Joined)
        self.cohort = joined.cohort
        if joined.not_begun:
            logger.warning(
                "cohort %s begins later in partitions %s, whose owners do not answer",
                self._identity.cohort,
                joined.not_begun,
            )
        return bodies.joined_of(joined)

    def _leave(self, call: Leave) -> None:
        given = self._identity
        body = cohort.Leave(topic=given.topic, cohort=given.cohort, member=given.member, session=call.session)
        self._request(call.number, wire.Opcode.LEAVE, body, CALL_S, lambda _: Left())

    def _request(
        self,
        number: int,
        opcode: wire.Opcode,
        body: messages.Message,
        seconds: float,
        reply: Callable[[Answer], Reply],
    ) -> None:
        deadline = self._io_thread.now + seconds
        request = Request(opcode, control_body(body), deadline, topic=self._identity.topic)
        request.future.add_done_callback(lambda future: self._heard(number, _outcome(future, reply)))
        self._io_thread.enqueue(request)

    def _read(self, call: Read) -> None:
        fields = {
            "topic": self._layout.topic,
            "partition": call.partition,
            "sequence": call.offset,
            "send": call.bytes_max,
            "owner_epoch": call.epoch,
            "layout_version": self._layout.version,
        }
        layout, deadline = self._layout, self._io_thread.now + READ_S
        request = Request(
            wire.Opcode.FETCH,
            b"",
            deadline,
            topic=layout.name,
            wait_s=1.0,
            fields=fields,
            held=layout.generation,
        )
        number = call.number
        request.future.add_done_callback(lambda future: self._heard(number, _outcome(future, bodies.read_of)))
        self._io_thread.enqueue_at_owner(request, layout, call.partition)


def _nothing(now: float) -> None:
    """No event: what the application did is looked at."""


def _outcome(future: Future[Answer], reply: Callable[[Answer], Reply]) -> Reply | Refusal:
    """What a member is told of a request."""
    try:
        return reply(future.result())
    except RerouteError as error:
        return Refusal(Why.REDIRECT, error, version=int(error.details.get("version") or 0))
    except (RetriableError, UnknownOutcomeError) as error:
        return Refusal(Why.RETRY, error)
    except FencedError as error:
        return Refusal(Why.REPLACED, error)
    except ConflictError as error:
        why = Why.NAME_TAKEN if "presence" in error.details else Why.FINAL
        return Refusal(why, error, details=error.details)
    except RingfenceError as error:
        code = error.code
        start = int(error.details.get("start_offset", 0))
        return Refusal(Why.TRUNCATED if code == wire.Code.TRUNCATED else Why.FINAL, error, start=start)
    except Exception as error:  # noqa: BLE001  # a defect: the consumer ends
        return Refusal(Why.FINAL, error)
