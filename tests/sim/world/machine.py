"""One machine: disks, clocks, dice, and a process with the product's node that dies and starts again."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Coroutine, Iterator
from random import Random
from typing import TYPE_CHECKING, Any, Final

from ringfence.control.runtime.node_process import Node
from ringfence.control.runtime.process.settings import Settings
from ringfence.native.errors import RecordError, StorageError
from tests.sim.checks.violation import ViolationError
from tests.sim.world import current
from tests.sim.world.clock import Clock
from tests.sim.world.engine import EngineHost
from tests.sim.world.files import DiedError, File, Files
from tests.sim.world.loop import Loop

if TYPE_CHECKING:
    from tests.sim.world.world import World

ROOT: Final = "/data"
LONG_S: Final = 1.5
"""Half the time-out of failures: a leader that stood still longer gives everybody a full interval anew."""
TASKS: Final = frozenset({"journal", "ticks", "members", "orders", "proposals", "changes"})
"""What a node runs for as long as it serves."""
START_US: Final = (100_000, 600_000)
"""Until a supervisor starts a process that ended by itself."""


class Machine:
    """`number` is its place among the machines; the cluster may know its node by another."""

    def __init__(self, world: World, number: int, random: Random) -> None:
        self.world, self.number, self.name = world, number, f"n{number}"
        self.agenda, self.network = world.agenda, world.network
        self.random, self.dice = random, Random(random.random())
        self.clock = Clock(world.agenda)
        self.files = Files()
        self.files.random = Random(random.random())
        self.host = EngineHost(self, Random(random.random()))
        self.life = self.sockets = 0
        self.slow = 0.0
        self.paused = False
        self.down = True
        self.serving = False
        self.woke_s = self._stood_s = 0.0
        self.hurt: set[str] = set()
        """Kinds of damage that struck this machine, so that its process may end of it."""
        self.rots: list[tuple[File, int, int]] = []
        self.loop: Loop | None = None
        self.node: Node | None = None
        self._graves: list[Loop] = []
        self._deferred: list[Callable[[], None]] = []

    # ---- running code ----

    @contextlib.contextmanager
    def on(self) -> Iterator[None]:
        with current.on(self):
            yield

    def within(self, work: Callable[[], Any]) -> Any:
        """Run it here; the process may die in the middle of it."""
        current.enter(self)
        try:
            return work()
        except DiedError:
            self.world.died_inside(self)
            return None
        finally:
            current.leave()

    def later(self, delay_us: int, call: Callable[[], None], loop: Loop | None = None) -> None:
        """Call it if this process still lives then; while the machine stands still it waits."""
        life = self.life

        def run() -> None:
            if life != self.life or self.down:
                return
            if self.paused:
                self._deferred.append(run)
            else:
                call()

        self.agenda.after(delay_us, run)

    def defer(self, run: Callable[[], None]) -> None:
        """Run it when the machine goes on; now it stands still."""
        self._deferred.append(run)

    def disk_delay_us(self, low: int, high: int) -> int:
        slower = 40 if self.slow and self.random.random() < self.slow else 1
        return self.random.randrange(low, high) * slower

    def after_turn(self) -> None:
        if self.files.dead and not self.down:
            self.world.died_inside(self)

    def defect(self, message: str, error: BaseException | None) -> None:
        """An exception that nobody took."""
        if isinstance(error, DiedError):
            return
        if isinstance(error, ViolationError):
            self.world.violate(error)
        else:
            self.world.violate(ViolationError("defect", f"{self.name}: {message}: {error!r}"))

    # ---- life and death ----

    def boot(self, join: tuple[str, ...] | None = None) -> None:
        """Start the process. `join` only for a store that has no cluster yet."""
        if not self.down or self.world.violation is not None:
            return
        self.down, self.paused, self.serving = False, False, False
        self.life += 1
        self.files.process_started()
        self.loop = Loop(self)  # type: ignore[abstract]  # what is left out, the product does not use
        settings = self.world.settings(self, join)
        self.world.tell(self.name, "starts")
        self.loop.create_task(self._main(settings), name="main")

    async def _main(self, settings: Settings) -> None:
        try:
            node = self.node = Node(settings)
            await node.start()
            self.serving = True
            self.world.know(self.node_id, self)
            self.world.tell(self.name, "serves")
            error: BaseException = await node.failed
        except StorageError as caught:
            error = caught
        except ViolationError as broken:
            self.world.violate(broken)
            return
        except Exception as caught:  # noqa: BLE001 - whatever it is, the process would end with it
            error = caught
        if self.files.dead:
            return
        self.world.ended(self, error)

    def exit(self, error: BaseException) -> None:
        """The process ended by itself; a supervisor starts it again."""
        self.world.tell(self.name, "ends", str(error)[:200])
        self.host.crash(power=False)
        self._gone()
        self.agenda.after(self.random.randrange(*START_US), self.boot)

    def crash(self, *, power: bool, mid_job: bool = False) -> None:
        """The process dies; with `power` the machine too."""
        if not self.down:
            self.host.crash(power=power, mid_job=mid_job)
        elif power:
            self.host.disk.crash()
        self._gone()
        if power:
            self.files.power_cut()

    def _gone(self) -> None:
        if self.loop is not None:
            self.loop.kill()
            self._graves.append(self.loop)
        self.files.process_died()
        self.loop = self.node = None
        self.down, self.serving = True, False
        self.paused = False
        self._deferred.clear()
        self.life += 1
        self.world.connections_lost(self)

    def pause(self) -> None:
        if not self.down:
            self.paused, self._stood_s = True, self.clock.mono_s()

    def resume(self) -> None:
        if not self.paused:
            return
        now_s = self.clock.mono_s()
        if now_s - self._stood_s > LONG_S:
            self.woke_s = now_s
        self.paused = False
        deferred, self._deferred = self._deferred, []
        for run in deferred:
            self.agenda.after(0, run)
        if self.loop is not None:
            self.loop.wake()

    @property
    def replica(self) -> Any:
        """The running node's consensus, None before it has one."""
        return None if self.node is None or not self.node.is_built else self.node.proposer.replica

    @property
    def node_id(self) -> int:
        """Its number in the cluster; 0 while it has none."""
        return 0 if self.node is None or not self.node.is_built else int(self.node.here)

    def ended_task(self) -> str:
        """The name of a task that a serving node cannot do without, and that has ended; empty for none."""
        if self.loop is None or not self.serving:
            return ""
        alive = {task.get_name() for task in self.loop.tasks}
        return ", ".join(sorted(TASKS - alive))

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """A task on the node's loop, as one of its requests is."""
        if self.loop is not None:
            self.loop.create_task(work)

    def call(self, work: Callable[[], Any]) -> None:
        """Run it on the node's loop, soon."""
        if self.loop is not None:
            self.loop.call_soon(work)


def is_damage(error: BaseException) -> bool:
    """A store that cannot be read, and says so."""
    return isinstance(error, RecordError)


__all__ = ["ROOT", "Machine", "is_damage"]
