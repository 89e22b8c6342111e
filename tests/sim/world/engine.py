"""The native engine of one machine: `host.py` for a node that the product's own control plane drives."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any

from ringfence.native.errors import StorageError
from tests.sim.world.host import Host

if TYPE_CHECKING:
    from tests.sim.world.machine import Machine


class EngineHost(Host):
    """Rounds as in `Host`; outcomes go up through the product's driver."""

    tick_us = 50_000
    """The engine says itself when it must be woken; a tick only notices what it does not."""

    def __init__(self, machine: Machine, random: Random) -> None:
        self.machine = machine
        world = machine.world
        super().__init__(
            machine.agenda,
            random,
            world.native.SimDisk(random.getrandbits(32)),
            lambda _: None,
            slow=0.0,
            on_answer=world.answer_from(machine),
            on_outcome=lambda _: None,
        )
        self.faults = world.counts
        self.copy: Any = None
        """Of the disk, as it was at an earlier stop: the disk may come back as it was then."""
        self.listening = False
        self.calls_left: int | None = None
        self.late_us: tuple[int, int] | None = None
        """While its disk is late with every group: by how much."""
        self._pumping = self._is_heard_soon = False
        self._orders: dict[int, tuple[str, tuple[Any, ...]]] = {}

    def make_node(self, identity: dict[str, Any], *, level: int, level_newest: int) -> Any:
        world = self.machine.world
        self.node = world.native.SimNode(
            self.disk,
            **identity,
            level=level,
            level_newest=level_newest,
            shards=world.shards,
            budget_bytes=(2 + 2 * world.shards) << 20,
            segment_bytes=world.segment_bytes,
        )
        return self.node

    @property
    def running(self) -> bool:
        return self.node is not None and bool(self.node.running)

    def clocks(self) -> tuple[int, int]:
        return self.machine.clock.both_ms()

    def set_clock(self) -> None:
        if self.running:
            self.node.clock(*self.clocks())

    def recover(self) -> dict[str, Any]:
        """Raises StorageError when the disk fails at it."""
        calls, self.calls_left = self.calls_left, None
        try:
            report: dict[str, Any] = self.node.recover(*self.clocks(), calls)
        except StorageError:
            self.faults["start_failed"] += 1
            if calls is not None:
                self.machine.world.dies_soon(self.machine)
            raise
        self._orders.clear()
        self._recovered()
        if not self.machine.world.plan.moves:  # else a copy may lag
            self.machine.world.ledger_told(self.machine, report["partitions"])
        return report

    def crash(self, *, power: bool, mid_job: bool = False) -> None:
        self.listening = False
        if self.node is None:
            if power:
                self.disk.crash()
            self.faults["power_cut" if power else "crash"] += 1
            return
        super().crash(power=power, mid_job=mid_job)
        self.node = None

    def begin(self, life: int) -> bool:
        node, machine = self.node, self.machine
        if life != self.life or machine.paused or node is None or not node.running:
            return False
        node.clock(*machine.clock.both_ms())
        return True

    def later(self, delay_us: int, call: Callable[[], None]) -> None:
        life, machine = self.life, self.machine
        process = machine.life

        def run() -> None:
            if process != machine.life or machine.down:
                return
            if machine.paused:
                machine.defer(run)
            elif self.begin(life):
                call()

        self.agenda.after(delay_us, run)

    def pump_soon(self) -> None:
        if not self._pumping:
            self._pumping = True
            self.agenda.after(0, self._pump_now)

    def _pump_now(self) -> None:
        self._pumping = False
        if self.running and not self.machine.paused:
            self.set_clock()
            self.pump()

    def pump(self) -> None:
        self._slow = self.machine.slow
        super().pump()

    def _carry_peer_messages(self) -> None:
        for wanted in self.node.take_peer_messages():
            self.machine.world.cables.carry_out(self.machine, *wanted)

    def _hand_over_outcomes(self) -> None:
        """The product's driver polls them, in some seeds when its loop has done something else before."""
        late_us = 0 if self.machine.world.healed else self.machine.world.plan.heard_us
        if not late_us:
            self._hear()
        elif self.node.readable and not self._is_heard_soon:
            self._is_heard_soon = True
            self.agenda.after(self.random.randrange(late_us), self._hear)

    def _hear(self) -> None:
        self._is_heard_soon = False
        if self.running and self.node.readable and self.machine.loop is not None:
            self.machine.loop.ready_from(self.node.fileno())

    def _group_us(self) -> int:
        """Others look at what is appended meanwhile; it is gone if the process ends before."""
        if self.late_us is not None:
            return self.random.randrange(*self.late_us)
        us, world = self._delay_us(300, 3_000), self.machine.world
        if world.plan.stall and not world.healed and self.random.random() < world.plan.stall:
            us += self.random.randrange(world.plan.stall_us)
        return us

    # ---- what the product's driver says and hears ----

    def ordered(self, name: str, args: tuple[Any, ...], number: int) -> None:
        self._orders[number] = name, args

    def heard(self, outcome: tuple[Any, ...]) -> None:
        if outcome[0] == "order":
            name, args = self._orders.pop(outcome[1], ("", ()))
            self.machine.world.watch.order_ended(self.machine, name, args, outcome[2])
        elif outcome[0] != "request":
            self.machine.world.watch.engine_said(self.machine, outcome)
