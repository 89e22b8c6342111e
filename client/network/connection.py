"""One DEALER socket to one address: handshake, credit, request ids, and who waits for which answer.

A socket lives as long as one connection: when it breaks, libzmq would connect again by itself and lose what
was queued without a word. So its reconnecting is an hour away, a monitor tells of the end, and the link makes
a new one; everything that waited is told that its answer will never come.

Belongs to the link's thread; nothing here is thread-safe.
"""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING, Any

import zmq
import zmq.utils.monitor

from ringfence.common.codec import NO_BODY, Answer, checked, request_header
from ringfence.common.failure_detector import Silence, Step
from ringfence.native import messages, wire
from ringfence.native._node import crc32c
from ringfence.native.errors import BatchError, ConnectError, ProtocolError, RingfenceError
from ringfence.native.frame import open_answer, open_stored, pack_publish

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Buffer

REQUESTS_MAX = 1024  # unanswered on one connection; 16 partitions with a full window of 64
MESSAGES_MAX = (
    2048  # ZeroMQ's marks: the last line behind REQUESTS_MAX, so that a send never finds a full queue
)
COPY_BYTES_MAX = (
    65536  # below it copying into the message is cheaper than tracking its owner (pyzmq's own figure)
)
PROBE_S_MAX = 60.0  # the heartbeat ends the connection before
LOOK_S = 0.02  # how late a request is given up: looking at 1,024 takes 50 us, more than sending one
ANSWERS_PER_TURN_MAX = 256  # then others get their turn
# A fetch answer may be one record of message_bytes_max with its header; anything larger is no answer of a
# node.
ANSWER_BYTES_MAX = 2 * wire.MESSAGE_BYTES_MAX
PROGRAM = "ringfence-python 0.1"
logger = logging.getLogger("ringfence")
NOBLOCK = int(zmq.NOBLOCK)  # plain numbers: joining enum members costs more than the call they are for
NOBLOCK_MORE = int(zmq.NOBLOCK | zmq.SNDMORE)
HEARD = (
    zmq.EVENT_CONNECTED
    | zmq.EVENT_DISCONNECTED
    | zmq.EVENT_CLOSED
    | zmq.EVENT_CONNECT_RETRIED  # alone: no socket could be made, or the name has no address
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
)
OPTIONS = {
    zmq.LINGER: 0,
    # Neither IMMEDIATE nor an interval of -1: with them libzmq drops the pipe of a broken connection, and if
    # that happens between the frames of an answer the next recv aborts the process (fq.cpp). The link closes
    # the socket long before an hour is over.
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
    """A socket that connects, and its monitor. ConnectError: the system gives none, nothing is left of it."""
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
    """A request's step on the thread that serves all of them: what fails there is that request alone."""
    try:
        step()
    except ProtocolError:  # of the connection
        raise
    except Exception as error:  # noqa: BLE001  # whatever it is
        pending.failed(error)


class Pending:
    """A request that waits for its answer. One of `answered`, `stored` and `lost` is called, once."""

    __slots__ = ("body_bytes", "give_up_at", "opcode")
    polls: bool = False  # the node may keep it for as long as it likes: no answer means nothing
    publishes: bool = False  # a PUBLISH: that it is stored comes to `stored`

    def __init__(self, give_up_at: float) -> None:
        self.give_up_at = give_up_at
        self.body_bytes = 0
        self.opcode: int  # set where it is sent, unless it `publishes`

    def answered(self, answer: Answer) -> None:
        """The node's answer."""
        raise AssertionError(f"{type(self)} takes no {answer}")

    def stored(self, first_offset: int) -> None:
        """The node's answer to a PUBLISH that it stored: nothing else in it matters."""
        raise AssertionError(f"{type(self)} stores nothing at {first_offset}")

    def lost(self) -> None:
        """The connection is gone, or `give_up_at` is over: no answer will be taken any more."""
        raise AssertionError(type(self))

    def failed(self, error: Exception) -> None:
        """A defect while its answer was handled: who waits for it hears of it, and nothing else does."""
        logger.error("the answer to a request could not be handled", exc_info=error)


class Connection:
    """`ready` is None until READY came; `failure` says why the node refused the handshake, if it did."""

    def __init__(
        self,
        context: zmq.Context[Any],
        address: str,
        *,
        credential: str | None,
        give_up_at: float,
        on_push: Callable[[Answer], None],
        is_ipv6: bool = False,
    ) -> None:
        """`is_ipv6`: a name is looked up as one of IPv6, too.

        Raises:
            ConnectError: the address cannot be used, or the system gives no further socket.
        """
        self.address = address
        self.ready: messages.Ready | None = None
        self.failure: RingfenceError | None = None
        self.ended = False
        self.reached = False  # something listens there
        self.is_nameless = False  # the host's name leads nowhere
        self.greeted = False
        self.credit_bytes = 0
        self.unanswered_bytes = 0
        self.message_bytes_max = wire.MESSAGE_BYTES_MAX
        self.give_up_at = give_up_at  # for the handshake
        self._credential = credential
        self._on_push = on_push
        self._pending: dict[int, Pending] = {}
        self._outgoing: list[tuple[Buffer, Buffer, int]] = []  # until `flush`; bounded by REQUESTS_MAX
        self._next_id = 1
        self._look_at = 0.0
        self._silence = Silence()
        self._heard = False  # since the last look
        self.socket, self.monitor = _connected(context, address, is_ipv6=is_ipv6)

    def __len__(self) -> int:
        return len(self._pending)

    def close(self) -> None:
        """Close the socket; whoever still waited hears that the answer is lost."""
        waiting = list(self._pending.values())
        self._pending.clear()
        self.ended, self.unanswered_bytes = True, 0
        _shut(self.socket, self.monitor)
        for pending in waiting:
            _guarded(pending, pending.lost)

    # ---- sending --------------------------------------------------------------------------------------

    def room_for(self, body_bytes: int) -> bool:
        """Whether the credit covers the body; a body above the whole credit may go alone."""
        if self.ready is None or self.ended or len(self._pending) >= REQUESTS_MAX:
            return False
        return self.unanswered_bytes == 0 or self.unanswered_bytes + body_bytes <= self.credit_bytes

    def greet(self) -> None:
        """Send HELLO once the connection stands; until then this does nothing."""
        if self.greeted:
            return
        hello = messages.Hello(
            version_min=wire.PROTOCOL_VERSION_MIN,
            version_max=wire.PROTOCOL_VERSION,
            client=PROGRAM,
            credential=self._credential,
        )
        self.greeted = self.send(
            wire.Opcode.HELLO, messages.encode(hello), Greeting(self), flags=wire.RequestFlags.CONTROL
        )

    def greeted_back(self, answer: Answer) -> None:
        """READY, or why not."""
        if answer.header.status == wire.Status.READY:
            self.ready = answer.control(messages.Ready)
            self.credit_bytes = answer.header.credit_bytes
            self.message_bytes_max = self.ready.message_bytes_max
        else:
            self.failure = answer.error()

    def send(
        self, opcode: int, body: Buffer, pending: Pending | None, *, crc: int | None = None, **fields: int
    ) -> bool:
        """Send one request with the next `flush`; False if the connection is over, or does not stand yet.

        Args:
            opcode: what is asked.
            body: one frame; kept, not copied, from 64 KiB on.
            pending: who waits for the answer; None where there is none.
            crc: of the body, where it is known already.
            fields: of the request's header.

        Raises:
            BatchError: the body is above what the node takes. It would close the connection without a word.
        """
        size = memoryview(body).nbytes
        self._check_size(size)
        if crc is None:
            crc = crc32c(body) if size else 0
        if pending is not None:
            pending.opcode = opcode
        header = request_header(opcode, self._next_id, body_bytes=size, body_crc=crc, **fields)
        return self._take(header, body, size, pending)

    def publish(
        self,
        kept: bytes,
        data: bytearray,
        pending: Pending,
        sequence: int,
        send: int,
        rows: int,
        schema_id: int,
        deadline_ms: int,
        extension_bytes: int,
        crc: int,
    ) -> bool:
        """As `send`, for a batch: `kept` is a header with all that its partition's batches have in common."""
        size = len(data)
        self._check_size(size)
        header = pack_publish(
            kept,
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
        return self._take(header, data, size, pending)

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
        """Hand small requests to ZeroMQ, one right behind the other; False if the connection is over.

        ZeroMQ's own thread takes what has come since it last looked. Handed over one by one, with what a
        request takes here in between, each would wake it anew: 7 us a call instead of 2.
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
            # Below REQUESTS_MAX no queue is full: the peer is gone, and the monitor will say so in a moment.
            # Whoever tried again at once would try for ever.
            self.ended = self.greeted
            return False
        return True

    # ---- receiving ------------------------------------------------------------------------------------

    def receive(self) -> None:
        """Take answers that have come, at most ANSWERS_PER_TURN_MAX.

        Raises:
            ProtocolError: a frame is damaged: the connection cannot be trusted any more.
        """
        socket = self.socket
        for _ in range(ANSWERS_PER_TURN_MAX):
            try:
                frame = socket.recv(NOBLOCK)
            except zmq.Again:
                return
            told = open_stored(frame)
            if told is not None and self._stored(*told):
                continue
            header = open_answer(frame)
            body = NO_BODY
            if (
                header.body_bytes
            ):  # most answers are a header alone, and asking for RCVMORE costs as much as reading it
                try:
                    body = socket.recv(NOBLOCK, copy=False).buffer
                except zmq.Again:
                    raise ProtocolError(
                        "an answer lacks the body that it names", address=self.address
                    ) from None
                if socket.getsockopt(zmq.RCVMORE):
                    raise ProtocolError("an answer has more than two frames", address=self.address)
            self._dispatch(checked(header, body))

    def _stored(self, request_id: int, first_offset: int, credit_bytes: int) -> bool:
        """What most answers say, without an Answer of 22 fields. False if it is none to a PUBLISH."""
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
            self._on_push(answer)
            return
        pending = self._pending.get(header.request_id)
        if header.credit_bytes:
            self.credit_bytes = header.credit_bytes
        if pending is not None:  # else the answer came after its time
            asked = wire.Opcode.PUBLISH if pending.publishes else pending.opcode
            if header.opcode != asked:  # whatever it says is of something else; the request stays unanswered
                raise ProtocolError(
                    "an answer is of another opcode than its request",
                    address=self.address,
                    opcode=header.opcode,
                    asked=int(asked),
                )
            del self._pending[header.request_id]
            self.unanswered_bytes -= pending.body_bytes
            _guarded(pending, lambda: pending.answered(answer))

    def give_up(self, now: float) -> None:
        """Tell the requests whose time for an answer is over; looks at all of them every LOOK_S."""
        if now < self._look_at:
            return
        self._look_at = now + LOOK_S
        self.give_up_those(lambda pending: pending.give_up_at <= now)

    def give_up_those(self, which: Callable[[Pending], bool]) -> None:
        """No answer to these will be taken any more: they are told so."""
        for pending in self.take_those(which):
            _guarded(pending, pending.lost)

    def take_those(self, which: Callable[[Pending], bool]) -> list[Pending]:
        """As `give_up_those`, for who tells them something else."""
        numbers = [number for number, pending in self._pending.items() if which(pending)]
        taken = [self._pending.pop(number) for number in numbers]
        self.unanswered_bytes -= sum(pending.body_bytes for pending in taken)
        return taken

    def pending(self) -> list[Pending]:
        """Who waits for an answer."""
        return list(self._pending.values())

    # ---- silence --------------------------------------------------------------------------------------

    @property
    def silent(self) -> bool:
        """Whether it was taken for silent, and nothing was heard since."""
        return self._silence.silent and not self._heard

    def look(self, now: float) -> Step:
        """The step that the failure detector asks for; see `failure_detector.py`."""
        if now < self._silence.look_at:
            return Step.NOTHING
        heard, self._heard = self._heard, False
        waits = not heard and not all(pending.polls for pending in self._pending.values())
        return self._silence.look(now, waits=waits, heard=heard)

    def probe(self, now: float) -> None:
        """Ask for the table of no topic: a node says at once that there is none."""
        self.send(wire.Opcode.TABLE, b"", Probe(now + PROBE_S_MAX))

    def read_monitor(self) -> None:
        """Take the monitor's events: all but one say that the connection is over."""
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
        """How far it came, for the text of an error that nobody answers."""
        if self.ready is not None:
            return f"{self.address} is connected and silent: its node stands still, or is overloaded"
        if self.reached:
            return f"{self.address} takes connections but does not greet as a node: is it one, and alive?"
        if self.ended and not self.is_nameless:
            return f"{self.address} refuses connections: check that `ringfence serve` runs there"
        return f"nothing came back from {self.address}: check the host's name and the way there"


class Probe(Pending):
    """Any answer will do: that one comes is all."""

    __slots__ = ()
    polls = True  # else a probe would ask for the next one

    def answered(self, answer: Answer) -> None:
        """`look` sees that something was heard."""

    def lost(self) -> None:
        """So it does if nothing was."""


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
