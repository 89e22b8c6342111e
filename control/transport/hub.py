"""One ROUTER that listens, one DEALER for each peer, inside of an asyncio loop.

Sending never waits: a peer that is gone or slow loses messages, and the hub counts them. What comes in is
checked in this order: size, form, version, cluster, receiver, life; what fails is counted and dropped.
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
QUEUE_MESSAGES_MAX: Final = 256
"""Messages that wait for one peer: a few seconds of a busy log; most are far below their limit of 4 MiB."""
PEERS_MAX: Final = 1_024
"""Connections to others; above it the one that was used longest ago is closed."""
ASKS_MAX: Final = 1_024
"""Questions under way, of this node and of others, each."""
TURN_MESSAGES_MAX: Final = 64
"""Messages taken before the loop may run something else, above all the tick."""
RECONNECT_MS, RECONNECT_MS_MAX = 50, 500
"""A peer that restarts is found again within half a second: below an election time-out."""
HANDSHAKE_MS: Final = 5_000
CONNECT_MS: Final = 1_000
PING_MS, SILENT_MS = 500, 2_000
"""A connection that a cut network has made deaf is made anew: TCP itself would wait ever longer, twenty
seconds after a cut of ten. libzmq's own thread answers, so a busy node is not taken for a silent one."""
ANSWER_BYTES_MAX: Final = 1 << 20

_POLLIN: Final = int(zmq.POLLIN)

OnMessage = Callable[[Envelope], None]
OnAsk = Callable[[Envelope], Awaitable[bytes]]


class NoAnswerError(Exception):
    """Nobody answered a question in time."""


class ForeignClusterError(Exception):
    """The peer belongs to another cluster."""

    def __init__(self, mine: bytes, its: bytes, address: str) -> None:
        super().__init__(
            f"the node at {address} belongs to cluster {its.hex()}, this one to {mine.hex()}; "
            "name a node of this cluster, or use an empty data directory"
        )


