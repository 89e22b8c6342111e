"""Strikes of several steps: what single ones line up for too seldom.

Each is a story that clusters are known to have lived through; which machines, how long and what else goes on
at the time is drawn.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tests.sim.simulation import Simulation as World
    from tests.sim.world.machine import Machine

SECOND: Final = 1_000_000


def leader(world: World) -> Machine | None:
    """Who leads, if somebody does."""
    for machine in world.machines:
        replica = machine.replica
        if replica is not None and replica.leads and not machine.paused:
            return machine
    return None


def _other(world: World, dice: Random, machine: Machine) -> Machine:
    return dice.choice([other for other in world.machines if other is not machine])


def _links(world: World, machine: Machine, *, both: bool) -> list[tuple[str, str]]:
    """From a machine to the others, and back."""
    others = [other.name for other in world.machines if other is not machine]
    out = [(machine.name, name) for name in others]
    return [*out, *((name, machine.name) for name in others)] if both else out


def _cut(world: World, pairs: list[tuple[str, str]], us: int) -> None:
    world.tell("net", "cut", " ".join(f"{one}>{other}" for one, other in pairs))
    world.network.cut.update(pairs)
    world.agenda.after(us, lambda: world.network.cut.difference_update(pairs))


def _later(world: World, us: int, act: Callable[[], None]) -> None:
    world.agenda.after(us, lambda: None if world.healed else act())


def forgotten(world: World, dice: Random) -> None:
    """A leader stands still, cut off, while the others go on without it; it wakes, and is asked at once."""
    machine = leader(world)
    if machine is None:
        return
    us = dice.randrange(SECOND, 5 * SECOND // 2)
    _cut(world, _links(world, machine, both=True), us + SECOND)
    world.tell(machine.name, f"stands still for {us / 1e6:.3f} s")
    machine.pause()
    life = machine.life
    for _ in range(4):  # what the others do meanwhile is what an old tale leaves out
        _later(world, dice.randrange(us), lambda: world.admin.bursts(2))

    def wake() -> None:
        if machine.life != life:
            return
        machine.resume()
        world.admin.looks(machine)
        for _ in range(3):
            _later(world, dice.randrange(300_000), lambda: world.admin.looks(machine))

    world.agenda.after(us, wake)


def unheard(world: World, dice: Random) -> None:
    """A follower takes entries unheard; the leader compacts and goes on; the follower restarts."""
    machine = leader(world)
    if machine is None or not machine.serving:
        return
    follower = _other(world, dice, machine)
    us = dice.randrange(SECOND // 4, 3 * SECOND // 2)
    _cut(world, _links(world, follower, both=False), us)
    world.admin.bursts(dice.randrange(2, 12))
    _later(world, us // 3, lambda: _compact(world, machine))
    for _ in range(dice.randrange(1, 4)):
        _later(world, us // 3 + dice.randrange(us // 2), lambda: world.admin.bursts(dice.randrange(1, 6)))
    power = dice.random() < world.plan.power
    _later(world, us - us // 8, lambda: world.strike_crash(follower, power=power, mid_job=False))
    for _ in range(3):  # what cannot be sent to it tells the leader to begin where it knows it to be
        _later(world, us - us // 8 + dice.randrange(5_000, 400_000), lambda: world.admin.bursts(1))


def away(world: World, dice: Random) -> None:
    """A machine is off, the others go on and compact: it needs a snapshot, which may come late."""
    follower = _other(world, dice, leader(world) or world.machines[0])
    us = dice.randrange(SECOND // 3, 2 * SECOND)
    _cut(world, _links(world, follower, both=True), us)
    for _ in range(3):
        _later(world, dice.randrange(us), lambda: world.admin.bursts(dice.randrange(1, 8)))
    for machine in world.machines:
        if machine is not follower:
            _later(world, us - dice.randrange(us // 2), partial(_compact, world, machine))
    # What it compacts itself is no more there to be compared with.
    _later(world, us + dice.randrange(2 * SECOND), lambda: _compact(world, follower))


def _compact(world: World, machine: Machine) -> None:
    if machine.replica is not None and machine.serving:
        world.compact_now(machine)


def woken(world: World, dice: Random) -> None:
    """Everything stands still, longer than the time-out of failures; the leader wakes first."""
    first = leader(world)
    if first is None:
        return
    us = dice.randrange(SECOND, 5 * SECOND)
    for machine in world.machines:
        if machine.down or machine.paused:
            continue
        machine.pause()
        life = machine.life
        after = us + (0 if machine is first else dice.randrange(50_000, SECOND))
        world.agenda.after(after, partial(_resume, machine, life))


def _resume(machine: Machine, life: int) -> None:
    if machine.life == life:
        machine.resume()


def late_rows(world: World, dice: Random) -> None:
    """A machine's disk is late with every group of rows while it is made the owner of something.

    Often it dies right behind that COMMIT, or in the middle of a group: what it had appended only is gone.
    """
    machine = dice.choice(world.machines)
    low_us, us = dice.choice([5_000, 20_000, 50_000]), dice.randrange(SECOND // 2, 2 * SECOND)
    world.tell(machine.name, f"has a late disk for {us / 1e6:.3f} s")
    machine.host.late_us = low_us, low_us * dice.choice([2, 8])
    if world.plan.moves and dice.random() < 0.8:
        world.mover.cancel()  # else the run before is in the way
        _later(world, dice.randrange(50_000, us // 4), partial(world.mover.to, machine, dice))
    power, ends = dice.random() < world.plan.power, dice.random()
    crash = partial(world.strike_crash, machine, power=power, mid_job=dice.random() < 0.3)
    if ends < 0.8:
        world.doomed[machine] = partial(_later, world, dice.randrange(1, 5_000), crash)

    def over() -> None:
        machine.host.late_us = None
        world.doomed.pop(machine, None)
        if ends > 0.75:
            crash()

    _later(world, us, over)


def emptied(world: World, dice: Random) -> None:
    """Old rows go, so files are written anew; then processes die in the middle of it."""
    for _ in range(dice.randrange(2, 6)):
        _later(world, dice.randrange(SECOND), lambda: world.admin.truncates_all("rows", dice))
    for machine in world.machines:
        if dice.random() < 0.6:
            crash = partial(
                world.strike_crash, machine, power=dice.random() < 0.7, mid_job=dice.random() < 0.5
            )
            _later(world, dice.randrange(SECOND // 2, 5 * SECOND // 2), crash)
