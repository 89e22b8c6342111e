"""Rounds of a leader of rebalances, with nodes that do what they should."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ringfence.control.model.commands import Command
from ringfence.control.model.ids import NodeId, PartitionId
from ringfence.control.model.reassignment_commands import (
    AbortChange,
    CleanChange,
    CommitChange,
    ConfirmLeft,
    ConfirmOpened,
    HoldChange,
)
from ringfence.control.model.reassignments import Change, ChangeKind, ChangePhase, Proof
from ringfence.control.model.rebalance_commands import StartRebalance
from ringfence.control.model.rebalances import Action
from ringfence.control.state_machines.metadata.reassignment_rules import assignment_of
from ringfence.control.state_machines.rebalance.plans import ChosenMove, preview
from ringfence.control.state_machines.rebalance.runner import Rebalancer
from tests.fakes.metadata_log import END, MetadataLog


def next_step(lab: MetadataLog, change: Change, *, fails: bool = False) -> Command:
    """The next entry of a change whose nodes all do what they should, or its abort."""
    which: dict[str, Any] = {"partition": change.partition, "change": change.change}
    epoch = assignment_of(lab.state, change).epoch
    if fails and change.may_abort:
        return AbortChange(**which, why="the target's disk is full")
    match change.phase:
        case ChangePhase.PREPARED:
            return HoldChange(**which)
        case ChangePhase.HELD:
            proofs = tuple(Proof(place, END) for place in change.replicas)
            return CommitChange(**which, epoch=epoch, owner=change.owner.node, end=END, proofs=proofs)
        case ChangePhase.COMMITTED:
            return ConfirmOpened(**which, epoch=epoch)
        case _:
            return CleanChange(**which)


def confirm_all(lab: MetadataLog) -> None:
    for partition, known in list(lab.state.leftovers.items()):
        for left in known:
            lab.must(ConfirmLeft(partition=partition, change=left.change, store=left.place.store))


class Leader:
    """Rounds of a leader; `dies` begins another one, which knows only the log."""

    def __init__(self, lab: MetadataLog) -> None:
        self.lab, self.now_ms, self.rebalancer = lab, 0, Rebalancer()

    def dies(self) -> None:
        self.rebalancer = Rebalancer()

    def round(self, fails: frozenset[PartitionId] = frozenset()) -> None:
        self.now_ms += 5_000
        for command in self.rebalancer.step(self.lab.state, self.now_ms):
            self.lab.must(command)
        for change in list(self.lab.state.changes.values()):
            if change.kind is ChangeKind.FAILOVER and not change.is_committed:
                continue  # who is chosen is the test's
            self.lab.must(next_step(self.lab, change, fails=change.partition in fails))
        confirm_all(self.lab)

    def until(self, holds: Callable[[], bool], rounds: int) -> None:
        for _ in range(rounds):
            if holds():
                return
            self.round()
        raise AssertionError(f"not within {rounds} rounds: {self.lab.state.rebalance}")

    def until_over(self, fails: frozenset[PartitionId] = frozenset(), rounds: int = 400) -> None:
        for _ in range(rounds):
            if not self.lab.state.rebalance.is_active:
                return
            self.round(fails)
        raise AssertionError(f"not over after {rounds} rounds: {self.lab.state.rebalance}")


def started(
    lab: MetadataLog, action: Action, node: int = 0, chosen: tuple[ChosenMove, ...] = ()
) -> StartRebalance:
    plan = preview(lab.state, action, NodeId(node), chosen)
    assert plan.refusal is None, plan.refusal
    lab.must(plan.command)
    return plan.command


def loads(lab: MetadataLog) -> dict[int, int]:
    owned: dict[int, int] = dict.fromkeys(lab.nodes, 0)
    for assignment in lab.state.topics[lab.topic].assignments.values():
        owned[assignment.owner.node] += 1
    return owned
