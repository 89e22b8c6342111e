"""One control or read request with its retries, from any thread: `link.ask` gives a future of the answer.

Lost answers and retriable refusals are tried again until the deadline, so `ask` is for requests that may be
served twice. `Ask.lost` tells a caller who must know that an earlier try may have been served.
"""

from __future__ import annotations

import time
from concurrent.futures import Future
from typing import TYPE_CHECKING

from ringfence.common.retry import Backoff, deadline_ms
from ringfence.native import wire
from ringfence.native.errors import (
    ConnectError,
    DeadlineError,
    ProtocolError,
    RetriableError,
    RingfenceError,
    UnknownOutcomeError,
)
from ringfence.network.connection import Pending

if TYPE_CHECKING:
    from ringfence.common.codec import Answer
    from ringfence.common.routing import Layout
    from ringfence.network.connection import Connection
    from ringfence.network.io_thread import Link
    from ringfence.network.peer import Peer

ANSWER_GRACE_S = (
    2.0  # a node answers within the request's deadline; this much later the answer counts as lost
)
TRY_S_MAX = 30.0  # one try; a long request is asked for again after it


# Of a STAGE or COMMIT all three mean that nothing is left to do.
DONE = frozenset({wire.Status.OK, wire.Status.STAGED, wire.Status.ALREADY_COMMITTED})


# What does no harm where a node that stood still serves it long after another one did: while a node is silent
# the next is asked. Not so for a TRUNCATE, say, whose late copy would take rows that came since: it waits for
# the node, or for the end of its connection. COMMIT is told its repeats, EXPIRE decides an epoch once.
HARMLESS_LATE = frozenset(
    {
        wire.Opcode.TABLE,
        wire.Opcode.TOPIC_DESCRIBE,
        wire.Opcode.TOPIC_LIST,
        wire.Opcode.STATUS,
        wire.Opcode.BEGIN,  # with the driver that it fences, and an instance, which `Admin` sees to
        wire.Opcode.COMMIT,
        wire.Opcode.EXPIRE,
    }
)


# Of one partition, answered by its owner alone.
READS = frozenset({wire.Opcode.FETCH, wire.Opcode.END_OFFSETS, wire.Opcode.OFFSET_FOR_TIME})


NAMED_MAX = 8  # partitions in the text of an error


class Ask:
    """A request on its way. `future` gets the answer (status OK, STAGED or ALREADY_COMMITTED) or the error.

    `tries_lost` may have been served, and so may `refusals` that were not `unbegun`. Unless `sent`, no node
    has heard of it.
    """

    def __init__(
        self,
        opcode: wire.Opcode,
        body: bytes | bytearray,
        deadline: float,
        *,
        node: int | None = None,
        topic: str | None = None,
        wait_s: float = 0.0,
        fields: dict[str, int] | None = None,
        held: int = 0,
    ) -> None:
        """`deadline` on time.monotonic; `wait_s`: one try's long poll; `fields`: of the header.

        A body is MessagePack. `held` is the generation of the table that this request goes by.
        """
        self.held = held
        self.opcode, self.body, self.deadline = opcode, body, deadline
        self.node, self.topic, self.wait_s = node, topic, wait_s
        self.layout: Layout | None = None  # by which it goes to the owner of `partition`; None: to any node
        self.partition = 0
        self.harmless_late = opcode in HARMLESS_LATE
        self.once = False  # it says "now": a repeat of what may be served would be another request
        self.fields = fields or {}
        if body and opcode != wire.Opcode.STAGE:
            self.fields["flags"] = wire.RequestFlags.CONTROL
        self.future: Future[Answer] = Future()
        self.future.set_running_or_notify_cancel()
        self.begun_s = time.monotonic()
        self.sent = False
        self.tries_lost = 0
        self.refusals = self.unbegun = 0
        self.last_error: RingfenceError | None = None

    def failed(self, error: Exception) -> None:
        """A defect while it was handled: it ends, and no other request does."""
        if not self.future.done():
            self.future.set_exception(error)

    @property
    def may_be_served(self) -> bool:
        """An earlier try may have done what was asked for."""
        return self.tries_lost + self.refusals > self.unbegun

    def expired_error(self, peer: Peer) -> RingfenceError:
        """What the caller hears when the deadline is over."""
        if self.last_error is not None:
            return self.last_error
        if peer.failure is not None:
            return peer.failure
        if self.layout is not None and self.opcode in READS and self.partition in self.layout.partitions:
            found = peer.found or f"{', '.join(peer.addresses)} gives no answer"
            return owner_silent(self.layout, self.partition, found)
        return ConnectError(
            f"no node answered {self.opcode.name} in time; {peer.found}".removesuffix("; "),
            addresses=list(peer.addresses),
            topic=self.topic,
        )


