"""The administrator who moves partitions: moves, balances, drains, reversals, pauses, cancels, at any node.

What was asked may be refused, or never answered: what counts is that everything comes to an end in peace,
when paused runs are resumed and nobody is drained any more.
"""

from __future__ import annotations

import contextlib
from random import Random
from typing import TYPE_CHECKING, Any, Final

from ringfence.control.model.commands import SetConfig
from ringfence.control.model.ids import PartitionId
from ringfence.control.model.rebalances import RunState
from ringfence.control.model.state import MetadataState
from ringfence.control.model.topics import Assignment
from ringfence.control.runtime.process.errors import RequestRefused
from ringfence.control.runtime.raft.proposer import RaftProposer
from ringfence.control.runtime.rpc import messages

if TYPE_CHECKING:
    from tests.sim.world.machine import Machine
    from tests.sim.world.world import World

TIDY_US: Final = 500_000
"""How often, in peace, what still stands in the way of an end is asked for once more."""


class Mover:
    """`dice` are a strike's: which change, of what."""

    def __init__(self, world: World) -> None:
        self._world = world

    def move(self, dice: Random) -> None:
        """One partition, or several: another owner, other replicas, or both."""
        state = self._state()
        parts = [] if state is None else _assigned(state, self._world.plan.replication)
        if state is None or not parts:
            return
        count = dice.choice([1, 1, 2, len(parts)])
        chosen = dice.sample(parts, min(count, len(parts)))
        nodes = sorted(state.nodes)
        self.chosen([(int(partition), _after(dice, nodes, assignment)) for partition, assignment in chosen])

    def to(self, machine: Machine, dice: Random) -> None:
        """One partition, whose owner this machine's node becomes."""
        state, node = self._state(), self._world.node_of(machine)
        parts = [] if state is None else _assigned(state, self._world.plan.replication)
        parts = [part for part in parts if part[1].owner.node != node]
        if parts and node:
            partition, assignment = dice.choice(parts)
            others = [int(place.node) for place in assignment.replicas if place.node != node]
            self.chosen([(int(partition), (node, *others[: len(assignment.replicas) - 1]))])

    def chosen(self, moves: list[tuple[int, tuple[int, ...]]]) -> None:
        """These moves: (partition, nodes afterwards, the owner first)."""
        self._steer("start", action="move", moves=tuple(moves))

    def balance(self, dice: Random) -> None:
        self._steer("start", action="balance")

    def reverse(self, dice: Random) -> None:
        self._steer("start", action="reverse")

    def steer(self, dice: Random) -> None:
        self._steer(dice.choice(["pause", "resume", "cancel"]))

    def cancel(self) -> None:
        self._steer("cancel")

    def drain(self, dice: Random) -> None:
        """One node at most: with two, too few would be left for three replicas."""
        state = self._state()
        if state is None:
            return
        drained = [number for number, node in state.nodes.items() if node.draining]
        if drained:
            self.ask(messages.ChangeNode(node=drained[0], change="undrain"))
        else:
            self.ask(messages.ChangeNode(node=dice.choice(sorted(state.nodes)), change="drain"))

    def limits(self, values: dict[str, int]) -> None:
        """Until the log has taken them."""
        for machine in self._world.machines:
            node = machine.node
            if not _answers(machine) or node is None:
                continue
            known = machine.replica.state.config
            if all(known.get(name) == value for name, value in values.items()):
                return
            machine.spawn(_proposed(node.proposer, SetConfig(values=values)))
            break
        self._world.agenda.after(TIDY_US, lambda: self.limits(values))

    def tidy(self) -> None:
        """Peace: nothing is paused, nobody drained."""
        state = self._state()
        if state is not None:
            if state.rebalance.state is RunState.PAUSED:
                self._steer("resume")
            for number, node in sorted(state.nodes.items()):
                if node.draining:
                    self.ask(messages.ChangeNode(node=number, change="undrain"))
        self._world.agenda.after(TIDY_US, self.tidy)

    def _state(self) -> MetadataState | None:
        """As some node that serves has it."""
        found = next((machine for machine in self._world.machines if _answers(machine)), None)
        return None if found is None else found.replica.state

    def _steer(self, verb: str, **what: Any) -> None:
        self.ask(messages.SteerRebalance(verb=verb, **what))

    def ask(self, call: messages.Call) -> None:
        """At any node that serves, at its control address."""
        machines = [machine for machine in self._world.machines if _answers(machine)]
        if not machines:
            return
        machine = self._world.random.choice(machines)
        node = machine.node
        assert node is not None
        self._world.tell("adm", call, f"at {machine.name}")

        async def ask() -> None:
            try:
                await node.handlers.control_server.reply(call)
            except RequestRefused as refusal:
                self._world.count("change_refused")
                self._world.tell("adm", "refused:", refusal.message[:160])
            else:
                self._world.count("change_asked")

        machine.call(lambda: machine.spawn(ask()))


async def _proposed(proposer: RaftProposer, command: SetConfig) -> None:
    with contextlib.suppress(RequestRefused):
        await proposer.propose(command)


def _answers(machine: Machine) -> bool:
    return machine.serving and not machine.paused and not machine.down


def _assigned(state: MetadataState, replication: int) -> list[tuple[PartitionId, Assignment]]:
    """Partitions of the topic that rows go to."""
    topic = state.topic_named("public/default/rows")
    if topic is None or topic.replication != replication:
        return []
    return sorted(topic.assignments.items())


def _after(dice: Random, nodes: list[Any], assignment: Assignment) -> tuple[int, ...]:
    """As many replicas as before, the owner first: only the order, one other node, or any."""
    before = [int(place.node) for place in assignment.replicas]
    others = [int(node) for node in nodes if node not in before]
    kind = dice.random()
    if others and kind < 0.6:
        before[dice.randrange(len(before))] = dice.choice(others)
    elif kind > 0.8:
        return tuple(dice.sample([int(node) for node in nodes], len(before)))
    dice.shuffle(before)
    return tuple(before)
