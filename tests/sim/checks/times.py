"""What the times of records and of the metadata may be: one wrong clock moves neither.

The bound is what most clocks say. A leader alone among failed nodes has only its own clock, so then the
clock furthest ahead counts. Only clusters that begin at the level of bounded times are checked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ringfence.control.model.nodes import Life
from ringfence.control.model.state import MetadataState
from ringfence.control.runtime.membership.cluster_clock import CLOCK_LEVEL
from ringfence.control.state_machines.membership.cluster_time import OFFSET_MS_MAX
from tests.sim.checks.violation import ViolationError
from tests.sim.world.clock import UNIX_MS

if TYPE_CHECKING:
    from tests.sim.world.world import World

DRIFT: Final = 3
"""A node continues the last estimate by its monotonic clock, which may run three times too fast."""


class Times:
    """The bound of one run. It follows the true clocks, and reads nothing of the nodes' estimates."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._ahead_ms = 0  # greatest lead over the true time that most clocks, or a lone leader's, ever had
        self._live = len(world.machines)
        self._highest: dict[str, int] = {}  # greatest lead of each machine's clock

    def jumped(self) -> None:
        """A wall clock was moved. What a node said of its clock before may still count."""
        for machine in self._world.machines:
            known = self._highest.get(machine.name, 0)
            self._highest[machine.name] = max(known, machine.clock.wall_ahead_ms)
        ahead = sorted(self._highest.values())
        self._ahead_ms = max(self._ahead_ms, ahead[-1] if self._live <= 1 else ahead[-2])

    def applied(self, state: MetadataState) -> None:
        """The metadata is new."""
        self._live = sum(node.life is Life.LIVE for node in state.nodes.values())
        if self._live <= 1:
            self.jumped()
        self.check("the metadata", state.time_ms)

    def check(self, what: str, time_ms: int) -> None:
        """ViolationError ends the run if this time comes from a clock that most others do not share."""
        now_ms = self._world.agenda.now_us // 1000
        bound_ms = UNIX_MS + (1 + DRIFT) * now_ms + self._ahead_ms + OFFSET_MS_MAX
        if self._world.plan.level >= CLOCK_LEVEL and time_ms > bound_ms:
            late_ms = time_ms - UNIX_MS - now_ms
            told = f"{what} has a time {late_ms} ms ahead; most clocks are {self._ahead_ms} ms ahead at most"
            self._world.violate(ViolationError("bounded times", told))
