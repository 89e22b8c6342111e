"""What engines say to each other: connections from an owner's node to those of its replicas, as TCP has them.

In order both ways, late, held up by a partition or a machine that stands still, gone with either process. Who
has made a connection is told when it stands and when it is gone; whether what was on it arrived, nobody says.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tests.sim.world.machine import Machine
    from tests.sim.world.world import World

RESEND_US: Final = 30_000  # as of a client's line
STARVED_US: Final = 1_000
RETRANSMIT_US: Final = 200_000
"""TCP's least time-out: what a lost segment costs."""
CONNECT_US: Final = 3_000_000
"""A handshake that takes longer is given up."""


class Cable:
    """One connection from a node, `one`, to what listens at `other`; `node` is what the engine calls it."""

    def __init__(self, world: World, random: Random, one: Machine, node: int, other: Machine) -> None:
        self.one, self.node, self.other = one, node, other
        self.number = 0
        self._world, self._random, self._agenda = world, random, world.agenda
        self._one_life, self._other_life = one.host.life, -1
        self._is_open = True
        self._began_us = self._agenda.now_us
        self._there: deque[tuple[bytes, bytes]] = deque()
        self._back: deque[tuple[bytes, bytes]] = deque()
        self._there_us = self._back_us = 0
        self._agenda.after(self._delay_us(), self._connect)

    # ---- as the world asks ----

    def send(self, header: bytes, body: bytes) -> None:
        if self._is_open and self.number:
            self._there.append((header, body))
            self._there_us = self._in_turn(self._there_us, self._arrive)

    def answered(self, header: bytes, body: bytes) -> None:
        if self._is_open:
            self._back.append((header, body))
            self._back_us = self._in_turn(self._back_us, self._deliver)

    def cut(self) -> None:
        """It breaks; both ends hear of it when they can."""
        if self._is_open:
            self._is_open = False
            self._there.clear()
            self._back.clear()
            self._world.lines.pop(self.number, None)
            self._agenda.after(self._delay_us(), self._tell_one)
            if self.number:
                self._agenda.after(self._delay_us(), self._tell_other)

    # ---- on its way ----

    def _delay_us(self) -> int:
        weather, random = self._world.network.weather, self._random
        lost = RETRANSMIT_US if weather.loss and random.random() < weather.loss else 0
        return weather.delay_us + int(random.random() * weather.jitter_us) + lost

    def _in_turn(self, last_us: int, call: Callable[[], None]) -> int:
        at = max(last_us, self._agenda.now_us + self._delay_us())
        self._agenda.after(at - self._agenda.now_us, call)
        return at

    def _is_held(self, receiver: Machine, sender: Machine) -> bool:
        return receiver.paused or (sender.name, receiver.name) in self._world.network.cut

    @property
    def _one_lives(self) -> bool:
        return self.one.host.life == self._one_life and self.one.host.running

    @property
    def _other_lives(self) -> bool:
        return self.other.host.life == self._other_life and self.other.host.running

    def _connect(self) -> None:
        if not self._is_open or not self._one_lives:
            return
        one, other = self.one, self.other
        if one.paused or other.paused or not self._world.network.reaches(one.name, other.name):
            if self._agenda.now_us - self._began_us < CONNECT_US:
                self._agenda.after(RESEND_US, self._connect)
            else:
                self.cut()
            return
        if other.down or not other.host.listening or not other.host.running:
            self.cut()
            return
        self._other_life = other.host.life
        self._world.lines_made += 1
        self.number = self._world.lines_made
        self._world.lines[self.number] = self
        other.host.set_clock()
        other.host.node.connect(self.number)
        other.host.pump_soon()
        one.host.set_clock()
        one.host.node.peer_opened(self.node)
        one.host.pump_soon()

    def _arrive(self) -> None:
        if not self._there or not self._other_lives:
            return
        if self._is_held(self.other, self.one):
            self._agenda.after(RESEND_US, self._arrive)
            return
        host = self.other.host
        host.set_clock()
        if not host.node.request(self.number, *self._there[0]):
            self._agenda.after(STARVED_US, self._arrive)
            return
        self._there.popleft()
        host.pump()

    def _deliver(self) -> None:
        if not self._back or not self._one_lives:
            return
        if self._is_held(self.one, self.other):
            self._agenda.after(RESEND_US, self._deliver)
            return
        host = self.one.host
        host.set_clock()
        host.node.peer_message(self.node, *self._back.popleft())
        host.pump()

    def _tell_one(self) -> None:
        if not self._one_lives:
            return
        if self._is_held(self.one, self.other):
            self._agenda.after(RESEND_US, self._tell_one)
            return
        self._world.cables.forget(self)
        self.one.host.set_clock()
        self.one.host.node.peer_closed(self.node)
        self.one.host.pump()

    def _tell_other(self) -> None:
        if not self._other_lives:
            return
        if self._is_held(self.other, self.one):
            self._agenda.after(RESEND_US, self._tell_other)
            return
        self.other.host.set_clock()
        self.other.host.node.disconnect(self.number)
        self.other.host.pump()


class Cables:
    """All of them, by who made one and to which node."""

    def __init__(self, world: World, random: Random) -> None:
        self._world, self._random = world, random
        self._of: dict[tuple[str, int], Cable] = {}

    def carry_out(self, machine: Machine, what: str, node: int, first: bytes, body: bytes) -> None:
        """What an engine wants of another node: `take_peer_messages`."""
        key = machine.name, node
        if what == "connect":
            name = first.decode().removeprefix("tcp://").partition(":")[0]
            other = next(each for each in self._world.machines if each.name == name)
            self._of[key] = Cable(self._world, self._random, machine, node, other)
        elif (cable := self._of.get(key)) is not None:
            if what == "send":
                cable.send(first, body)
            else:
                cable.cut()

    def forget(self, cable: Cable) -> None:
        self._of.pop((cable.one.name, cable.node), None)

    def lost(self, machine: Machine) -> None:
        """A process is gone, and its connections with it."""
        for key, cable in [*self._of.items()]:
            if cable.one is machine:
                del self._of[key]
                cable.cut()
            elif cable.other is machine:
                cable.cut()

    def reset(self, dice: Random) -> None:
        """One of them breaks."""
        if self._of:
            self._of[dice.choice(sorted(self._of))].cut()
