"""Random walks of members of a QUEUE through trouble, and what must be true of them at the end."""

from __future__ import annotations

from tests.fakes.queue_actor import QueueActor
from tests.fakes.queue_world import QueueWorld

TROUBLE_S = 40.0
QUIET_S = 120.0


def walk(seed: int) -> list[str]:
    """The faults of one walk."""
    world = QueueWorld(seed)
    dice = world.dice
    partitions = dice.randrange(1, 4)
    for partition in range(1, partitions + 1):
        world.add(partition, dice.randrange(1, 3), dice.randrange(20, 120))
    bad = frozenset(
        (dice.randrange(1, partitions + 1), dice.randrange(0, 20)) for _ in range(dice.randrange(0, 3))
    )
    rows_max = dice.choice([0, 4, 32])
    for name in "abc"[: dice.randrange(2, 4)]:
        QueueActor(world, name, bad, rows_max)
    world.look()
    end = world.now + TROUBLE_S
    while world.now < end and not world.faults:
        world.run(world.now + dice.uniform(0.05, 2.0))
        trouble(world)
    if not world.faults:
        world.run(world.now + world.lease_s / 2)
        world.faults += world.unknown_leases()
        world.run(world.now + QUIET_S)
        world.faults += at_the_end(world, bad)
    return world.faults


def trouble(world: QueueWorld) -> None:
    """Something goes wrong, or rows come."""
    dice = world.dice
    partition = dice.choice(list(world.queues))
    alive = [one for one in world.actors if one.is_alive]
    actor = dice.choice(alive)
    match dice.randrange(0, 12):
        case 0 | 1 | 2:
            world.queues[partition].publish(dice.randrange(1, 20), world.queues[partition].epochs[-1])
        case 3:
            world.move(partition, dice.randrange(1, 3))
        case 4 | 5 | 6:
            actor.cut(dice.choice(list(actor.connections) or [0]), notices_late=dice.random() < 0.5)
        case 7 if len(alive) > 1 and dice.random() < 0.3:
            actor.kill()
        case 8 if dice.random() < 0.3:
            world.seek()
        case _:
            pass


def at_the_end(world: QueueWorld, bad: frozenset[tuple[int, int]]) -> list[str]:
    """Each row is done, or parked if it is bad; each acknowledgement has its outcome."""
    faults = []
    for partition, queue in world.queues.items():
        open_rows = [row for row in range(len(queue.epochs)) if row not in queue.done | queue.parked.keys()]
        if open_rows:
            faults.append(
                f"rows {open_rows[:5]} of {partition} are not settled: {queue.leases.get(open_rows[0])}"
            )
        idle = [row for row in queue.done if (queue.incarnation, partition, row) not in world.worked]
        if idle:
            faults.append(f"rows {idle[:5]} of {partition} are done, and no application worked on them")
        good = [row for row in queue.parked if (partition, row) not in bad]
        if good:
            faults += [f"row {row} of {partition} is parked" for row in good]
    for actor in world.actors:
        if actor.is_alive and actor.owed:
            faults.append(f"{actor.name} waits for {list(actor.owed.values())[:3]}")
        if actor.is_alive and actor.member.state.bytes:
            faults.append(f"{actor.name} counts {actor.member.state.bytes} bytes with nothing in hand")
    return faults
