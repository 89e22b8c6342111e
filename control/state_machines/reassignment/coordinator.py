"""All changes in the eyes of one leader: orders that should be with nodes now, and entries to propose.

    hear(order, answer)     a node has answered
    step(state, now_ms)     what is wanted: orders, each until it is answered or wanted no more; entries
    begin()                 this node leads from now on, and has heard nothing

What is soft is here and is forgotten with the leadership: nothing but the log is needed to go on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from ringfence.control.model.commands import Command
from ringfence.control.model.ids import NodeId, PartitionId
from ringfence.control.model.nodes import Life
from ringfence.control.model.reassignment_commands import (
    ChangeSteps,
    CleanChange,
    CommitChange,
    ConfirmOpened,
    FailOver,
    ReleaseKept,
)
from ringfence.control.model.reassignments import Change, ChangeId, ChangeKind
from ringfence.control.model.rebalances import Action
from ringfence.control.model.state import MetadataState
from ringfence.control.model.topics import Replica
from ringfence.control.state_machines.metadata.config import limit
from ringfence.control.state_machines.metadata.reassignment_rules import awaits_owner
from ringfence.control.state_machines.metadata.reassignments import STEPS_LEVEL, STEPS_MAX
from ringfence.control.state_machines.metadata.replica_counts import owned
from ringfence.control.state_machines.reassignment.change import Observed, advance, fresh, heard
from ringfence.control.state_machines.reassignment.messages import Answer, Order
from ringfence.control.state_machines.rebalance.policy import Decision, Memory, decide
from ringfence.control.state_machines.rebalance.runner import Rebalancer

AGAIN_MS: Final = 1_000
"""An entry that was proposed is not proposed again sooner: it is being committed, or was refused."""
FAILOVERS_MAX: Final = 1_024
"""Failovers that are worked on at once, oldest first: four entries of COMMITs, and as many questions to each
node. A round goes over all of them, in some 20 ms."""
FAILOVERS_MAX_OF_LEVEL_0: Final = 128
"""There each order is a question of its own, and half of what a socket queues is room for them."""

RELEASES_DUE_MAX: Final = 256
"""Old copies that one entry gives up; more are due at the next look."""
RELEASE_LOOK_MS: Final = 1_000
"""Hold times are minutes; a look goes over all that is kept."""


class Wanted(NamedTuple):
    orders: tuple[Order, ...] = ()
    entries: tuple[Command, ...] = ()


class _Derived(NamedTuple):
    """What follows from one state alone: a round comes with each answer, a state with each entry."""

    state: MetadataState
    failovers: tuple[FailOver, ...]
    worked_on: tuple[Change, ...]
    owned: Counter[NodeId]


class Coordinator:
    """Times are of one monotonic clock, in ms; the class reads none."""

    def __init__(self) -> None:
        self._seen: dict[PartitionId, Observed] = {}
        self._proposed: dict[Command, int] = {}
        self._rebalancer = Rebalancer()
        self._memory: Memory | None = None
        self._release_ms = 0
        self._kept_ms: dict[tuple[PartitionId, ChangeId], int] = {}
        self.loads: Mapping[PartitionId, float] = {}
        self.unnamed: Mapping[NodeId, float] = {}
        self.decision: Decision | None = None
        self._derived: _Derived | None = None

    def begin(self, now_ms: int) -> None:
        self.__init__()  # type: ignore[misc]
        self._memory = Memory(began_ms=now_ms)

    def hear(self, order: Order, answer: Answer) -> None:
        known = self._seen.get(order.partition)
        if known is not None:
            self._seen[order.partition] = heard(known, order, answer)

    def progress(self, partition: PartitionId) -> Observed | None:
        """What is known of the partition's change, for people."""
        return self._seen.get(partition)

    def step(self, state: MetadataState, now_ms: int) -> Wanted:
        if self._derived is None or self._derived.state is not state:
            counts = owned(state) if state.changes else Counter[NodeId]()
            self._derived = _Derived(state, tuple(_failovers(state)), tuple(_worked_on(state)), counts)
        orders: list[Order] = []
        entries: list[Command] = list(self._derived.failovers)
        load = self._derived.owned.copy()
        seen: dict[PartitionId, Observed] = {}
        for change in self._derived.worked_on:
            known = seen[change.partition] = fresh(change, now_ms, self._seen.get(change.partition))
            more, entry = advance(state, change, known, now_ms, load)
            orders += more
            if entry is not None:
                entries.append(entry)
            if isinstance(entry, CommitChange):
                load[entry.owner] += 1  # so that one node's partitions do not all go to one other
        self._seen = seen
        entries += self._rebalancer.step(state, now_ms)
        entries += self._releases(state, now_ms)
        entries += self._policy(state, now_ms)
        due = self._due(entries, now_ms)
        return Wanted(tuple(orders), together(due) if state.level >= STEPS_LEVEL else due)

    def refused(self, command: Command) -> None:
        """The log did not take it: it may be decided anew at once, on the newer state."""
        self._proposed.pop(command, None)

    def _due(self, entries: list[Command], now_ms: int) -> tuple[Command, ...]:
        self._proposed = {command: at for command, at in self._proposed.items() if now_ms - at < AGAIN_MS}
        due = tuple(command for command in entries if command not in self._proposed)
        self._proposed |= dict.fromkeys(due, now_ms)
        return due

    def _releases(self, state: MetadataState, now_ms: int) -> tuple[Command, ...]:
        """The hold time begins anew with each leader: it is at least as long as it should be."""
        if now_ms < self._release_ms or not (state.kept or self._kept_ms):
            return ()
        self._release_ms = now_ms + RELEASE_LOOK_MS
        known = self._kept_ms
        self._kept_ms = {
            (number, kept.change): known.get((number, kept.change), now_ms)
            for number, kept in state.kept.items()
        }
        hold_ms, run = limit(state, "reverse_hold_s") * 1_000, state.rebalance
        # What a run is about to take back is kept for it, however long its turn takes to come.
        is_way_back = run.is_active and run.action is Action.REVERSE
        needed = {number for number, move in state.moves.items() if is_way_back and not move.is_over}
        over = sorted(
            one
            for one, since_ms in self._kept_ms.items()
            if now_ms - since_ms >= hold_ms and one[0] not in needed
        )
        return (ReleaseKept(kept=tuple(over[:RELEASES_DUE_MAX])),) if over else ()

    def _policy(self, state: MetadataState, now_ms: int) -> tuple[Command, ...]:
        if self._memory is None:
            return ()
        decision, self._memory = decide(state, self.loads, now_ms, self._memory, self.unnamed)
        if decision is None:
            return ()
        self.decision = decision
        return () if decision.start is None else (decision.start,)


