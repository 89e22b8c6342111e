"""What happens right after a step of a transaction that settles positions.

    given     an application has got the first rows of a block
    claimed   a node has locked gates
    seen      the node with the COMMIT has asked the owners, and proposes the entry
    decided   the entry is applied somewhere

At random times hardly anything falls between them. So such a strike waits for the next such step, and comes
within 20 ms of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, Final

from tests.sim.faults.plan import Strike
from tests.sim.world.world import SECOND_US

if TYPE_CHECKING:
    from tests.sim.clients.transformer import TransformProcess
    from tests.sim.consumed import ConsumedSimulation
    from tests.sim.world.machine import Machine

SOON_US: Final = (0, 2_000, 20_000)
AWAY_US: Final = (400_000, 3_500_000)
"""Of an owner: the time-out of failures is 2 s."""
LATE_US: Final = (3_000_000, 14_000_000, 14_000_000, 17_000_000)
"""Of a COMMIT: a hand-over takes 11 s."""
LONG_AWAY_US: Final = 16_000_000
MEMBERS_MAX: Final = 4
NONE: Final = 0.2
"""Share of seeds without moments."""
MEAN_US: Final = (1_000_000, 3_000_000, 8_000_000)


def drawn(seed: int, seconds: int) -> tuple[Strike, ...]:
    """The moments of a seed; a fifth of the seeds has none."""
    dice = Random(f"moments {seed}")
    if dice.random() < NONE:
        return ()
    return _repeated(dice, KINDS, dice.choice(MEAN_US), seconds)


def of_kinds(seed: int, kinds: Sequence[str], mean_us: int, seconds: int) -> tuple[Strike, ...]:
    """Moments of these kinds alone."""
    return _repeated(Random(f"moments {seed} {kinds}"), kinds, mean_us, seconds)


def _repeated(dice: Random, kinds: Sequence[str], mean_us: int, seconds: int) -> tuple[Strike, ...]:
    at_us, found = 0, list[Strike]()
    while (at_us := at_us + int(dice.expovariate(1 / mean_us))) < seconds * SECOND_US:
        found.append(Strike(len(found), at_us, dice.choice(kinds), dice.getrandbits(32)))
    return tuple(found)


class Moments:
    """Strikes that wait for their moment, the oldest first."""

    def __init__(self, world: ConsumedSimulation) -> None:
        self._world = world
        self._waiting: list[Strike] = []

    def arm(self, each: Strike) -> None:
        """From now on it waits."""
        if not self._world.healed:
            self._waiting.append(each)

    def came(self, when: str, session: int, partition: int, machine: Machine | None = None) -> None:
        """A step of the member with this session; `machine`: the node that does it."""
        found = next((one for one in self._waiting if one.kind.partition(" ")[0] == when), None)
        if found is None or self._world.healed:
            return
        self._waiting.remove(found)
        dice = Random(found.dice)
        moment = Moment(self._world, session, partition, machine)
        self._world.agenda.after(dice.choice(SOON_US), partial(self._strike, found, moment, dice))

    def _strike(self, each: Strike, moment: Moment, dice: Random) -> None:
        world = self._world
        if world.healed:
            return
        world.count(each.kind.replace(" ", "_"))
        world.tell("*", str(each), f"partition {moment.partition}, session {moment.session}")
        HARMS[each.kind.partition(" ")[2]](world, moment, dice)


class Moment:
    """Whom it concerns."""

    def __init__(
        self, world: ConsumedSimulation, session: int, partition: int, machine: Machine | None
    ) -> None:
        self._world, self.session, self.partition = world, session, partition
        self.machine = machine

    def process(self) -> TransformProcess | None:
        """The member, if it lives."""
        for one in self._world.casts[0].alive():
            if one.member.state.session == self.session:
                found: TransformProcess = one
                return found
        return None

    def topic(self, name: str) -> Any:
        state = self._world.watch.newest[1]
        return None if state is None else state.topic_named(f"public/default/{name}")


# ---- harms ----


def _kill(world: ConsumedSimulation, moment: Moment, dice: Random) -> None:
    _member(world, moment, "kill", dice)


def _pause(world: ConsumedSimulation, moment: Moment, dice: Random) -> None:
    _member(world, moment, "pause", dice)


def _takeover(world: ConsumedSimulation, moment: Moment, dice: Random) -> None:
    _member(world, moment, "takeover", dice)


def _hang_up(world: ConsumedSimulation, moment: Moment, dice: Random) -> None:
    """No node hears the member any more, and no answer comes."""
    process = moment.process()
    if process is not None:
        for machine in world.machines:
            process.hang_up(machine.name, dice.random())
            process.writer.hang_up(machine.name, dice.random())


def _seek(world: ConsumedSimulation, moment: Moment, dice: Random) -> None:
    _member(world, moment, "seek", dice)


def _member(world: ConsumedSimulation, moment: Moment, kind: str, dice: Random) -> None:
    process = moment.process()
    if process is not None:
        world.casts[0].strike(kind, process, dice)


def _owner_of(world: ConsumedSimulation, topic: Any, dice: Random, partition: int = 0) -> Any:
    parts = [] if topic is None else [int(one.partition) for one in topic.layout.active()]
    if not parts:
        return None
    chosen = partition if partition in parts else dice.choice(parts)
    return world.by_node(int(topic.assignments[chosen].owner.node))


def _gate_owner(world: ConsumedSimulation, moment: Moment, dice: Random) -> None:
    machine = _owner_of(world, moment.topic("rows"), dice, moment.partition)
    _crash(world, machine, dice)


def _output_owner(world: ConsumedSimulation, moment: Moment, dice: Random) -> None:
    _crash(world, _owner_of(world, moment.topic("out"), dice), dice)


def _output_away(world: ConsumedSimulation, moment: Moment, dice: Random) -> None:
    """An owner of the output is away for longer than a hand-over takes, and a member joins meanwhile."""
    machine = _owner_of(world, moment.topic("out"), dice)
    if machine is not None:
        machine.crash(power=False)
        world.boot_later(machine, LONG_AWAY_US)
        _joins(world)


def _crash(world: ConsumedSimulation, machine: Any, dice: Random) -> None:
    if machine is not None:
        machine.crash(power=dice.random() < world.plan.power)
        world.boot_later(machine, dice.choice(AWAY_US))


def _stand_still(world: ConsumedSimulation, moment: Moment, dice: Random) -> None:
    """The owner of the gate wakes as one that does not know its successor."""
    machine = _owner_of(world, moment.topic("rows"), dice, moment.partition)
    if machine is not None and not machine.paused:
        machine.pause()
        life = machine.life
        world.agenda.after(dice.choice(AWAY_US), lambda: machine.resume() if machine.life == life else None)


def _move(world: ConsumedSimulation, moment: Moment, dice: Random) -> None:
    """Another node becomes the owner of the gate, without any crash."""
    topic = moment.topic("rows")
    if topic is None or moment.partition not in {int(one.partition) for one in topic.layout.active()}:
        return
    owner, *others = [int(place.node) for place in topic.assignments[moment.partition].replicas]
    nodes = [world.node_of(machine) for machine in world.machines]
    others = others or [node for node in nodes if node != owner]
    nodes_after = (*others, owner) if topic.replication > 1 else (dice.choice(others),)
    world.mover.chosen([(moment.partition, nodes_after)])


def _split(world: ConsumedSimulation, moment: Moment, dice: Random) -> None:
    world.layouter.ask_for("split", [moment.partition], into=dice.choice((2, 3)))


def _split_output(world: ConsumedSimulation, moment: Moment, dice: Random) -> None:
    world.output_layouter.chosen(dice)


def _mute(world: ConsumedSimulation, moment: Moment, dice: Random) -> None:
    """The COMMIT comes long after the claim, and a member joins meanwhile."""
    process = moment.process()
    if process is None:
        return
    process.writer.mute(dice.choice(LATE_US))
    _joins(world)


def _joins(world: ConsumedSimulation) -> None:
    processes = world.casts[0].processes
    if len(processes) < MEMBERS_MAX:
        world.casts[0].begin(f"m{len(processes) + 1}", takeover=False)


def _late_commit(world: ConsumedSimulation, moment: Moment, dice: Random) -> None:
    """The same, and the gate gets another owner."""
    _mute(world, moment, dice)
    act = dice.choice((_move, _gate_owner))
    world.agenda.after(dice.choice(AWAY_US), partial(act, world, moment, dice))


def _cut(world: ConsumedSimulation, moment: Moment, dice: Random) -> None:
    """The node with the COMMIT is cut off from the others, and the owner of the gate dies."""
    machine = moment.machine
    if machine is None:
        return
    pairs = [
        pair
        for other in world.machines
        if other is not machine
        for pair in ((machine.name, other.name), (other.name, machine.name))
    ]
    world.network.cut.update(pairs)
    world.agenda.after(dice.choice(AWAY_US), lambda: world.network.cut.difference_update(pairs))
    _gate_owner(world, moment, dice)


HARMS: Final[dict[str, Callable[[ConsumedSimulation, Moment, Random], None]]] = {
    "kill": _kill,
    "pause": _pause,
    "takeover": _takeover,
    "hang_up": _hang_up,
    "seek": _seek,
    "gate_owner": _gate_owner,
    "output_owner": _output_owner,
    "output_away": _output_away,
    "stand_still": _stand_still,
    "move": _move,
    "split": _split,
    "split_output": _split_output,
    "mute": _mute,
    "late_commit": _late_commit,
    "cut": _cut,
}
STEPS: Final = ("given", "claimed", "claimed", "claimed", "decided", "decided")
KINDS: Final = (*(f"{when} {harm}" for when in STEPS for harm in sorted(HARMS)), "seen cut", "seen cut")
"""A name as often as it is drawn."""