class Hub:
    """Not thread-safe: everything on the loop's thread."""

    def __init__(
        self, *, on_message: OnMessage, on_ask: OnAsk, on_fenced: Callable[[str], None] = lambda _: None
    ) -> None:
        """`on_fenced` hears why this process must end: another one has its identity."""
        self._on_message, self._on_ask, self._on_fenced = on_message, on_ask, on_fenced
        self.cluster, self.node, self.address = b"", 0, ""
        self.life = secrets.randbits(62) + 1
        self._lives = Incarnations()
        self.counters: Counter[str] = Counter()
        self._context: zmq.Context[zmq.Socket[bytes]] | None = None  # made with the first socket
        self._router: zmq.Socket[bytes] | None = None
        self._dealers: dict[str, zmq.Socket[bytes]] = {}
        self._numbers = itertools.count(1)
        self._asked: dict[int, tuple[str, asyncio.Future[bytes]]] = {}
        self._answering: set[asyncio.Task[None]] = set()
        self._told: set[str] = set()
        self._closed = False

    def bind(self, address: str) -> str:
        """Listen; the address with the port that was given. ConfigError when it cannot be bound."""
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
        """Who this node is: what it says of itself, and whom it listens to."""
        self.cluster, self.node = cluster, node

    def send(self, address: str, to: int, kind: Kind, body: bytes) -> bool:
        """Send, or drop; True if it is on its way."""
        return self._send(address, to, kind, body, 0)

    async def ask(self, address: str, body: bytes, timeout_s: float, *, to: int = 0) -> bytes:
        """A question and its answer.

        Raises:
            NoAnswerError: none came within `timeout_s`.
            ForeignClusterError: the node there belongs to another cluster.
        """
        if not address:
            raise NoAnswerError("its control address is not known")
        if len(self._asked) >= ASKS_MAX:
            raise NoAnswerError(f"{ASKS_MAX} questions to other nodes are open already")
        number = next(self._numbers)
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._asked[number] = (address, answer)
        end = asyncio.get_running_loop().time() + timeout_s
        try:
            # A connection that is being made takes nothing yet.
            while not self._send(address, to, Kind.ASK, body, number):
                if asyncio.get_running_loop().time() >= end:
                    raise NoAnswerError(f"no connection to {address} within {timeout_s:g} s")
                await asyncio.sleep(0.02)
            async with asyncio.timeout_at(end):
                return await answer
        except TimeoutError as error:
            raise NoAnswerError(f"no answer from {address} within {timeout_s:g} s") from error
        finally:
            self._asked.pop(number, None)

    def keep(self, addresses: set[str]) -> None:
        """Close connections to addresses that nobody has any more."""
        for address in self._dealers.keys() - addresses - {told for told, _ in self._asked.values()}:
            self._close(self._dealers.pop(address))

    def drain(self) -> None:
        """Take what has come. Called by the loop, and before a tick: what waits is heard first."""
        if self._closed:
            return
        taken = 0
        for place in (self._router, *self._dealers.values()):
            while place is not None and taken < TURN_MESSAGES_MAX and not place.closed and _has_come(place):
                try:
                    parts = place.recv_multipart(zmq.NOBLOCK)
                except zmq.Again:
                    break
                taken += 1
                self._take(place, parts)
        if taken >= TURN_MESSAGES_MAX:
            asyncio.get_running_loop().call_soon(self.drain)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        for task in self._answering:
            task.cancel()
        for _, answer in self._asked.values():
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
        place: zmq.Socket[bytes] = self._context.socket(kind)
        place.setsockopt(zmq.LINGER, 0)
        place.setsockopt(zmq.SNDHWM, QUEUE_MESSAGES_MAX)
        place.setsockopt(zmq.RCVHWM, QUEUE_MESSAGES_MAX)
        place.setsockopt(zmq.MAXMSGSIZE, ENVELOPE_BYTES_MAX)
        place.setsockopt(zmq.HANDSHAKE_IVL, HANDSHAKE_MS)
        place.setsockopt(zmq.CONNECT_TIMEOUT, CONNECT_MS)
        place.setsockopt(zmq.HEARTBEAT_IVL, PING_MS)
        place.setsockopt(zmq.HEARTBEAT_TIMEOUT, SILENT_MS)
        place.setsockopt(zmq.RECONNECT_IVL, RECONNECT_MS)
        place.setsockopt(zmq.RECONNECT_IVL_MAX, RECONNECT_MS_MAX)
        # Nothing waits for a peer that is not there: it would come late, all at once.
        place.setsockopt(zmq.IMMEDIATE, 1)
        # Not for names: of one with addresses of both, only that of IPv6 would be tried.
        place.setsockopt(zmq.IPV6, int(address.startswith("tcp://[")))
        return place

    def _close(self, place: zmq.Socket[bytes]) -> None:
        with contextlib.suppress(ValueError, RuntimeError):
            asyncio.get_running_loop().remove_reader(_number(place, zmq.FD))
        place.close()

    def _dealer(self, address: str) -> zmq.Socket[bytes] | None:
        known = self._dealers.pop(address, None)
        if known is None:
            known = self._socket(zmq.DEALER, address)
            try:
                known.connect(address)
            except zmq.ZMQError:
                known.close()
                return None
            asyncio.get_running_loop().add_reader(_number(known, zmq.FD), self.drain)
            while len(self._dealers) >= PEERS_MAX:
                self._close(self._dealers.pop(next(iter(self._dealers))))
        self._dealers[address] = known  # the newest stands last
        return known

    def _send(self, address: str, to: int, kind: Kind, body: bytes, number: int) -> bool:
        dealer = None if self._closed or not address else self._dealer(address)
        if dealer is None:
            self.counters["dropped"] += 1
            return False
        packed = envelopes.encode(
            Envelope(VERSION, kind, self.cluster, self.node, to, self.address, number, body, self.life)
        )
        return self._put(dealer, [packed])

    def _put(self, place: zmq.Socket[bytes], parts: list[bytes]) -> bool:
        try:
            place.send_multipart(parts, zmq.NOBLOCK)
        except zmq.ZMQError:
            self.counters["dropped"] += 1
            return False
        finally:
            # The descriptor tells of an edge; a send may have swallowed it.
            if _has_come(place):
                asyncio.get_running_loop().call_soon(self.drain)
        self.counters["sent"] += 1
        return True

    def _take(self, place: zmq.Socket[bytes], parts: list[bytes]) -> None:
        asker = parts[:-1]  # a ROUTER puts the connection's name in front
        if len(asker) != (place is self._router):
            self.counters["garbage"] += 1
            return
        try:
            envelope = envelopes.decode(parts[-1])
        except EnvelopeError as error:
            self.counters[error.reason] += 1
            self._tell_once(error.reason, str(error))
            return
        if place is self._router:
            self._received(envelope, asker[0])
        else:
            self._answered(envelope)

    def _received(self, envelope: Envelope, asker: bytes) -> None:
        is_ask = envelope.kind is Kind.ASK
        if not self.cluster:
            self.counters["early"] += 1  # this node does not know yet who it is
            return
        if envelope.cluster != self.cluster and not (is_ask and not envelope.cluster):
            self.counters["foreign"] += 1
            text = f"node {envelope.sender} at {envelope.address!r} of cluster {envelope.cluster.hex()}"
            self._tell_once("foreign cluster", text)
            if is_ask:
                self._answer(asker, envelope, Kind.FOREIGN, b"")
            return
        if envelope.to != self.node and not (is_ask and envelope.to == 0):
            self.counters["misdirected"] += 1
            return
        if envelope.kind in {Kind.ANSWER, Kind.FOREIGN, Kind.FENCED}:
            self.counters["garbage"] += 1
            return
        if envelope.sender and not self._speaks(envelope, asker):
            return
        self.counters["received"] += 1
        if not is_ask:
            self._on_message(envelope)
        elif len(self._answering) >= ASKS_MAX:
            self.counters["overloaded"] += 1
        else:
            task = asyncio.get_running_loop().create_task(self._serve(asker, envelope))
            self._answering.add(task)
            task.add_done_callback(self._answering.discard)

    def _speaks(self, envelope: Envelope, asker: bytes) -> bool:
        """Whether the process that sent this speaks for its node."""
        verdict = self._lives.judge(envelope.sender, envelope.life, _now_ms())
        if verdict is Verdict.TAKE:
            return True
        self.counters["other life"] += 1
        if verdict is Verdict.FENCED:
            self._tell_once(f"identity of {envelope.sender}", f"a second process, at {envelope.address!r}")
            self._answer(asker, envelope, Kind.FENCED, b"")
        return False

    def contested(self) -> list[int]:
        """Nodes that two processes have lately spoken for."""
        return self._lives.contested(_now_ms())

    def silence_ms(self, node: int) -> int | None:
        """How long ago `node` was heard; None if it never was."""
        return self._lives.silence_ms(node, _now_ms())

    async def _serve(self, asker: bytes, envelope: Envelope) -> None:
        body = await self._on_ask(envelope)
        assert len(body) <= ANSWER_BYTES_MAX, f"an answer of {len(body)} bytes"
        self._answer(asker, envelope, Kind.ANSWER, body)

    def _answer(self, asker: bytes, envelope: Envelope, kind: Kind, body: bytes) -> None:
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
            self.life,
        )
        self._put(self._router, [asker, envelopes.encode(packed)])

    def _answered(self, envelope: Envelope) -> None:
        if envelope.kind is Kind.FENCED:
            if envelope.cluster == self.cluster and envelope.to == self.node:
                self._on_fenced(f"node {envelope.sender} at {envelope.address} says so")
            return
        address, answer = self._asked.get(envelope.number, ("", None))
        if answer is None or answer.done():
            self.counters["late"] += 1
        elif envelope.kind is Kind.FOREIGN:
            answer.set_exception(ForeignClusterError(self.cluster, envelope.cluster, address))
        elif envelope.kind is Kind.ANSWER:
            answer.set_result(envelope.body)
        else:
            self.counters["garbage"] += 1

    def _tell_once(self, what: str, text: str) -> None:
        """The first of a kind stands in the log, all are counted: a stranger cannot fill the disk."""
        if what not in self._told:
            self._told.add(what)
            _LOG.warning("control message refused", reason=what, text=text[:300])


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000


def _has_come(place: zmq.Socket[bytes]) -> bool:
    """Whether a message waits there; most times none does, and `Again` says so at twice the cost."""
    return bool(_number(place, zmq.EVENTS) & _POLLIN)


def _number(place: zmq.Socket[bytes], option: zmq.SocketOption) -> int:
    value = place.getsockopt(option)
    assert isinstance(value, int), f"{option.name} is {value!r}"
    return value