def together(entries: Sequence[Command]) -> tuple[Command, ...]:
    """The same entries, with steps of different partitions in as few as there may be.

    There is one step a partition in one round, so their order among each other says nothing.
    """
    steps = [one for one in entries if isinstance(one, CommitChange | ConfirmOpened | CleanChange)]
    if len(steps) < 2:
        return tuple(entries)
    others = [one for one in entries if not isinstance(one, CommitChange | ConfirmOpened | CleanChange)]
    parts = (tuple(steps[at : at + STEPS_MAX]) for at in range(0, len(steps), STEPS_MAX))
    return (*others, *(part[0] if len(part) == 1 else ChangeSteps(steps=part) for part in parts))


def _worked_on(state: MetadataState) -> list[Change]:
    """Planned changes, whose number is limited, and the oldest failovers."""
    failovers = sorted(
        (change for change in state.changes.values() if change.kind is ChangeKind.FAILOVER),
        key=lambda change: (change.change, change.partition),
    )
    planned = [change for change in state.changes.values() if change.kind is not ChangeKind.FAILOVER]
    most = FAILOVERS_MAX if state.level >= STEPS_LEVEL else FAILOVERS_MAX_OF_LEVEL_0
    return [*failovers[:most], *planned]


def _failovers(state: MetadataState) -> list[FailOver]:
    """For each failed node that owns what others have replicas of, and nobody seeks an owner for."""
    found = []
    for number, node in state.nodes.items():
        if node.life is Life.FAILED:
            place = Replica(node=number, store=node.store)
            if any(
                assignment.owner == place and not awaits_owner(state, partition)
                for topic in state.topics.values()
                if topic.replication > 1
                for partition, assignment in topic.assignments.items()
            ):
                found.append(FailOver(node=number, changed=node.changed))
    return found
