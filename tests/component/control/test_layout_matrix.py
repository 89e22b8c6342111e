"""Who dies at which step of a layout change, and how it ends: one death, replication 3, modelled nodes.

    A   the entry that tells of the death aborts the change: the old layout stays
    .   the change goes on, and commits

P.o, P.f: owner and a follower of the source; c.o, c.f: of the children; L: the leader, whose observations and
answers are lost. After each run every slot takes rows, nothing is open, and no store has what nothing names.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ringfence.control.model.ids import Index, NodeId
from ringfence.control.model.layout_changes import TransitionKind
from ringfence.control.model.layout_commands import AbortLayout, PlannedChild, PrepareLayout
from ringfence.control.model.node_commands import FailNode
from ringfence.control.model.reassignment_commands import FailOver
from ringfence.control.model.reassignments import ChangePhase
from ringfence.control.state_machines.layout.messages import CreateChild, Inherit, LookLayout, Seal
from tests.fakes.layout_world import LayoutWorld

ROLES = ("L", "P.o", "P.f", "c.o", "c.f")
# The step, and the outcome for each of the roles.
MATRIX = {
    "prepared": ". A . A .",
    "created": ". A . A .",
    "based": ". A . A .",
    "held": ". A . A .",
    "fencing": ". A . A .",
    "sealed": ". A . A .",
    "committed, nobody applied": ". . . . .",
    "committed, the source's owner applied": ". . . . .",
    "committed, the children's owner applied": ". . . . .",
    "some opened": ". . . . .",
    "opened": ". . . . .",
    "finalized": ". . . . .",
    "pruned": ". . . . .",
    "aborted": "A A A A A",
}


class Driven(LayoutWorld):
    """A split of a partition on three nodes into two on three others, brought to a step and no further."""

    def __init__(self) -> None:
        super().__init__(1, replication=3, partitions=1, nodes=6)
        self.looks_are_lost = False
        for _ in range(9):
            self._write()
        source = self.active[0]
        self.source = source.partition
        self.old = [place.node for place in self.now.assignments[self.source].replicas]
        self.new = tuple(node for node in self.nodes if node not in self.old)
        lo, hi = source.slots
        self.must(
            PrepareLayout(
                topic=self.topic,
                kind=TransitionKind.SPLIT,
                sources=((self.source, self.epoch(self.source)),),
                children=(PlannedChild(lo, 999, self.new), PlannedChild(1_000, hi, self.new)),
            )
        )

    def node_of(self, role: str) -> NodeId:
        return {"P.o": self.old[0], "P.f": self.old[1], "c.o": self.new[0], "c.f": self.new[1]}[role]

    def all_apply(self, *nodes: NodeId) -> None:
        for number, node in self.nodes_by_id.items():
            while (not nodes or number in nodes) and node.applied < self.at:
                self._apply_next(node)

    def answered(self, kind: type[Any]) -> None:
        """The leader's orders of this kind are executed, and their answers arrive."""
        self.executed(kind)
        while self.answers:
            self._answer()

    def executed(self, kind: type[Any]) -> None:
        orders, entries = self.leader.step(self.state, self.now_ms, self.time_ms)
        assert not entries
        assert {type(order) for order in orders} == {kind}, orders
        for order in orders:
            self._execute(order)
        for order in orders:  # a child is created once a quorum has it
            answer = self._execute(order)
            assert answer is not None, order
            self.answers.append((order, answer))

    def proposed(self) -> None:
        _, entries = self.leader.step(self.state, self.now_ms, self.time_ms)
        [entry] = entries
        self.must(entry)

    def reach(self, step: str) -> None:
        """Bring the change to a step of the matrix."""
        for name, ways in WAYS:
            if step == "aborted" and name == "sealed":
                self.must(AbortLayout(change=self.number(), why="test"))
                return
            for way in ways:
                way(self)
            if name == step:
                return
        raise AssertionError(step)


def prune(world: Driven) -> None:
    world.time_ms += 2_000_000
    world.must(world.prune(world.source))


def finalize(world: Driven) -> None:
    world.leader.step(world.state, world.now_ms, world.time_ms)
    world.now_ms += 60_000
    world.proposed()


Way = Callable[[Driven], None]
WAYS: tuple[tuple[str, tuple[Way, ...]], ...] = (
    ("prepared", (lambda world: world.all_apply(),)),
    ("created", (lambda world: world.answered(CreateChild),)),
    ("based", (lambda world: world.answered(Inherit), lambda world: world.answered(LookLayout))),
    ("held", (lambda world: world.proposed(),)),
    ("fencing", (lambda world: world.all_apply(), lambda world: world.executed(Seal))),
    ("sealed", (lambda world: world._answer(), lambda world: world.answered(Inherit))),
    ("committed, nobody applied", (lambda world: world.proposed(),)),
    ("committed, the source's owner applied", (lambda world: world.all_apply(world.old[0]),)),
    ("committed, the children's owner applied", (lambda world: world.all_apply(world.new[0]),)),
    ("some opened", (lambda world: world.executed(LookLayout),)),
    ("opened", (lambda world: world._answer(), lambda world: world.proposed())),
    ("finalized", (finalize,)),
    ("pruned", (prune,)),
)


def die(world: Driven, role: str, how: str) -> None:
    if role == "L":
        world.leader.begin()
        world.answers.clear()
        return
    number = world.node_of(role)
    node = world.nodes_by_id[number]
    node.alive = False
    if how == "restarts":
        world.must(world.restart(int(number)))
        node.alive = True
        world._catch_up(node)
        return
    world.must(FailNode(node=number, changed=world.state.nodes[number].changed))
    world.must(FailOver(node=number, changed=Index(world.at)))


@pytest.mark.parametrize("how", ["restarts", "fails"])
@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("step", MATRIX)
def test_a_death_ends_a_change_as_the_matrix_says(step: str, role: str, how: str) -> None:
    world = Driven()
    world.reach(step)
    before_commit = [one for one in world.state.transitions.values() if one.may_abort]
    die(world, role, how)
    outcome = MATRIX[step].split()[ROLES.index(role)]
    if before_commit:
        assert (not world.state.transitions) == (outcome == "A"), "by the entry itself"
    world.settle()
    assert world.now.layout.version == (1 if outcome == "A" else 2)
    assert (world.source in world.now.assignments) == (step != "pruned")
    world.agree()


def test_the_matrix_has_every_step_and_all_phases() -> None:
    assert {*MATRIX} == {name for name, _ in WAYS} | {"aborted"}
    phases = set()
    for step in MATRIX:
        world = Driven()
        world.reach(step)
        phases |= {transition.phase for transition in world.state.transitions.values()}
    assert phases == {*ChangePhase}
