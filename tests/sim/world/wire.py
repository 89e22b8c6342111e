"""A client's connection to one node: in order both ways, with delays, cut at any time."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

from tests.sim.world.agenda import Agenda
from tests.sim.world.host import Host

DELAY_US: Final = (50, 1_000)
STARVED_US: Final = 1_000  # how soon a socket is read again for which there was no block


class Wire:
    """One connection, from `connect` to `cut`. `late`: share of requests that a cut does not stop."""

    def __init__(
        self,
        agenda: Agenda,
        random: Random,
        host: Host,
        number: int,
        *,
        late: float,
        on_arrival: Callable[[int], None],
        on_answer: Callable[[bytes, bytes], None],
    ) -> None:
        self.number, self.open = number, True
        self._agenda, self._random, self._host, self._late = agenda, random, host, late
        self._on_arrival, self._on_answer = on_arrival, on_answer
        self._there_us = self._back_us = 0
        self._life = host.life
        self._doomed = -1  # requests from this one on never arrive
        self._sent = self._arrived = 0
        host.node.connect(number)
        host.pump()

    def send(self, request_id: int, header: bytes, body: bytes) -> None:
        at = self._next(self._there_us)
        self._there_us = at
        number = self._sent
        self._sent += 1
        self._agenda.after(at - self._agenda.now_us, lambda: self._arrive(number, request_id, header, body))

    def answered(self, header: bytes, body: bytes) -> None:
        """The node sent something."""
        if self.open:
            at = self._next(self._back_us)
            self._back_us = at
            self._agenda.after(at - self._agenda.now_us, lambda: self._deliver(header, body))

    def cut(self) -> None:
        """The client hears nothing more; what is on its way arrives up to a point, or not at all."""
        self.open = False
        left = self._sent - self._arrived
        arrives = self._random.randrange(left + 1) if left and self._random.random() < self._late else 0
        self._doomed = self._arrived + arrives
        if not arrives:
            self._close()

    def _next(self, last_us: int) -> int:
        return max(last_us, self._agenda.now_us + self._random.randrange(*DELAY_US))

    def _arrive(self, number: int, request_id: int, header: bytes, body: bytes) -> None:
        if not self._host.begin(self._life) or (0 <= self._doomed <= number):
            return
        if number > self._arrived:  # behind one that found no block
            self._again(number, request_id, header, body)
            return
        self._on_arrival(request_id)
        if not self._host.request(self.number, request_id, header, body):
            self._again(number, request_id, header, body)
            return
        self._arrived += 1
        if self._arrived == self._doomed:
            self._close()

    def _again(self, number: int, request_id: int, header: bytes, body: bytes) -> None:
        self._agenda.after(STARVED_US, lambda: self._arrive(number, request_id, header, body))

    def _deliver(self, header: bytes, body: bytes) -> None:
        if self.open:
            self._on_answer(header, body)

    def _close(self) -> None:
        if self._host.begin(self._life):
            self._host.node.disconnect(self.number)
            self._host.pump()
