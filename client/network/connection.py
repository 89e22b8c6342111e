"""One DEALER socket to one address: handshake, credit, request ids, and pending requests.

A socket is used for one connection only. After a break libzmq would reconnect by itself and silently drop
queued messages. Therefore reconnecting is set to one hour, a monitor reports the end, and the I/O thread
opens a new socket. All pending requests are then reported as lost.

Used by the I/O thread only; nothing here is thread-safe.
"""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING, Any

import zmq
import zmq.utils.monitor

from ringfence.common.codec import NO_BODY, Answer, checked, request_header
from ringfence.common.failure_detector import DetectorStep, FailureDetector
from ringfence.native import messages, wire
from ringfence.native._node import crc32c
from ringfence.native.errors import BatchError, ConnectError, ProtocolError, RingfenceError
from ringfence.native.frame import open_answer, open_stored, pack_publish

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Buffer

# Unanswered requests on one connection: 16 partitions with a full window of 64.
REQUESTS_MAX = 1024
# ZeroMQ's high-water marks. They are above REQUESTS_MAX, so that a send never finds a full queue.
MESSAGES_MAX = 2048
# Below this size copying into the message is cheaper than tracking the owner of the buffer (pyzmq's default).
COPY_BYTES_MAX = 65536
# The heartbeat ends the connection earlier.
PROBE_S_MAX = 60.0
# Delay with which an expired request is noticed. Checking 1,024 requests takes 50 us, more than sending one.
LOOK_S = 0.02
# Answers taken in one turn, so that other connections are served as well.
ANSWERS_PER_TURN_MAX = 256
# A fetch answer may hold one record of message_bytes_max and its header. No valid answer is larger.
ANSWER_BYTES_MAX = 2 * wire.MESSAGE_BYTES_MAX
PROGRAM = "ringfence-python 0.1"
logger = logging.getLogger("ringfence")
# Plain integers: combining enum members costs more than the call itself.
NOBLOCK = int(zmq.NOBLOCK)
NOBLOCK_MORE = int(zmq.NOBLOCK | zmq.SNDMORE)
HEARD = (
    zmq.EVENT_CONNECTED
    | zmq.EVENT_DISCONNECTED
    | zmq.EVENT_CLOSED
    | zmq.EVENT_CONNECT_RETRIED  # without CLOSED: no socket was created, or the name has no address
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
)
OPTIONS = {
    zmq.LINGER: 0,
    # Neither IMMEDIATE nor an interval of -1: both make libzmq drop the pipe of a broken connection. If that
    # happens between two frames of an answer, the next recv aborts the process (fq.cpp). The I/O thread
    # closes the socket long before the hour of RECONNECT_IVL has passed.
    zmq.IMMEDIATE: 0,
    zmq.SNDHWM: MESSAGES_MAX,
    zmq.RCVHWM: MESSAGES_MAX,
    zmq.MAXMSGSIZE: ANSWER_BYTES_MAX,
    zmq.HEARTBEAT_IVL: 10_000,
    zmq.HEARTBEAT_TIMEOUT: 20_000,
    zmq.HANDSHAKE_IVL: 5_000,
    zmq.CONNECT_TIMEOUT: 5_000,
    zmq.RECONNECT_IVL: 3_600_000,
}


def _connected(
    context: zmq.Context[Any], address: str, *, is_ipv6: bool
) -> tuple[zmq.Socket[Any], zmq.Socket[Any]]:
    """A connecting socket and its monitor. Raises ConnectError and leaves nothing open if that fails."""
    made = monitor = None
    try:
        made = context.socket(zmq.DEALER)
        for option, value in OPTIONS.items():
            made.setsockopt(option, value)
        made.setsockopt(zmq.IPV6, int(is_ipv6))
        monitor = made.get_monitor_socket(HEARD)
        made.connect(address)
    except (zmq.ZMQError, OSError) as error:
        _shut(made, monitor)
        raise ConnectError(f"address {address!r} cannot be used: {error}") from error
    return made, monitor


def _shut(socket: zmq.Socket[Any] | None, monitor: zmq.Socket[Any] | None) -> None:
    if socket is not None:
        with contextlib.suppress(zmq.ZMQError):
            socket.disable_monitor()
    if monitor is not None:
        monitor.close(0)
    if socket is not None:
        socket.close(0)


def _guarded(pending: Pending, step: Callable[[], object]) -> None:
    """Run one step of a request; an error ends this request only."""
    try:
        step()
    except ProtocolError:  # concerns the whole connection
        raise
    except Exception as error:  # noqa: BLE001  # a defect
        pending.failed(error)


