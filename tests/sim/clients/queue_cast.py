"""The members of a QUEUE, rows that no member can work on, and an operator of what is parked."""

from __future__ import annotations

from collections import deque
from random import Random
from typing import TYPE_CHECKING, Final

from tests.sim.checks.queues import QueueRecord
from tests.sim.clients.cast import Cast
from tests.sim.clients.parked_operator import ParkedOperator
from tests.sim.clients.queue_member import QueueHabits, QueueProcess

if TYPE_CHECKING:
    from ringfence.consumer.queue_calls import Leased
    from tests.sim.clients.member_process import MemberProcess
    from tests.sim.cohorts import CohortSimulation

LEASES_S: Final = (2.0, 4.0, 10.0)
LIMITS: Final = (1, 2, 3, 5, 0)
BAD: Final = (0, 0, 60, 400)
"""One row of so many can never be worked on; 0: none."""
RECENT: Final = 8
MIXED: Final = 0x9E37_79B1


class QueueCast(Cast):
    """Members of a QUEUE."""

    mode = "queue"
    record: QueueRecord
    acts = (
        *("kill", "kill", "pause", "pause", "hang_up", "hang_up", "leave", "seek", "takeover", "lie", "lie"),
        *("fail", "operate", "operate", "operate"),
    )

    def __init__(self, world: CohortSimulation, dice: Random, members: int) -> None:
        super().__init__(world, dice, members)
        lease_s, limit, self._bad = dice.choice(LEASES_S), dice.choice(LIMITS), dice.choice(BAD)
        if not limit:
            self._bad = 0  # a row that always fails is never settled
        self.record = QueueRecord(world, self.mode, lease_s, limit)
        self.leased = deque["Leased"](maxlen=RECENT)
        self.operator = ParkedOperator(world, self.record, Random(dice.random()))
        world.clients.append(self.operator)

    def _new(self, name: str, number: int, dice: Random, *, takeover: bool) -> QueueProcess:
        habits = QueueHabits(
            clock=dice.choice((0.99, 1.0, 1.01)),
            work_us=dice.choice((5_000, 100_000, 1_000_000)),
            is_auto=dice.random() < 0.4,
            width=dice.choice((1, 2, 4)),
            rows_max=dice.choice((0, 0, 8, 64)),
            is_exact=dice.random() < 0.5,
            fails=dice.choice((0.0, 0.02)),
            releases=dice.choice((0.0, 0.02)),
            gives_up=dice.choice((0.0, 0.01)),
            dozes=dice.choice((0.0, 0.0, 0.02)),
        )
        return QueueProcess(self, name, number, dice, habits, takeover=takeover)

    def is_bad(self, number: int) -> bool:
        """Whether the row with this id can never be worked on."""
        return bool(self._bad) and (number * MIXED & 0xFFFF_FFFF) % self._bad == 0

    def strike(self, kind: str, process: MemberProcess, dice: Random) -> None:
        match kind:
            case "operate":
                self.operator.operate(dice)
            case "fail" if process.is_alive and not process.is_paused:
                assert isinstance(process, QueueProcess)
                process.fail()
                self.world.agenda.after(1_000_000, process.kill)
                self.world.agenda.after(1_500_000, lambda: self.again(process.member_name))
            case "fail":
                pass
            case _:
                super().strike(kind, process, dice)

    def _lie(self, dice: Random) -> None:
        if (alive := self.alive()) and self.leased:
            dice.choice(alive).lie(dice.choice([*self.leased]))
