"""A client of the cluster: connections to nodes, requests with answers, and the client's own codec."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any, Final

from ringfence.common.codec import Answer, checked, request_header
from ringfence.native import messages
from ringfence.native._node import crc32c
from ringfence.native.frame import open_answer
from ringfence.native.wire import PROTOCOL_VERSION, PROTOCOL_VERSION_MIN, Opcode, RequestFlags
from tests.sim.world.network import Weather

if TYPE_CHECKING:
    from tests.sim.world.machine import Machine
    from tests.sim.world.world import World

RESEND_US: Final = 30_000  # a message on TCP that a partition holds up
STARVED_US: Final = 1_000
GREETED_US: Final = 6_000_000

Lost = None
Told = Callable[[Answer | None], None]
"""Hears the answer, or None: it never comes."""


class Line:
    """One connection of a client to one process of a machine. In order both ways, as TCP is."""

    def __init__(self, customer: ClusterClient, machine: Machine) -> None:
        world = customer.world
        world.lines_made += 1
        self.number, self.open = world.lines_made, True
        self._customer, self._machine, self._life = customer, machine, machine.host.life
        self._there: deque[tuple[int, bytes, bytes]] = deque()
        self._back: deque[tuple[bytes, bytes]] = deque()
        self._there_us = self._back_us = 0
        self._doomed = -1
        world.lines[self.number] = self
        machine.host.set_clock()
        machine.host.node.connect(self.number)
        machine.host.pump_soon()

    def send(self, request_id: int, header: bytes, body: bytes) -> None:
        self._there.append((request_id, header, body))
        agenda = self._customer.world.agenda
        at = max(self._there_us, agenda.now_us + self._delay_us())
        self._there_us = at
        agenda.after(at - agenda.now_us, self._arrive)

    def answered(self, header: bytes, body: bytes) -> None:
        if self.open:
            self._customer.left_node(self._machine, header, body)
            self._back.append((header, body))
            agenda = self._customer.world.agenda
            at = max(self._back_us, agenda.now_us + self._delay_us())
            self._back_us = at
            agenda.after(at - agenda.now_us, self._deliver)

    def cut(self, late: float) -> None:
        """The client hears nothing more; what is on its way arrives up to a point, or not at all."""
        self.open = False
        random = self._customer.random
        left = len(self._there)
        self._doomed = random.randrange(left + 1) if left and random.random() < late else 0
        if not self._doomed:
            self._there.clear()
            self._close()

    def _delay_us(self) -> int:
        weather: Weather = self._customer.world.network.weather
        return weather.delay_us + int(self._customer.random.random() * weather.jitter_us)

    @property
    def _lives(self) -> bool:
        return self._machine.host.life == self._life and self._machine.host.running

    def _arrive(self) -> None:
        if not self._there or not self._lives:
            return
        world = self._customer.world
        if self._machine.paused or (self._customer.name, self._machine.name) in world.network.cut:
            world.agenda.after(RESEND_US, self._arrive)
            return
        host = self._machine.host
        request_id, header, body = self._there[0]
        self._customer.arrived(request_id)
        host.set_clock()
        if not host.request(self.number, request_id, header, body):
            world.agenda.after(STARVED_US, self._arrive)
            return
        self._there.popleft()
        if self._doomed > 0:
            self._doomed -= 1
            if not self._doomed:
                self._there.clear()
                self._close()

    def _deliver(self) -> None:
        if not self.open or not self._back:
            return
        world = self._customer.world
        if (self._machine.name, self._customer.name) in world.network.cut:
            world.agenda.after(RESEND_US, self._deliver)
            return
        header, body = self._back.popleft()
        self._customer.heard(header, body)

    def _close(self) -> None:
        if self._lives and not self._machine.paused:
            self._machine.host.set_clock()
            self._machine.host.node.disconnect(self.number)
            self._machine.host.pump_soon()


class ClusterClient:
    """Base of clients; `name` is its place in the network."""

    features = 0
    """What it tells each node first that it can do; 0: it says no HELLO."""

    def __init__(self, world: World, name: str, random: Random) -> None:
        self.world, self.name, self.random = world, name, random
        self._lines: dict[str, Line] = {}
        self._asked: dict[int, tuple[str, Told, int]] = {}
        self._requests = 0

    @property
    def now_s(self) -> float:
        return self.world.agenda.now_us / 1e6

    def reach(self, machine: Machine) -> bool:
        """Whether there is a connection, or one can be made now."""
        line = self._lines.get(machine.name)
        if line is not None:
            return True
        if machine.down or not machine.host.listening or machine.paused or not machine.host.running:
            return False
        if not self.world.network.reaches(self.name, machine.name):
            return False
        self._lines[machine.name] = Line(self, machine)
        if self.features:
            self._greet(machine)
        return True

    def _greet(self, machine: Machine) -> None:
        hello = messages.Hello(
            version_min=PROTOCOL_VERSION_MIN,
            version_max=PROTOCOL_VERSION,
            client=self.name,
            features=self.features,
        )
        self.ask(machine, Opcode.HELLO, lambda _: None, body=messages.encode(hello), patience_us=GREETED_US)

    def ask(
        self, machine: Machine, opcode: int, told: Told, *, body: bytes = b"", patience_us: int, **fields: int
    ) -> int:
        """One request; `told` hears its end once. The caller has `reach`ed the machine."""
        self._requests += 1
        number = self._requests
        if body:
            fields |= {"flags": RequestFlags.CONTROL, "body_bytes": len(body), "body_crc": crc32c(body)}
        header = request_header(opcode, number, **fields)
        return self.put(machine, number, bytes(header), body, told, patience_us)

    def put(
        self, machine: Machine, number: int, header: bytes, body: bytes, told: Told, patience_us: int
    ) -> int:
        self._asked[number] = (machine.name, told, self.world.agenda.now_us + patience_us)
        self._lines[machine.name].send(number, header, body)
        return number

    def next_request(self) -> int:
        self._requests += 1
        return self._requests

    def arrived(self, request_id: int) -> None:
        """The request is at the node's door."""

    def left_node(self, machine: Machine, frame: bytes, body: bytes) -> None:
        """An answer leaves the node."""

    def heard(self, frame: bytes, body: bytes) -> None:
        header = open_answer(frame)
        known = self._asked.pop(header.request_id, None)
        if known is not None:
            known[1](checked(header, memoryview(body)))

    def hang_up(self, name: str, late: float = 0.0) -> None:
        """The connection to a machine is gone; what had no answer is lost."""
        line = self._lines.pop(name, None)
        if line is not None:
            line.cut(late)
        lost = [number for number, known in self._asked.items() if known[0] == name]
        for number in lost:
            self._asked.pop(number)[1](Lost)

    def lose_patience(self) -> None:
        """Requests that wait too long: the connection is taken for dead."""
        now = self.world.agenda.now_us
        late = {name for name, _, until in self._asked.values() if until <= now}
        for name in sorted(late) if late else ():
            self.hang_up(name, 1.0)

    def tried(self) -> Any:
        """A machine to ask, any that answers."""
        machines = [*self.world.machines]
        self.random.shuffle(machines)
        return next((machine for machine in machines if self.reach(machine)), None)
