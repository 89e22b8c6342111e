"""A transactional writer: one scope, whose drivers stage and commit epochs, die, and replace each other."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, Final

from ringfence.common.codec import Answer, request_header
from ringfence.common.routing import Layout, layout_of
from ringfence.native import messages
from ringfence.native._node import crc32c
from ringfence.native.wire import Opcode, RequestFlags, Status
from tests.sim.checks.violation import ViolationError
from tests.sim.clients.customer import ClusterClient
from tests.sim.clients.driver import Driver, Steps, Wish
from tests.sim.clients.held_table import newest

if TYPE_CHECKING:
    from tests.sim.simulation import Simulation

BEAT_US: Final = 50_000
TABLE_US: Final = 1_500_000
SECOND_DRIVER: Final = 0.015
"""Share of beats at which another driver begins beside the one at work."""
SAME: Final = 0.3
"""Share of drivers that are another process of the job before: the same instance."""


class Writer(ClusterClient):
    """Commits to one topic until healed; then its scope is begun once more, and nothing is left open."""

    def __init__(self, world: Simulation, number: int, random: Random, topic: str) -> None:
        super().__init__(world, f"w{number}", random)
        self.number, self.topic = number, topic
        self.layout: Layout | None = None
        self._simulation = world
        self._drivers = 0
        self._instance = 0
        self._is_last = self._over = False
        self._deaths = 0
        self.is_late = False
        """Its driver has staged an epoch, and will commit it much later."""
        world.agenda.after(random.randrange(BEAT_US), self._beat)

    @property
    def idle(self) -> bool:
        """The last driver began, and fenced whatever is on its way."""
        return self._over

    def _beat(self) -> None:
        self.lose_patience()
        if self.layout is None:
            self.layout = self._simulation.publishers[0].layout
        if self.world.healed:
            if not self._drivers and not self._is_last:
                self._is_last = True
                self._start(self._last())
        elif self.layout is not None and (not self._drivers or self._joins()):
            self._instance += self.random.random() >= SAME
            self._start(self.driver(b"run %d" % self._instance).steps())
        self.world.agenda.after(BEAT_US, self._beat)

    def driver(self, instance: bytes) -> Driver:
        return Driver(self, instance)

    def _joins(self) -> bool:
        return self._drivers == 1 and self.random.random() < SECOND_DRIVER

    def _last(self) -> Steps[None]:
        yield from self.driver(b"").begin()
        self._over = True

    # ---- drivers under way ----

    def dies(self) -> None:
        """The process with its drivers: nobody goes on with what is under way."""
        if not self._is_last:
            self._deaths += 1
            self._drivers, self.is_late = 0, False

    def _start(self, driver: Steps[None]) -> None:
        self._drivers += 1
        self._go(driver, self._deaths, None)

    def _go(self, driver: Steps[None], deaths: int, got: Any) -> None:
        if deaths != self._deaths:
            return
        try:
            wanted = driver.send(got)
        except StopIteration:
            self._drivers -= 1
            return
        except ViolationError as broken:
            self.world.violate(broken)
            return
        if isinstance(wanted, int):
            self.world.agenda.after(wanted, partial(self._go, driver, deaths, []))
        else:
            self._ask_all(driver, deaths, wanted)

    def _ask_all(self, driver: Steps[None], deaths: int, wishes: list[Wish]) -> None:
        answers: list[Answer | None] = [None] * len(wishes)
        left = len(wishes)

        def told(at: int, answer: Answer | None) -> None:
            nonlocal left
            answers[at] = answer
            left -= 1
            if not left:
                self.world.agenda.after(0, partial(self._go, driver, deaths, answers))

        for at, wish in enumerate(wishes):
            self.put_wish(wish, partial(told, at))

    def put_wish(self, wish: Wish, told: Callable[[Answer | None], None]) -> None:
        """Send it; `told` hears None at once when nobody can be reached."""
        if wish.machine is None or not self.reach(wish.machine):
            told(None)
        else:
            self.put(wish.machine, wish.number, wish.header, wish.body, told, wish.patience_us)

    # ---- requests ----

    def control(self, opcode: int, message: messages.Message, patience_us: int) -> Wish:
        """A request that any node takes."""
        body = messages.encode(message)
        number = self.next_request()
        header = request_header(
            opcode,
            number,
            flags=RequestFlags.CONTROL,
            body_bytes=len(body),
            body_crc=crc32c(body),
            deadline_ms=patience_us // 1_000,
        )
        return Wish(self.tried(), number, bytes(header), body, patience_us)

    def table_wish(self) -> Wish:
        assert self.layout is not None
        number = self.next_request()
        header = request_header(Opcode.TABLE, number, topic=self.layout.topic, deadline_ms=1_000)
        return Wish(self.tried(), number, bytes(header), b"", TABLE_US)

    def table(self, answer: Answer | None) -> None:
        """The newer of the two is held."""
        if answer is not None and answer.header.status == Status.OK:
            self.layout = newest(self.layout, layout_of(answer.control(messages.Table)))
