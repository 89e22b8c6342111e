"""The disks of a cluster that was born in peace: made once a process, the beginning of every seed.

Three empty directories; the first becomes a cluster, the others join; when all of them vote and stand in the
ring, their power is cut. What is on their disks then is where a seed begins.
"""

from __future__ import annotations

from functools import cache
from typing import Final
from unittest.mock import patch

from ringfence.control.store import directory
from ringfence.native.wire import LEVEL_NEWEST
from tests.sim.checks.observe import observed
from tests.sim.faults.plan import Plan
from tests.sim.world import quiet
from tests.sim.world.files import Files
from tests.sim.world.intercept import installed
from tests.sim.world.levels import program_of
from tests.sim.world.world import SECOND_US, World

BIRTH_US: Final = 60 * SECOND_US


@cache
def born(machines: int, level: int = LEVEL_NEWEST, newest: int = LEVEL_NEWEST) -> tuple[Files, ...]:
    """The disks, by machine; `level` is that of the program which began the cluster.

    `newest`: of the program that the machines run.

    AssertionError when no cluster comes about without any fault.
    """
    plan = Plan(
        seed=0,
        machines=machines,
        shards=1,
        segment_bytes=65_536,
        producers=0,
        send_us=1,
        partitions=1,
        power=0.0,
        loss=0.0,
        double=0.0,
        overtake=0.0,
        delay_us=100,
        jitter_us=100,
        slow=0.0,
        seconds=0,
    )
    own_level = patch.object(directory, "LEVEL_NEWEST", level)
    with quiet.logs(), installed(), observed(), program_of(newest), own_level:
        world = World(plan)
        first, *others = world.machines
        first.boot()
        while world.agenda.now_us < BIRTH_US and not first.serving and world.violation is None:
            world.agenda.run(world.agenda.now_us + SECOND_US // 10)
        for machine in others:
            machine.boot((f"tcp://{first.name}:7001",))
        while world.agenda.now_us < BIRTH_US and world.violation is None:
            world.agenda.run(world.agenda.now_us + SECOND_US // 4)
            if _whole(world, machines):
                return tuple(machine.files.image() for machine in world.machines)
    if world.violation is not None:
        raise world.violation
    raise AssertionError(f"no cluster of {machines} within {BIRTH_US // SECOND_US} s")


def _whole(world: World, machines: int) -> bool:
    replicas = [machine.replica for machine in world.machines]
    return all(
        replica is not None
        and machine.serving
        and len(replica.configuration.voters) == machines - (machines + 1) % 2  # odd
        and len(replica.state.ring.members) == machines
        and replica.applied.index == replica.node.core.log.commit
        for machine, replica in zip(world.machines, replicas, strict=True)
    )