class Pending:
    """A request that waits for an answer. Exactly one of `answered`, `stored` and `lost` is called, once."""

    __slots__ = ("body_bytes", "give_up_at", "opcode")
    polls_until: float = 0.0  # a long poll: until then a missing answer does not mean that the node is silent
    publishes: bool = False  # a PUBLISH: its acknowledgement goes to `stored`

    def __init__(self, give_up_at: float) -> None:
        self.give_up_at = give_up_at
        self.body_bytes = 0
        self.opcode: int  # set when it is sent, unless it `publishes`

    def answered(self, answer: Answer) -> None:
        """The node's answer."""
        raise AssertionError(f"{type(self)} takes no {answer}")

    def stored(self, first_offset: int) -> None:
        """The node has stored a PUBLISH; the other fields of the answer are not needed."""
        raise AssertionError(f"{type(self)} stores nothing at {first_offset}")

    def lost(self) -> None:
        """The connection ended or `give_up_at` has passed: a later answer is ignored."""
        raise AssertionError(type(self))

    def failed(self, error: Exception) -> None:
        """A defect occurred while the answer was handled; only this request is affected."""
        logger.error("the answer to a request could not be handled", exc_info=error)


# (shared header, body, sequence, send, rows, schema_id, deadline_ms, extension_bytes, crc) of a PUBLISH. The
# shared header has the fields that all batches of a partition share. A plain tuple: to make a NamedTuple for
# each batch took 0.8 us more.
PublishBatch = tuple[bytes, bytearray, int, int, int, int, int, int, int]


