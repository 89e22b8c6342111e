"""What each kind of strike does. `dice` are its own; which machine it hits may follow from the state."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Final

from ringfence.control.consensus import events
from ringfence.control.consensus.configuration_changes import Change, NodeChange, Operation
from ringfence.control.consensus.errors import ConsensusError
from tests.sim.faults import layout_stories, stories
from tests.sim.world.network import Weather

if TYPE_CHECKING:
    from tests.sim.faults.plan import Strike
    from tests.sim.simulation import Simulation as World
    from tests.sim.world.machine import Machine

SECOND: Final = 1_000_000


def strike(world: World, what: Strike) -> None:
    """Carry it out, unless all is healed."""
    if world.healed:
        return
    dice = Random(what.dice)
    world.count(what.kind)
    _ACTS[what.kind](world, dice)


def weather_of(world: World) -> Weather:
    """The usual weather of this seed."""
    plan = world.plan
    return Weather(plan.loss, plan.double, plan.overtake, plan.delay_us, plan.jitter_us, plan.late_us)


def _any(world: World, dice: Random) -> Machine:
    return dice.choice(world.machines)


def _leader(world: World, dice: Random) -> Machine:
    """Who leads, if somebody does."""
    for machine in world.machines:
        replica = machine.replica
        if replica is not None and replica.leads:
            return machine
    return _any(world, dice)


def _kill(world: World, dice: Random) -> None:
    world.strike_crash(_any(world, dice), power=False, mid_job=dice.random() < 0.3)


def _power(world: World, dice: Random) -> None:
    world.strike_crash(_any(world, dice), power=True, mid_job=dice.random() < 0.5)


def _kill_leader(world: World, dice: Random) -> None:
    world.strike_crash(_leader(world, dice), power=dice.random() < world.plan.power, mid_job=False)


def _power_all(world: World, dice: Random) -> None:
    for machine in world.machines:
        world.strike_crash(machine, power=True, mid_job=dice.random() < 0.5)


def _die_in_call(world: World, dice: Random) -> None:
    """The process ends in the middle of a job of its journal, or of its recovery."""
    machine = _any(world, dice)
    machine.files.dies_after = dice.randrange(12)
    if machine.down:
        machine.host.calls_left = dice.randrange(30) if dice.random() < 0.5 else None


def _cut(world: World, dice: Random, pairs: list[tuple[str, str]], us: int) -> None:
    world.tell("net", "cut", " ".join(f"{one}>{other}" for one, other in pairs))
    world.network.cut.update(pairs)
    world.agenda.after(us, lambda: _mend(world, pairs))


def _mend(world: World, pairs: list[tuple[str, str]]) -> None:
    world.network.cut.difference_update(pairs)
    if not world.healed:
        world.tell("net", "mended", " ".join(f"{one}>{other}" for one, other in pairs))


def _partition(world: World, dice: Random) -> None:
    """Two halves, clients in either."""
    names = [machine.name for machine in world.machines] + [client.name for client in world.clients]
    one = {name for name in names if dice.random() < 0.5}
    pairs = [(a, b) for a in names for b in names if a != b and (a in one) != (b in one)]
    _cut(world, dice, pairs, dice.randrange(SECOND // 5, 4 * SECOND))


def _isolate(world: World, dice: Random) -> None:
    """One machine, often the leader, from all others; clients may still reach it."""
    lonely = _leader(world, dice) if dice.random() < 0.5 else _any(world, dice)
    others = [machine.name for machine in world.machines if machine is not lonely]
    pairs = [(lonely.name, name) for name in others] + [(name, lonely.name) for name in others]
    for _ in range(6):  # who believes to lead is asked for news
        world.agenda.after(dice.randrange(SECOND // 2, 2 * SECOND), lambda: world.admin.looks(lonely))
    _cut(world, dice, pairs, dice.randrange(SECOND // 2, 5 * SECOND))


def _one_way(world: World, dice: Random) -> None:
    one = _any(world, dice).name
    others = [machine.name for machine in world.machines if machine.name != one]
    pairs = [(one, name) if dice.random() < 0.5 else (name, one) for name in others]
    _cut(world, dice, pairs, dice.randrange(SECOND // 5, 4 * SECOND))


def _pause(world: World, dice: Random) -> None:
    _stop(world, _any(world, dice), dice)


def _pause_leader(world: World, dice: Random) -> None:
    _stop(world, _leader(world, dice), dice)


def _cut_power(world: World, machine: Machine) -> None:
    if not world.healed:
        world.strike_crash(machine, power=True, mid_job=False)


def _pause_all(world: World, dice: Random) -> None:
    """Whatever the machines run on stands still; they wake one after the other."""
    us = dice.randrange(SECOND // 2, 5 * SECOND)
    for machine in world.machines:
        _stop(world, machine, dice, us + dice.randrange(300_000))


def _stop(world: World, machine: Machine, dice: Random, us: int = 0) -> None:
    if machine.down or machine.paused:
        return
    us = us or dice.choice([dice.randrange(20_000, 600_000), dice.randrange(SECOND // 2, 5 * SECOND)])
    world.tell(machine.name, f"stands still for {us / 1e6:.3f} s")
    machine.pause()
    life = machine.life
    world.agenda.after(us, lambda: machine.resume() if machine.life == life else None)


def _clock_rate(world: World, dice: Random) -> None:
    machine = _any(world, dice)
    wild = (0.3, 0.6, 1.0, 1.6, 3.0)
    rates = wild if world.plan.wild_clocks else (0.8, 0.9, 0.97, 1.0, 1.03, 1.1, 1.25)
    machine.clock.set_rate(dice.choice(rates))


def _wall_jump(world: World, dice: Random) -> None:
    _any(world, dice).clock.wall_ahead_ms += dice.choice(
        [-3_600_000, -10_000, -500, 1_300, 10_000, 3_600_000]
    )
    world.times.jumped()


def _hang_up(world: World, dice: Random) -> None:
    dice.choice(world.clients).hang_up(_any(world, dice).name, dice.random())


def _storm(world: World, dice: Random) -> None:
    world.network.weather = Weather(
        loss=dice.choice([0.1, 0.3, 0.6]),
        double=dice.choice([0.0, 0.2]),
        overtake=dice.choice([0.0, 0.4]),
        delay_us=dice.choice([200, 5_000, 50_000]),
        jitter_us=dice.choice([300, 30_000, 200_000]),
        late_us=world.plan.late_us,
    )

    def over() -> None:
        if not world.healed:
            world.network.weather = weather_of(world)

    world.agenda.after(dice.randrange(SECOND // 5, 2 * SECOND), over)


def _sync_error(world: World, dice: Random) -> None:
    machine = _any(world, dice)
    machine.hurt.add("sync")
    machine.files.fail_sync = dice.choice([0.05, 0.3, 0.6, 1.0])
    _off(world, dice, lambda: setattr(machine.files, "fail_sync", 0.0), 2)
    _dies_of_it(world, machine, dice)


def _write_error(world: World, dice: Random) -> None:
    machine = _any(world, dice)
    machine.hurt.add("write")
    machine.files.fail_write = dice.choice([0.1, 1.0])
    _off(world, dice, lambda: setattr(machine.files, "fail_write", 0.0), 1)


def _full(world: World, dice: Random) -> None:
    machine = _any(world, dice)
    machine.hurt.add("full")
    used = sum(len(file.data) for file in machine.files.names.values())
    machine.files.room = used + dice.randrange(3_000)
    _off(world, dice, lambda: setattr(machine.files, "room", None), 2)


def _dies_of_it(world: World, machine: Machine, dice: Random) -> None:
    """Damage shows when the machine starts again: half of the time its power goes soon."""

    if dice.random() < 0.5:
        world.agenda.after(dice.randrange(10_000, 3 * SECOND // 2), lambda: _cut_power(world, machine))


def _off(world: World, dice: Random, call: Callable[[], None], seconds: int) -> None:
    world.agenda.after(dice.randrange(50_000, seconds * SECOND), call)


def _row_sync_error(world: World, dice: Random) -> None:
    machine = _any(world, dice)
    machine.hurt.add("rows")
    machine.host.disk.set_faults(sync_errors_per_mille=dice.choice([20, 100, 300, 1000]))
    _off(world, dice, machine.host.disk.set_faults, 2)
    _dies_of_it(world, machine, dice)


def _row_read_error(world: World, dice: Random) -> None:
    machine = _any(world, dice)
    machine.hurt.add("rows")
    machine.host.disk.set_faults(read_errors_per_mille=300)
    _off(world, dice, machine.host.disk.set_faults, 1)


def _row_full(world: World, dice: Random) -> None:
    machine = _any(world, dice)
    machine.hurt.add("rows")
    used = sum(length for _, length in machine.host.disk.files())
    machine.host.disk.set_faults(capacity_bytes=used + dice.randrange(4_096, 131_072))
    _off(world, dice, machine.host.disk.set_faults, 2)


def _row_rot(world: World, dice: Random) -> None:
    machine = _any(world, dice)
    rot = machine.host.disk.rot()
    if rot is not None:
        machine.hurt.add("rows")
        world.ledger.rots.append(rot)
        world.tell(machine.name, "a row's byte rots", rot)


def _rot(world: World, dice: Random) -> None:
    machine = _any(world, dice)
    rot = machine.files.rot()
    if rot is not None:
        machine.rots.append(rot)
        world.tell(machine.name, "a byte of the metadata rots, at", rot[1])
        _dies_of_it(world, machine, dice)


def _slow_disk(world: World, dice: Random) -> None:
    machine = _any(world, dice)
    machine.slow = dice.choice([0.05, 0.5])
    _off(world, dice, lambda: setattr(machine, "slow", world.plan.slow), 3)


def _compact(world: World, dice: Random) -> None:
    """A node makes a snapshot now: others that are behind will need it."""
    machine = _any(world, dice)
    if machine.replica is not None and machine.serving:
        world.compact_now(machine)
        if dice.random() < 0.2:
            us = dice.randrange(100, 3_000)
            world.agenda.after(us, lambda: _cut_power(world, machine))


def _transfer(world: World, dice: Random) -> None:
    """An operator asks for another leader."""
    leader = _leader(world, dice)
    replica = leader.replica
    if replica is not None and not leader.paused and leader.serving:
        to = dice.choice(sorted(replica.configuration.voters))
        with leader.on(), contextlib.suppress(ConsensusError):
            leader.call(lambda: replica.step(events.Transfer(to)))


def _vote(world: World, dice: Random) -> None:
    """An administrator wants a node to vote, not to vote, or the cluster to choose."""
    world.admin_votes(_any(world, dice), dice.choice(["promote", "demote", "auto"]))


def _change(world: World, dice: Random) -> None:
    change_voters(world, _leader(world, dice), dice)


def change_voters(world: World, machine: Machine, dice: Random) -> None:
    """A change of the configuration, decided at the least convenient time: a voter less, or all of them."""
    replica = machine.replica
    if replica is None or machine.paused or machine.down:
        return
    members = sorted({*replica.configuration.voters, *replica.configuration.learners})
    kinds = [Operation.LEARNER if dice.random() < 0.3 else Operation.VOTER for _ in members]
    if Operation.VOTER not in kinds:
        return
    change = Change(tuple(NodeChange(kind, node) for kind, node in zip(kinds, members, strict=True)))
    back = Change(tuple(NodeChange(Operation.VOTER, node) for node in members))
    changes = [change, back] if dice.random() < 0.5 else [change]

    def propose() -> None:
        for each in changes:
            with contextlib.suppress(ConsensusError):
                replica.step(events.ProposeChange(each))

    machine.call(propose)


def _burst(world: World, dice: Random) -> None:
    """Many proposals at once, through any nodes."""
    world.admin.bursts(dice.randrange(4, 24))


def _truncate(world: World, dice: Random) -> None:
    world.admin_truncates(dice)


def _kill_owner(world: World, dice: Random) -> None:
    """Who owns most of what rows go to."""
    state = next((machine.replica.state for machine in world.machines if machine.serving), None)
    topic = None if state is None else state.topic_named("public/default/rows")
    owners = [] if topic is None else [int(each.owner.node) for each in topic.assignments.values()]
    machine = world.by_node(max(sorted(set(owners)), key=owners.count)) if owners else None
    if machine is not None:
        world.strike_crash(machine, power=dice.random() < world.plan.power, mid_job=dice.random() < 0.3)


def _older(world: World, dice: Random) -> None:
    """The rows of one machine come back as they were at an earlier stop. Of one: with two, rows are lost.

    Every second strike copies, every second one restores. Only a copy from before the last start is told from
    the log itself; one of the same run, and younger than the renewal of the witness, is not.
    """
    machine = world.older or dice.choice(world.machines)
    world.older, host = machine, machine.host
    served = machine.serving
    world.strike_crash(machine, power=True, mid_job=False)
    if host.copy is None:
        host.copy = host.disk.copy()
        return
    if served:
        host.disk, host.copy = host.copy, None
        world.count("older")
        world.tell(machine.name, "has the rows of an earlier stop")


_ACTS: Final[dict[str, Callable[[World, Random], None]]] = {
    "kill": _kill,
    "power": _power,
    "kill_leader": _kill_leader,
    "power_all": _power_all,
    "die_in_call": _die_in_call,
    "partition": _partition,
    "isolate": _isolate,
    "one_way": _one_way,
    "pause": _pause,
    "pause_leader": _pause_leader,
    "pause_all": _pause_all,
    "clock_rate": _clock_rate,
    "wall_jump": _wall_jump,
    "hang_up": _hang_up,
    "storm": _storm,
    "sync_error": _sync_error,
    "write_error": _write_error,
    "full": _full,
    "row_sync_error": _row_sync_error,
    "row_read_error": _row_read_error,
    "row_full": _row_full,
    "row_rot": _row_rot,
    "rot": _rot,
    "slow_disk": _slow_disk,
    "compact": _compact,
    "transfer": _transfer,
    "vote": _vote,
    "change": _change,
    "burst": _burst,
    "truncate": _truncate,
    "forgotten": stories.forgotten,
    "unheard": stories.unheard,
    "away": stories.away,
    "woken": stories.woken,
    "emptied": stories.emptied,
    "late_rows": stories.late_rows,
    "move": lambda world, dice: world.mover.move(dice),
    "balance": lambda world, dice: world.mover.balance(dice),
    "reverse": lambda world, dice: world.mover.reverse(dice),
    "steer": lambda world, dice: world.mover.steer(dice),
    "drain": lambda world, dice: world.mover.drain(dice),
    "cable": lambda world, dice: world.cables.reset(dice),
    "kill_owner": _kill_owner,
    "older": _older,
    "split": lambda world, dice: world.layouter.split(dice),
    "merge": lambda world, dice: world.layouter.merge(dice),
    "repartition": lambda world, dice: world.layouter.repartition(dice),
    "layouts": lambda world, dice: world.layouter.several(dice),
    "split_other": lambda world, dice: world.layouter.split_other(dice),
    "empty_sealed": lambda world, dice: world.layouter.empty_sealed(dice),
    "abort_soon": lambda world, dice: world.layouter.abort_soon(dice),
    "abort_layout": lambda world, dice: world.layouter.abort(dice),
    "unheard_source": layout_stories.unheard_source,
    "parted_source": layout_stories.parted_source,
    "opens_at_fence": layout_stories.opens_at_fence,
    "lagging_sealed": lambda world, dice: world.forced_layouts.begin_lagging(dice),
    "force_child": lambda world, dice: world.forced_layouts.begin_child(dice),
    "force_sealed": lambda world, dice: world.forced_layouts.begin_sealed(dice),
    "force": lambda world, dice: world.forcer.begin(dice),
}
