"""The network between machines, and ZeroMQ over it as the control plane's hub uses it.

A message is delayed, lost, doubled or overtaken as its link says; links are directed, so a partition may be
one-way. Connections break when one end dies; who listens again is found again, with ZeroMQ's back-off.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, Final

import zmq

from tests.sim.world import current

if TYPE_CHECKING:
    from tests.sim.world.agenda import Agenda
    from tests.sim.world.machine import Machine

_AGAIN: Final = zmq.Again()  # making one asks libzmq for a text, each time
_EVENTS: Final = zmq.EVENTS
_POLLIN: Final = int(zmq.POLLIN)
FDS: Final = 1 << 21
ORPHAN_US: Final = 200_000
"""How long what a dead process had sent is still under way; then its connections are reset."""
QUEUE_MAX: Final = 256  # messages, as the hub sets


def forget() -> None:
    """The error that is raised again and again holds the frames of its last time, and with them a world."""
    _AGAIN.__traceback__ = None


class Weather:
    """What messages meet; drawn per seed, made worse by strikes."""

    __slots__ = ("delay_us", "double", "jitter_us", "late_us", "loss", "overtake")

    def __init__(
        self,
        loss: float = 0.0,
        double: float = 0.0,
        overtake: float = 0.0,
        delay_us: int = 200,
        jitter_us: int = 300,
        late_us: int = 200_000,
    ) -> None:
        self.loss, self.double, self.overtake, self.late_us = loss, double, overtake, late_us
        self.delay_us, self.jitter_us = delay_us, jitter_us


class Network:
    """Links by (from, to), names of machines."""

    def __init__(
        self, agenda: Agenda, random: Random, counts: Counter[str], trace: Callable[..., None]
    ) -> None:
        self.agenda, self.random, self.counts, self._trace = agenda, random, counts, trace
        self.weather = Weather()
        self.cut: set[tuple[str, str]] = set()
        self.routers: dict[str, Socket] = {}
        self._last_us: dict[tuple[str, str], int] = {}

    def send(
        self, link: tuple[str, str], data: bytes, deliver: Callable[[bytes], None], lives: Callable[[], bool]
    ) -> None:
        """One message, on its way or lost; a very late one only while its sender `lives`."""
        weather, random = self.weather, self.random
        if link in self.cut:
            self.counts["message_cut"] += 1
            return
        if weather.loss and random.random() < weather.loss:
            self.counts["message_lost"] += 1
            return
        now = self.agenda.now_us
        at = now + weather.delay_us + int(random.random() * weather.jitter_us)
        if weather.overtake and random.random() < weather.overtake:
            at += random.randrange(1_000, weather.late_us)
            self.counts["message_late"] += 1
            if at - now > ORPHAN_US:
                deliver = partial(self._unless_dead, deliver, lives)
        else:
            at = max(at, self._last_us.get(link, 0))
            self._last_us[link] = at
        self.agenda.after(at - now, partial(self._arrive, link, data, deliver))
        if weather.double and random.random() < weather.double:
            self.counts["message_doubled"] += 1
            self.agenda.after(at - now + random.randrange(50_000), partial(self._arrive, link, data, deliver))

    @staticmethod
    def _unless_dead(deliver: Callable[[bytes], None], lives: Callable[[], bool], data: bytes) -> None:
        if lives():
            deliver(data)

    def _arrive(self, link: tuple[str, str], data: bytes, deliver: Callable[[bytes], None]) -> None:
        if link in self.cut:
            self.counts["message_cut"] += 1
            return
        self._trace(self.agenda.now_us, *link, data)
        deliver(data)

    def reaches(self, one: str, other: str) -> bool:
        """Both ways, as a handshake needs."""
        return (one, other) not in self.cut and (other, one) not in self.cut


class Socket:
    """A ROUTER that is bound, or a DEALER that is connected."""

    def __init__(self, machine: Machine, kind: int) -> None:
        machine.sockets += 1
        self.fd = FDS + machine.sockets
        self.closed = False
        self._machine, self._life, self._kind = machine, machine.life, kind
        self._network = machine.network
        self._inbox: deque[list[bytes]] = deque()
        self._address = ""
        self._peer: Socket | None = None  # of a DEALER
        self._peers: dict[bytes, Socket] = {}  # of a ROUTER, by the name that it gave
        self._name = b""
        self._tries = 0

    def setsockopt(self, option: Any, value: Any) -> None:
        """Limits are the queue's own."""

    def getsockopt(self, option: Any) -> int:
        if option is _EVENTS:
            return _POLLIN if self._inbox else 0
        assert option == zmq.FD, f"{option} is not simulated"
        return self.fd

    def getsockopt_string(self, option: Any) -> str:
        assert option == zmq.LAST_ENDPOINT, f"{option} is not simulated"
        return self._address

    def bind(self, address: str) -> None:
        if address.rpartition(":")[2] in {"0", "*"}:
            address = f"tcp://{self._machine.name}:7001"
        self._address = address
        self._network.routers[address] = self

    def connect(self, address: str) -> None:
        self._address = address
        self._again(1)

    def _again(self, delay_ms: int) -> None:
        self._machine.later(delay_ms * 1_000, self._handshake)

    def _handshake(self) -> None:
        """As libzmq: again and again, 50 to 500 ms apart."""
        if self.closed or not self.alive or self._peer is not None:
            return
        router = self._network.routers.get(self._address)
        if router is not None and router.alive and not router.closed and self._reaches(router):
            self._peer, self._tries = router, 0
            self._name = f"{self._machine.name}.{self._life}.{self.fd}".encode()
            router._peers[self._name] = self
        else:
            self._tries += 1
            self._again(min(500, 50 << min(self._tries, 4)))

    def _reaches(self, other: Socket) -> bool:
        return self._network.reaches(self._machine.name, other._machine.name)

    def _lives(self) -> bool:
        return self.alive

    @property
    def alive(self) -> bool:
        return self._life == self._machine.life and not self._machine.down

    def send_multipart(self, parts: list[bytes], flags: int = 0) -> None:
        target = self._peers.get(parts[0]) if self._kind == zmq.ROUTER else self._peer
        if self._kind == zmq.DEALER and (target is None or not target.alive or target.closed):
            if target is not None:
                self._peer = None
                self._again(50)
            raise _AGAIN.with_traceback(None)
        if target is None:
            return  # a ROUTER drops what it cannot route
        link = self._machine.name, target._machine.name
        self._network.send(link, parts[-1], partial(target._arrived, self._name), self._lives)

    def _arrived(self, name: bytes, data: bytes) -> None:
        if self.closed or not self.alive or len(self._inbox) >= QUEUE_MAX:
            return
        self._inbox.append([name, data] if self._kind == zmq.ROUTER else [data])
        loop = self._machine.loop
        if loop is not None:
            loop.ready_from(self.fd)

    def recv_multipart(self, flags: int = 0) -> list[bytes]:
        if not self._inbox:
            raise _AGAIN.with_traceback(None)
        return self._inbox.popleft()

    def close(self, linger: int = 0) -> None:
        self.closed = True
        if self._network.routers.get(self._address) is self:
            del self._network.routers[self._address]


class Context:
    def __init__(self, io_threads: int = 1) -> None:
        self._machine = current.machine()

    def socket(self, kind: int) -> Socket:
        return Socket(self._machine, kind)

    def term(self) -> None:
        """Its sockets are closed."""


class SimZmq:
    """`zmq` as the hub sees it."""

    Context, Socket = Context, Socket

    def __getattr__(self, name: str) -> Any:
        value = getattr(zmq, name)
        setattr(self, name, value)  # asked for a hundred thousand times a seed
        return value
