"""One control or read request with its retries. `IoThread.request` returns a future of the answer.

A lost answer and a retriable refusal are retried until the deadline, so a request must be safe to execute
twice. `Request.may_be_served` tells whether an earlier try may have been executed.
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
    from ringfence.network.io_thread import IoThread
    from ringfence.network.peer import Peer

# A node answers within the deadline of a request. An answer that is later than this counts as lost.
ANSWER_GRACE_S = 2.0
# Length of one try; a request with a later deadline is then sent again.
TRY_S_MAX = 30.0
# For a STAGE or COMMIT all three mean success.
DONE = frozenset({wire.Status.OK, wire.Status.STAGED, wire.Status.ALREADY_COMMITTED})


# Requests that are safe if a stopped node executes them long after another node did. While a node is silent,
# these go to the next node. A TRUNCATE is not safe: a late copy would remove rows that were stored since. It
# waits for the node, or for the end of the connection. COMMIT recognizes repeats; EXPIRE decides an epoch
# once.
HARMLESS_LATE = frozenset(
    {
        wire.Opcode.TABLE,
        wire.Opcode.TOPIC_DESCRIBE,
        wire.Opcode.TOPIC_LIST,
        wire.Opcode.STATUS,
        wire.Opcode.BEGIN,  # `Admin` gives it the driver that it fences, and an instance
        wire.Opcode.COMMIT,
        wire.Opcode.EXPIRE,
    }
)


# Reads of one partition; only its owner answers them.
READS = frozenset({wire.Opcode.FETCH, wire.Opcode.END_OFFSETS, wire.Opcode.OFFSET_FOR_TIME})


NAMED_MAX = 8  # partitions listed in the text of an error


class Request:
    """A request until its outcome: `future` gets the answer (OK, STAGED or ALREADY_COMMITTED) or the error.

    `tries_lost` tries may have been executed, and so may `refusals` that were not `unbegun`. Unless `sent`,
    no node has received it.
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
        """`deadline`: on time.monotonic; `wait_s`: long poll of one try; `fields`: of the header.

        The body is MessagePack. `held`: generation of the routing table that this request is based on.
        """
        self.held = held
        self.opcode, self.body, self.deadline = opcode, body, deadline
        self.node, self.topic, self.wait_s = node, topic, wait_s
        self.layout: Layout | None = None  # names the owner of `partition`; None: any node may answer
        self.partition = 0
        self.harmless_late = opcode in HARMLESS_LATE
        self.once = False  # depends on the time of execution: it must not be repeated once it may be executed
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
        """End this request because of a defect; other requests are not affected."""
        if not self.future.done():
            self.future.set_exception(error)

    @property
    def may_be_served(self) -> bool:
        """Whether an earlier try may have been executed."""
        return self.tries_lost + self.refusals > self.unbegun

    def expired_error(self, peer: Peer) -> RingfenceError:
        """The error for the caller when the deadline has passed."""
        if self.last_error is not None:
            return self.last_error
        if peer.failure is not None:
            return peer.failure
        if self.layout is not None and self.opcode in READS and self.partition in self.layout.partitions:
            found = peer.found or f"{', '.join(peer.addresses)} does not respond"
            return owner_silent(self.layout, self.partition, found)
        return ConnectError(
            f"no node answered {self.opcode.name} in time; {peer.found}".removesuffix("; "),
            addresses=list(peer.addresses),
            topic=self.topic,
        )


def owner_silent(layout: Layout, partition: int, found: str) -> ConnectError:
    """The error if the owner of a partition does not respond; `found`: state of its connection."""
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


class PendingRequest(Pending):
    """One try of a Request."""

    __slots__ = ("_io_thread", "_peer", "polls_until", "request")

    def __init__(
        self, io_thread: IoThread, peer: Peer, request: Request, give_up_at: float, polls_until: float = 0.0
    ) -> None:
        super().__init__(give_up_at)
        self._io_thread, self._peer, self.request = io_thread, peer, request
        self.polls_until = polls_until

    def answered(self, answer: Answer) -> None:
        request = self.request
        if answer.header.status in DONE:
            request.future.set_result(answer)
            return
        try:
            error = answer.error(request.topic, held=request.held)
        except ProtocolError as damaged:
            error = damaged
        # The member must claim its gates again before this commit can be repeated.
        is_stale = error.code is wire.Code.STALE_CLAIM
        if not isinstance(error, RetriableError) or is_stale:
            request.unbegun += is_stale
            request.refusals += is_stale
            request.future.set_exception(error)
            return
        request.last_error = error
        request.refusals += 1
        # This code means that the node did not begin the request and never will.
        request.unbegun += isinstance(error, DeadlineError)
        delay = REQUEST_BACKOFF.delay_s(request.refusals, self._io_thread.jitter(), error.retry_after_s)
        self._io_thread.at(self._io_thread.now + delay, lambda: self._io_thread.enqueue(request))

    def failed(self, error: Exception) -> None:
        self.request.failed(error)

    def lost(self) -> None:
        self.request.tries_lost += 1
        if self.request.once:
            self.request.future.set_exception(
                UnknownOutcomeError(
                    f"{self.request.opcode.name} got no answer and may have been executed; a repeat would "
                    "also remove rows that arrived since. Check the log, and name offsets",
                    topic=self.request.topic,
                )
            )
            return
        self._io_thread.enqueue(self.request)


REQUEST_BACKOFF = Backoff(first_s=0.05, cap_s=2.0)


def send_waiting(io_thread: IoThread, peer: Peer) -> None:
    """Send the waiting requests of a peer while there is room; end those whose deadline has passed."""
    connection = peer.up
    now = io_thread.now
    for _ in range(len(peer.waiting)):
        request = peer.waiting.popleft()
        try:
            _send_or_wait(io_thread, peer, connection, request, now)
        except Exception as error:  # noqa: BLE001  # ends this request only
            request.failed(error)


def _send_or_wait(
    io_thread: IoThread, peer: Peer, connection: Connection | None, request: Request, now: float
) -> None:
    if request.deadline <= now:
        request.future.set_exception(request.expired_error(peer))
        return
    if connection is None or not connection.room_for(len(request.body)):
        peer.waiting.append(request)
        return
    left = min(request.deadline, now + TRY_S_MAX)
    wait = request.wait_s if request.wait_s > 0 else left - now
    # Also a short poll waits for a late answer: a busy node answers it after many others, and would serve the
    # same poll twice if it came again.
    polls_until = now + wait + ANSWER_GRACE_S if request.wait_s > 0 else 0.0
    pending = PendingRequest(io_thread, peer, request, left + ANSWER_GRACE_S, polls_until)
    deadline = deadline_ms(min(left, now + wait), now)
    if connection.send(request.opcode, request.body, pending, deadline_ms=deadline, **request.fields):
        request.sent = True
    else:
        peer.waiting.append(request)
