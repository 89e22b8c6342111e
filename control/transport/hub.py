"""Send and receive control messages in an asyncio loop: one listening ROUTER, one DEALER for each peer.

Sending never waits: messages to an absent or slow peer are dropped and counted. Received messages are
checked in this order: size, form, version, cluster, receiver, incarnation. A message that fails a check is
counted and dropped.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import secrets
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Final

import structlog
import zmq

from ringfence.control.transport import envelope as envelopes
from ringfence.control.transport.envelope import ENVELOPE_BYTES_MAX, VERSION, Envelope, EnvelopeError, Kind
from ringfence.control.transport.incarnations import Incarnations, Verdict
from ringfence.native.errors import ConfigError

_LOG = structlog.get_logger("ringfence.transport")
# Messages in the queue to one peer: a few seconds of a busy log. Most are far below the limit of 4 MiB.
QUEUE_MESSAGES_MAX: Final = 256
# Connections to peers; above it the least recently used one is closed.
PEERS_MAX: Final = 1_024
# Open questions of this node, and open questions of other nodes.
QUESTIONS_MAX: Final = 1_024
# Messages received before the loop may run other callbacks, above all the tick.
TURN_MESSAGES_MAX: Final = 64
# A restarted peer is connected again within half a second, which is below an election timeout.
RECONNECT_MS, RECONNECT_MS_MAX = 50, 500
HANDSHAKE_MS: Final = 5_000
CONNECT_MS: Final = 1_000
# A connection without a pong is closed and opened again: TCP itself backs off, and after a network cut of ten
# seconds it would wait twenty. libzmq's thread answers pings, so a busy node does not appear silent.
PING_MS, SILENT_MS = 500, 2_000
ANSWER_BYTES_MAX: Final = 1 << 20

_POLLIN: Final = int(zmq.POLLIN)

OnMessage = Callable[[Envelope], None]
OnQuestion = Callable[[Envelope], Awaitable[bytes]]


class NoAnswerError(Exception):
    """No answer to a question came in time."""


class ForeignClusterError(Exception):
    """The peer belongs to another cluster."""

    def __init__(self, own: bytes, foreign: bytes, address: str) -> None:
        super().__init__(
            f"the node at {address} belongs to cluster {foreign.hex()}, this one to {own.hex()}; "
            "name a node of this cluster, or use an empty data directory"
        )


class Hub:
    """The sockets of one node. Not thread-safe: all calls are on the loop's thread."""

    def __init__(
        self,
        *,
        on_message: OnMessage,
        on_question: OnQuestion,
        on_fenced: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`on_fenced` gets the reason if this process must end, because another one has its identity."""
        self._on_message, self._on_question, self._on_fenced = on_message, on_question, on_fenced
        # Identity of this node, set by `identify`; until then messages are dropped as "early".
        self.cluster, self.node, self.address = b"", 0, ""
        self.incarnation = secrets.randbits(62) + 1
        self._incarnations = Incarnations()
        self.counters: Counter[str] = Counter()
        # Created with the first socket.
        self._context: zmq.Context[zmq.Socket[bytes]] | None = None
        self._router: zmq.Socket[bytes] | None = None
        # By address, the least recently used first.
        self._dealers: dict[str, zmq.Socket[bytes]] = {}
        self._numbers = itertools.count(1)
        # Open questions of this node by number: address and answer.
        self._questions: dict[int, tuple[str, asyncio.Future[bytes]]] = {}
        # Open questions of other nodes.
        self._answer_tasks: set[asyncio.Task[None]] = set()
        # Reasons of refused messages that the log has already.
        self._logged_reasons: set[str] = set()
        self._closed = False

    def bind(self, address: str) -> str:
        """Listen, and return the address with its actual port. ConfigError if it cannot be bound."""
        router = self._socket(zmq.ROUTER, address)
        try:
            router.bind(address.replace(":0", ":*") if address.endswith(":0") else address)
        except zmq.ZMQError as error:
            router.close()
            raise ConfigError(f"control={address!r}: {error.strerror}", key="control") from error
        self.address = router.getsockopt_string(zmq.LAST_ENDPOINT)
        self._router = router
        asyncio.get_running_loop().add_reader(_number(router, zmq.FD), self.drain)
        return self.address

    def identify(self, cluster: bytes, node: int) -> None:
        """Set the identity of this node: that of sent envelopes, and of accepted ones."""
        self.cluster, self.node = cluster, node

    def send(self, address: str, to: int, kind: Kind, body: bytes) -> bool:
        """Send or drop a message; True if it was queued."""
        return self._send(address, to, kind, body, 0)

    async def ask(self, address: str, body: bytes, timeout_s: float, *, to: int = 0) -> bytes:
        """Send a question, and return the answer.

        Raises:
            NoAnswerError: no answer came within `timeout_s`.
            ForeignClusterError: the node at `address` belongs to another cluster.
        """
        if not address:
            raise NoAnswerError("its control address is not known")
        if len(self._questions) >= QUESTIONS_MAX:
            text = f"too many questions to other nodes are open (limit {QUESTIONS_MAX}); retry later"
            raise NoAnswerError(text)
        number = next(self._numbers)
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._questions[number] = (address, answer)
        end = asyncio.get_running_loop().time() + timeout_s
        try:
            # A new connection accepts no messages before its handshake.
            while not self._send(address, to, Kind.ASK, body, number):
                if asyncio.get_running_loop().time() >= end:
                    raise NoAnswerError(f"no connection to {address} within {timeout_s:g} s")
                await asyncio.sleep(0.02)
            async with asyncio.timeout_at(end):
                return await answer
        except TimeoutError as error:
            raise NoAnswerError(f"no answer from {address} within {timeout_s:g} s") from error
        finally:
            self._questions.pop(number, None)

    def close_except(self, addresses: set[str]) -> None:
        """Close connections to other addresses, unless a question is open there."""
        in_use = {address for address, _ in self._questions.values()}
        for address in self._dealers.keys() - addresses - in_use:
            self._close(self._dealers.pop(address))

    def drain(self) -> None:
        """Receive waiting messages. The loop calls this, and the node does before a tick.

        A tick must not start an election while a heartbeat waits in a socket.
        """
        if self._closed:
            return
        count = 0
        for source in (self._router, *self._dealers.values()):
            while (
                source is not None
                and count < TURN_MESSAGES_MAX
                and not source.closed
                and _is_readable(source)
            ):
                try:
                    parts = source.recv_multipart(zmq.NOBLOCK)
                except zmq.Again:
                    break
                count += 1
                self._take(source, parts)
        if count >= TURN_MESSAGES_MAX:
            asyncio.get_running_loop().call_soon(self.drain)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        for task in self._answer_tasks:
            task.cancel()
        for _, answer in self._questions.values():
            answer.cancel()
        for dealer in self._dealers.values():
            self._close(dealer)
        if self._router is not None:
            self._close(self._router)
        if self._context is not None:
            self._context.term()

    # ---- parts --------------------------------------------------------------------------------------

    def _socket(self, kind: int, address: str) -> zmq.Socket[bytes]:
        if self._context is None:
            self._context = zmq.Context(io_threads=1)
        socket: zmq.Socket[bytes] = self._context.socket(kind)
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.SNDHWM, QUEUE_MESSAGES_MAX)
        socket.setsockopt(zmq.RCVHWM, QUEUE_MESSAGES_MAX)
        socket.setsockopt(zmq.MAXMSGSIZE, ENVELOPE_BYTES_MAX)
        socket.setsockopt(zmq.HANDSHAKE_IVL, HANDSHAKE_MS)
        socket.setsockopt(zmq.CONNECT_TIMEOUT, CONNECT_MS)
        socket.setsockopt(zmq.HEARTBEAT_IVL, PING_MS)
        socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, SILENT_MS)
        socket.setsockopt(zmq.RECONNECT_IVL, RECONNECT_MS)
        socket.setsockopt(zmq.RECONNECT_IVL_MAX, RECONNECT_MS_MAX)
        # Queue no messages for an absent peer: it would get all of them later, when they are outdated.
        socket.setsockopt(zmq.IMMEDIATE, 1)
        # IPv6 for literal addresses only: for a name with addresses of both kinds libzmq would try IPv6 only.
        socket.setsockopt(zmq.IPV6, int(address.startswith("tcp://[")))
        return socket

    def _close(self, socket: zmq.Socket[bytes]) -> None:
        with contextlib.suppress(ValueError, RuntimeError):
            asyncio.get_running_loop().remove_reader(_number(socket, zmq.FD))
        socket.close()

    def _dealer(self, address: str) -> zmq.Socket[bytes] | None:
        dealer = self._dealers.pop(address, None)
        if dealer is None:
            dealer = self._socket(zmq.DEALER, address)
            try:
                dealer.connect(address)
            except zmq.ZMQError:
                dealer.close()
                return None
            asyncio.get_running_loop().add_reader(_number(dealer, zmq.FD), self.drain)
            while len(self._dealers) >= PEERS_MAX:
                self._close(self._dealers.pop(next(iter(self._dealers))))
        self._dealers[address] = dealer
        return dealer

    def _send(self, address: str, to: int, kind: Kind, body: bytes, number: int) -> bool:
        dealer = None if self._closed or not address else self._dealer(address)
        if dealer is None:
            self.counters["dropped"] += 1
            return False
        packed = envelopes.encode(
            Envelope(VERSION, kind, self.cluster, self.node, to, self.address, number, body, self.incarnation)
        )
        return self._put(dealer, [packed])

    def _put(self, socket: zmq.Socket[bytes], parts: list[bytes]) -> bool:
        try:
            socket.send_multipart(parts, zmq.NOBLOCK)
        except zmq.ZMQError:
            self.counters["dropped"] += 1
            return False
        finally:
            # The descriptor is edge-triggered, and a send may have consumed the edge of a received message.
            if _is_readable(socket):
                asyncio.get_running_loop().call_soon(self.drain)
        self.counters["sent"] += 1
        return True

    def _take(self, source: zmq.Socket[bytes], parts: list[bytes]) -> None:
        route = parts[:-1]  # A ROUTER prepends the id of the connection.
        if len(route) != (source is self._router):
            self.counters["garbage"] += 1
            return
        try:
            envelope = envelopes.decode(parts[-1])
        except EnvelopeError as error:
            self.counters[error.reason] += 1
            self._log_once(error.reason, str(error))
            return
        if source is self._router:
            self._receive(envelope, route[0])
        else:
            self._receive_answer(envelope)

    def _receive(self, envelope: Envelope, route: bytes) -> None:
        is_question = envelope.kind is Kind.ASK
        if not self.cluster:
            self.counters["early"] += 1  # `identify` has not been called yet.
            return
        if envelope.cluster != self.cluster and not (is_question and not envelope.cluster):
            self.counters["foreign"] += 1
            text = f"node {envelope.sender} at {envelope.address!r} of cluster {envelope.cluster.hex()}"
            self._log_once("foreign cluster", text)
            if is_question:
                self._answer(route, envelope, Kind.FOREIGN, b"")
            return
        if envelope.to != self.node and not (is_question and envelope.to == 0):
            self.counters["misdirected"] += 1
            return
        if envelope.kind in {Kind.ANSWER, Kind.FOREIGN, Kind.FENCED}:
            self.counters["garbage"] += 1
            return
        if envelope.sender and not self._is_accepted(envelope, route):
            return
        self.counters["received"] += 1
        if not is_question:
            self._on_message(envelope)
        elif len(self._answer_tasks) >= QUESTIONS_MAX:
            self.counters["overloaded"] += 1
        else:
            task = asyncio.get_running_loop().create_task(self._serve(route, envelope))
            self._answer_tasks.add(task)
            task.add_done_callback(self._answer_tasks.discard)

    def _is_accepted(self, envelope: Envelope, route: bytes) -> bool:
        """Whether the sending process is the accepted incarnation of its node."""
        verdict = self._incarnations.evaluate(envelope.sender, envelope.incarnation, _now_ms())
        if verdict is Verdict.ACCEPT:
            return True
        self.counters["other life"] += 1
        if verdict is Verdict.FENCE:
            self._log_once(f"identity of {envelope.sender}", f"a second process, at {envelope.address!r}")
            self._answer(route, envelope, Kind.FENCED, b"")
        return False

    def contested(self) -> list[int]:
        """Nodes with messages from two processes in the last seconds."""
        return self._incarnations.contested(_now_ms())

    def silence_ms(self, node: int) -> int | None:
        """Time since the last message of `node`; None if there was none."""
        return self._incarnations.silence_ms(node, _now_ms())

    async def _serve(self, route: bytes, envelope: Envelope) -> None:
        body = await self._on_question(envelope)
        assert len(body) <= ANSWER_BYTES_MAX, f"an answer of {len(body)} bytes"
        self._answer(route, envelope, Kind.ANSWER, body)

    def _answer(self, route: bytes, envelope: Envelope, kind: Kind, body: bytes) -> None:
        if self._router is None or self._closed:
            return
        packed = Envelope(
            VERSION,
            kind,
            self.cluster,
            self.node,
            envelope.sender,
            self.address,
            envelope.number,
            body,
            self.incarnation,
        )
        self._put(self._router, [route, envelopes.encode(packed)])

    def _receive_answer(self, envelope: Envelope) -> None:
        if envelope.kind is Kind.FENCED:
            if envelope.cluster == self.cluster and envelope.to == self.node:
                self._on_fenced(f"node {envelope.sender} at {envelope.address} says so")
            return
        address, answer = self._questions.get(envelope.number, ("", None))
        if answer is None or answer.done():
            self.counters["late"] += 1
        elif envelope.kind is Kind.FOREIGN:
            answer.set_exception(ForeignClusterError(self.cluster, envelope.cluster, address))
        elif envelope.kind is Kind.ANSWER:
            answer.set_result(envelope.body)
        else:
            self.counters["garbage"] += 1

    def _log_once(self, reason: str, text: str) -> None:
        """Log the first refusal for each reason; a foreign sender cannot fill the disk with log lines."""
        if reason not in self._logged_reasons:
            self._logged_reasons.add(reason)
            _LOG.warning("control message refused", reason=reason, text=text[:300])


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000


def _is_readable(socket: zmq.Socket[bytes]) -> bool:
    """Whether a message waits. Usually none does, and an exception `Again` would cost twice as much."""
    waiting = socket.getsockopt(zmq.EVENTS)
    assert type(waiting) is int, f"EVENTS is {waiting!r}"
    return waiting & _POLLIN != 0


def _number(socket: zmq.Socket[bytes], option: zmq.SocketOption) -> int:
    value = socket.getsockopt(option)
    assert isinstance(value, int), f"{option.name} is {value!r}"
    return value