class Connection:
    """`ready` is None until READY arrives; `failure` is the reason if the node refused the handshake."""

    def __init__(
        self,
        context: zmq.Context[Any],
        address: str,
        *,
        credential: str | None,
        give_up_at: float,
        on_push: Callable[[Connection, Answer], None],
        is_ipv6: bool = False,
    ) -> None:
        """`is_ipv6`: resolve the host name to IPv6 addresses as well.

        Raises:
            ConnectError: the address cannot be used, or the system has no socket left.
        """
        self.address = address
        self.ready: messages.Ready | None = None
        self.failure: RingfenceError | None = None
        self.ended = False
        self.reached = False  # the TCP connection was accepted
        self.is_nameless = False  # the host name has no address
        self.greeted = False
        self.credit_bytes = 0
        self.unanswered_bytes = 0
        self.message_bytes_max = wire.MESSAGE_BYTES_MAX
        self.give_up_at = give_up_at  # for the handshake
        self._credential = credential
        self._on_push = on_push
        self._pending: dict[int, Pending] = {}
        self._outgoing: list[tuple[Buffer, Buffer, int]] = []  # sent by `flush`; bounded by REQUESTS_MAX
        self._next_id = 1
        self._look_at = 0.0
        self._silence = FailureDetector()
        self._heard = False  # a message arrived since the last `look`
        self.socket, self.monitor = _connected(context, address, is_ipv6=is_ipv6)

    def __len__(self) -> int:
        return len(self._pending)

    def close(self) -> None:
        """Close the socket; pending requests are reported as lost."""
        waiting = list(self._pending.values())
        self._pending.clear()
        self.ended, self.unanswered_bytes = True, 0
        _shut(self.socket, self.monitor)
        for pending in waiting:
            _guarded(pending, pending.lost)

    # ---- sending --------------------------------------------------------------------------------------

    def room_for(self, body_bytes: int) -> bool:
        """Whether the credit covers the body. A body larger than the whole credit may be sent alone."""
        if self.ready is None or self.ended or len(self._pending) >= REQUESTS_MAX:
            return False
        return self.unanswered_bytes == 0 or self.unanswered_bytes + body_bytes <= self.credit_bytes

    def greet(self) -> None:
        """Send HELLO once the connection is established; before that this does nothing."""
        if self.greeted:
            return
        hello = messages.Hello(
            version_min=wire.PROTOCOL_VERSION_MIN,
            version_max=wire.PROTOCOL_VERSION,
            client=PROGRAM,
            credential=self._credential,
            features=int(wire.Features.RESUME_RANGES | wire.Features.LINEAGE),
        )
        self.greeted = self.send(
            wire.Opcode.HELLO, messages.encode(hello), Greeting(self), flags=wire.RequestFlags.CONTROL
        )

    def greeted_back(self, answer: Answer) -> None:
        """Handle the answer to HELLO: READY, or the reason of a refusal."""
        if answer.header.status == wire.Status.READY:
            self.ready = answer.control(messages.Ready)
            self.credit_bytes = answer.header.credit_bytes
            self.message_bytes_max = self.ready.message_bytes_max
        else:
            self.failure = answer.error()

    def send(
        self, opcode: int, body: Buffer, pending: Pending | None, *, crc: int | None = None, **fields: int
    ) -> bool:
        """Send one request with the next `flush`. False if the connection has ended or is not established.

        Args:
            opcode: of the request.
            body: one frame; from 64 KiB on it is referenced, not copied.
            pending: receives the answer; None if there is no answer.
            crc: of the body, if already known.
            fields: of the request's header.

        Raises:
            BatchError: the body is above the node's limit. The node would close the connection silently.
        """
        size = memoryview(body).nbytes
        self._check_size(size)
        if crc is None:
            crc = crc32c(body) if size else 0
        if pending is not None:
            pending.opcode = opcode
        header = request_header(opcode, self._next_id, body_bytes=size, body_crc=crc, **fields)
        return self._take(header, body, size, pending)

    def publish(self, batch: PublishBatch, pending: Pending) -> bool:
        """Like `send`, for a batch. Unpacks the fields in the order of `PublishBatch`."""
        shared_header, body, sequence, send, rows, schema_id, deadline_ms, extension_bytes, crc = batch
        size = len(body)
        self._check_size(size)
        header = pack_publish(
            shared_header,
            self._next_id,
            sequence,
            send,
            rows,
            schema_id,
            deadline_ms,
            extension_bytes,
            size,
            crc,
        )
        return self._take(header, body, size, pending)

    def _check_size(self, size: int) -> None:
        if size > self.message_bytes_max:
            raise BatchError(
                "a message is above the node's message_bytes_max; send fewer rows at once",
                body_bytes=size,
                message_bytes_max=self.message_bytes_max,
            )

    def _take(self, header: Buffer, body: Buffer, size: int, pending: Pending | None) -> bool:
        self._outgoing.append((header, body, size))
        if (size >= COPY_BYTES_MAX or not self.greeted) and not self.flush():
            return False
        if pending is not None:
            pending.body_bytes = size
            self.unanswered_bytes += size
            self._pending[self._next_id] = pending
        self._next_id += 1
        return True

    def flush(self) -> bool:
        """Hand small requests to ZeroMQ, one directly after the other. False if the connection has ended.

        ZeroMQ's own thread takes all messages that are queued when it wakes. With other work between two
        sends, each send would wake that thread again: 7 us a call instead of 2.
        """
        outgoing, self._outgoing = self._outgoing, []
        send = self.socket.send
        try:
            for header, body, size in outgoing:
                if size:
                    send(header, NOBLOCK_MORE)
                    send(body, NOBLOCK, copy=size < COPY_BYTES_MAX)
                else:
                    send(header, NOBLOCK)
        except zmq.Again:
            # Below REQUESTS_MAX no queue is full, so the peer is gone and the monitor will report that soon.
            # An immediate retry would loop.
            self.ended = self.greeted
            return False
        return True

    # ---- receiving ------------------------------------------------------------------------------------

    def receive(self) -> None:
        """Receive answers, at most ANSWERS_PER_TURN_MAX.

        Raises:
            ProtocolError: a frame is damaged; the connection must be closed.
        """
        socket = self.socket
        for _ in range(ANSWERS_PER_TURN_MAX):
            try:
                frame = socket.recv(NOBLOCK)
            except zmq.Again:
                return
            acknowledged = open_stored(frame)
            if acknowledged is not None and self._stored(*acknowledged):
                continue
            header = open_answer(frame)
            body = NO_BODY
            # Most answers are a header alone. Reading RCVMORE would cost as much as reading the header.
            if header.body_bytes:
                try:
                    body = socket.recv(NOBLOCK, copy=False).buffer
                except zmq.Again:
                    raise ProtocolError(
                        "an answer has no body although its header announces one", address=self.address
                    ) from None
                if socket.getsockopt(zmq.RCVMORE):
                    raise ProtocolError("an answer has more than two frames", address=self.address)
            self._dispatch(checked(header, body))

    def _stored(self, request_id: int, first_offset: int, credit_bytes: int) -> bool:
        """Acknowledge a PUBLISH without building an Answer of 22 fields. False for other requests."""
        pending = self._pending.get(request_id)
        if pending is None or not pending.publishes:
            return False
        del self._pending[request_id]
        self._heard = True
        if credit_bytes:
            self.credit_bytes = credit_bytes
        self.unanswered_bytes -= pending.body_bytes
        try:
            pending.stored(first_offset)
        except Exception as error:  # noqa: BLE001  # of this request alone
            pending.failed(error)
        return True

    def _dispatch(self, answer: Answer) -> None:
        header = answer.header
        self._heard = True
        if header.status == wire.Status.PUSH:
            self._on_push(self, answer)
            return
        pending = self._pending.get(header.request_id)
        if header.credit_bytes:
            self.credit_bytes = header.credit_bytes
        if pending is not None:  # else the request has expired
            asked = wire.Opcode.PUBLISH if pending.publishes else pending.opcode
            if header.opcode != asked:
                raise ProtocolError(
                    "the opcode of an answer differs from that of its request",
                    address=self.address,
                    opcode=header.opcode,
                    asked=int(asked),
                )
            del self._pending[header.request_id]
            self.unanswered_bytes -= pending.body_bytes
            _guarded(pending, lambda: pending.answered(answer))

    def give_up(self, now: float) -> None:
        """Report expired requests as lost; checks all requests every LOOK_S."""
        if now < self._look_at:
            return
        self._look_at = now + LOOK_S
        self.give_up_those(lambda pending: pending.give_up_at <= now)

    def give_up_those(self, which: Callable[[Pending], bool]) -> None:
        """Remove the matching requests and report them as lost."""
        for pending in self.take_those(which):
            _guarded(pending, pending.lost)

    def take_those(self, which: Callable[[Pending], bool]) -> list[Pending]:
        """Remove and return the matching requests; the caller reports their outcome."""
        numbers = [number for number, pending in self._pending.items() if which(pending)]
        taken = [self._pending.pop(number) for number in numbers]
        self.unanswered_bytes -= sum(pending.body_bytes for pending in taken)
        return taken

    def pending(self) -> list[Pending]:
        """All requests without an answer."""
        return list(self._pending.values())

    # ---- failure detection ----------------------------------------------------------------------------

    @property
    def silent(self) -> bool:
        """Whether the node was declared silent and no message has arrived since."""
        return self._silence.silent and not self._heard

    def look(self, now: float) -> DetectorStep:
        """The step that the failure detector asks for; see `failure_detector.py`."""
        if now < self._silence.look_at:
            return DetectorStep.NOTHING
        heard, self._heard = self._heard, False
        waits = not heard and any(pending.polls_until <= now for pending in self._pending.values())
        return self._silence.look(now, waits=waits, heard=heard)

    def probe(self, now: float) -> None:
        """Request the table of no topic: any node refuses that immediately."""
        self.send(wire.Opcode.TABLE, b"", Probe(now + PROBE_S_MAX))

    def read_monitor(self) -> None:
        """Read the monitor's events: all except CONNECTED mean that the connection has ended."""
        while True:
            try:
                event = zmq.utils.monitor.recv_monitor_message(self.monitor, zmq.NOBLOCK)["event"]
            except zmq.Again:
                return
            if event == zmq.EVENT_CONNECTED:
                self.reached = True
            else:
                self.is_nameless |= event == zmq.EVENT_CONNECT_RETRIED and not self.ended
                self.ended = True

    def found(self) -> str:
        """State of the connection, for the text of an error about a missing answer."""
        if self.ready is not None:
            return f"{self.address} is connected but does not respond: the node is stopped or overloaded"
        if self.reached:
            return f"{self.address} accepts connections but sends no handshake: check that a node runs there"
        if self.ended and not self.is_nameless:
            return f"{self.address} refuses connections: check that `ringfence serve` runs there"
        return f"no response from {self.address}: check the host name and the network"


class Probe(Pending):
    """A request whose only purpose is to get any answer."""

    __slots__ = ()
    polls = True  # else an unanswered probe would cause the next probe

    def answered(self, answer: Answer) -> None:
        """`look` sees that a message arrived."""

    def lost(self) -> None:
        """`look` sees that no message arrived."""


class Greeting(Pending):
    """Waits for READY."""

    __slots__ = ("_connection",)

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection.give_up_at)
        self._connection = connection

    def answered(self, answer: Answer) -> None:
        self._connection.greeted_back(answer)

    def lost(self) -> None:
        self._connection.ended = True