def owner_silent(layout: Layout, partition: int, found: str) -> ConnectError:
    """A partition's owner does not answer, and `found` says how that is known."""
    owner = layout.partitions[partition].owner
    owned = [entry.partition for entry in layout.partitions.values() if entry.owner == owner]
    numbers = ", ".join(map(str, owned[:NAMED_MAX])) + (", ..." if len(owned) > NAMED_MAX else "")
    return ConnectError(
        f"partition {partition} cannot be read: its owner, node {owner}, does not answer: {found}; start the "
        f"node again, or read without what it owns ({numbers}): name others by partition= or --partition",
        topic=layout.name,
        partition=partition,
        node=owner,
        addresses=list(layout.addresses.get(owner, ())),
    )


class AskPending(Pending):
    """One try of an Ask."""

    __slots__ = ("_link", "_peer", "ask", "polls")

    def __init__(self, link: Link, peer: Peer, ask: Ask, give_up_at: float) -> None:
        super().__init__(give_up_at)
        self._link, self._peer, self.ask = link, peer, ask
        self.polls = ask.wait_s > 0

    def answered(self, answer: Answer) -> None:
        ask = self.ask
        if answer.header.status in DONE:
            ask.future.set_result(answer)
            return
        try:
            error = answer.error(ask.topic, held=ask.held)
        except ProtocolError as damaged:
            error = damaged
        if not isinstance(error, RetriableError):
            ask.future.set_exception(error)
            return
        ask.last_error = error
        ask.refusals += 1
        ask.unbegun += isinstance(error, DeadlineError)  # the code says: nothing was begun, nothing will be
        delay = ASK_BACKOFF.delay_s(ask.refusals, self._link.jitter(), error.retry_after_s)
        self._link.at(self._link.now + delay, lambda: self._link.enqueue(ask))

    def failed(self, error: Exception) -> None:
        self.ask.failed(error)

    def lost(self) -> None:
        self.ask.tries_lost += 1
        if self.ask.once:
            self.ask.future.set_exception(
                UnknownOutcomeError(
                    f"{self.ask.opcode.name} got no answer: it may be carried out or not, and once more it "
                    "would take what came since; look, and name offsets",
                    topic=self.ask.topic,
                )
            )
            return
        self._link.enqueue(self.ask)


ASK_BACKOFF = Backoff(first_s=0.05, cap_s=2.0)


def send_waiting(link: Link, peer: Peer) -> None:
    """Send what waits for this peer, as far as there is room; refuse what is over its deadline."""
    connection = peer.up
    now = link.now
    for _ in range(len(peer.waiting)):
        ask = peer.waiting.popleft()
        try:
            _send_or_wait(link, peer, connection, ask, now)
        except Exception as error:  # noqa: BLE001  # whatever it is: this thread serves others too
            ask.failed(error)


def _send_or_wait(link: Link, peer: Peer, connection: Connection | None, ask: Ask, now: float) -> None:
    if ask.deadline <= now:
        ask.future.set_exception(ask.expired_error(peer))
        return
    if connection is None or not connection.room_for(len(ask.body)):
        peer.waiting.append(ask)
        return
    left = min(ask.deadline, now + TRY_S_MAX)
    wait = ask.wait_s if ask.wait_s > 0 else left - now
    give_up_at = min(left, now + wait) + ANSWER_GRACE_S
    pending = AskPending(link, peer, ask, give_up_at)
    deadline = deadline_ms(min(left, now + wait), now)
    if connection.send(ask.opcode, ask.body, pending, deadline_ms=deadline, **ask.fields):
        ask.sent = True
    else:
        peer.waiting.append(ask)
