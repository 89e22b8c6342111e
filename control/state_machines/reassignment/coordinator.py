"""Coordinate all open changes of one leader: orders that nodes should have now, and entries to propose.

    observe_answer(order, answer)   note a node's answer
    step(state, now_ms)             the orders, each repeated until it is answered or no longer needed; the
                                    entries
    begin()                         start a leadership without any observations

All state here is soft and is discarded with the leadership: the next leader needs only the log.
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
from ringfence.control.state_machines.metadata.replica_counts import owned_by_node
from ringfence.control.state_machines.metadata.sealed_partitions import live_replicas
from ringfence.control.state_machines.reassignment.messages import ReassignmentAnswer, ReassignmentOrder
from ringfence.control.state_machines.reassignment.move_phases import Observed, advance, begin_phase, observe
from ringfence.control.state_machines.rebalance.loads import Pressure
from ringfence.control.state_machines.rebalance.policy import Decision, Memory, decide
from ringfence.control.state_machines.rebalance.runner import Rebalancer

# An entry is not proposed a second time within this time: it is being committed, or was refused.
REPROPOSE_MS: Final = 1_000
# Failovers that one round handles, oldest first: four entries of COMMITs, and as many questions to each
# node. A round over all of them takes some 20 ms.
FAILOVERS_MAX: Final = 1_024
# At level 0 each order is a request of its own: they may fill half of a socket's queue.
FAILOVERS_MAX_OF_LEVEL_0: Final = 128

# Old copies that one entry releases; the next round releases more.
RELEASES_DUE_MAX: Final = 256
# Interval between checks for expired hold times, which are minutes; a check goes over all kept copies.
RELEASE_LOOK_MS: Final = 1_000


class CoordinatorRound(NamedTuple):
    """Orders that nodes should have now, and entries to propose, after one round."""

    orders: tuple[ReassignmentOrder, ...] = ()
    entries: tuple[Command, ...] = ()


class _Derived(NamedTuple):
    """Values derived from one state alone, kept between rounds: each answer starts a round, and only an
    entry gives a new state.
    """

    state: MetadataState
    failovers: tuple[FailOver, ...]
    active: tuple[Change, ...]
    owned: Counter[NodeId]


class _HashedCommand:
    """A command with its hash. A wide failover has commands with hundreds of steps, and a struct computes its
    hash at every use: here a round computes it once for each command.
    """

    __slots__ = ("_hash", "command")

    def __init__(self, command: Command) -> None:
        self.command = command
        self._hash: int | None = None

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(self.command)
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _HashedCommand) and self.command == other.command


class Coordinator:
    """All open changes of one leader. Times are in ms of one monotonic clock; the class reads no clock.

    `loads` are bytes per second of partitions, `unlisted_loads` those of nodes that no entry of `loads`
    contains, `pressures` break ties between owners. The runtime sets them before each `step`. `decision` is
    the newest one of the policy, for operators.
    """

    def __init__(self) -> None:
        self._observed: dict[PartitionId, Observed] = {}
        # Commands of the last REPROPOSE_MS, with the time of the proposal.
        self._proposed: dict[_HashedCommand, int] = {}
        self._rebalancer = Rebalancer()
        self._memory: Memory | None = None
        self._release_ms = 0
        self._kept_since_ms: dict[tuple[PartitionId, ChangeId], int] = {}
        self.loads: Mapping[PartitionId, float] = {}
        self.unlisted_loads: Mapping[NodeId, float] = {}
        self.pressures: Mapping[NodeId, Pressure] = {}
        self.decision: Decision | None = None
        self._derived: _Derived | None = None

    def begin(self, now_ms: int) -> None:
        """Start a leadership: discard all observations, and begin the policy's grace period."""
        self.__init__()  # type: ignore[misc]
        self._memory = Memory(began_ms=now_ms)

    def observe_answer(self, order: ReassignmentOrder, answer: ReassignmentAnswer) -> None:
        """Note a node's answer to an order."""
        observed = self._observed.get(order.partition)
        if observed is not None:
            self._observed[order.partition] = observe(observed, order, answer)

    def progress(self, partition: PartitionId) -> Observed | None:
        """The observations of the partition's change, for operators; None without a change."""
        return self._observed.get(partition)

    def step(self, state: MetadataState, now_ms: int) -> CoordinatorRound:
        """Run one round over all open changes, failed nodes, the rebalance, kept copies and the policy."""
        if self._derived is None or self._derived.state is not state:
            counts = owned_by_node(state) if state.changes else Counter[NodeId]()
            self._derived = _Derived(
                state, tuple(_due_failovers(state)), tuple(_active_changes(state)), counts
            )
        orders: list[ReassignmentOrder] = []
        entries: list[Command] = list(self._derived.failovers)
        load = self._derived.owned.copy()
        observations: dict[PartitionId, Observed] = {}
        for change in self._derived.active:
            observed = observations[change.partition] = begin_phase(
                change, now_ms, self._observed.get(change.partition)
            )
            more, entry = advance(state, change, observed, now_ms, load, self.pressures)
            orders += more
            if entry is not None:
                entries.append(entry)
            if isinstance(entry, CommitChange):
                load[entry.owner] += 1  # spread the partitions of one failed node over several owners
        self._observed = observations
        entries += self._rebalancer.step(state, now_ms)
        entries += self._releases(state, now_ms)
        entries += self._policy(state, now_ms)
        due = self._without_repeats(entries, now_ms)
        return CoordinatorRound(tuple(orders), combine_steps(due) if state.level >= STEPS_LEVEL else due)

    def _without_repeats(self, entries: list[Command], now_ms: int) -> tuple[Command, ...]:
        self._proposed = {entry: at for entry, at in self._proposed.items() if now_ms - at < REPROPOSE_MS}
        due = [entry for entry in map(_HashedCommand, entries) if entry not in self._proposed]
        self._proposed |= dict.fromkeys(due, now_ms)
        return tuple(entry.command for entry in due)

    def _releases(self, state: MetadataState, now_ms: int) -> tuple[Command, ...]:
        """Release copies whose hold time is over. Each leader starts the hold time again, so it never is
        too short.
        """
        if now_ms < self._release_ms or not (state.kept or self._kept_since_ms):
            return ()
        self._release_ms = now_ms + RELEASE_LOOK_MS
        earlier = self._kept_since_ms
        self._kept_since_ms = {
            (number, kept.change): earlier.get((number, kept.change), now_ms)
            for number, kept in state.kept.items()
        }
        hold_ms, run = limit(state, "reverse_hold_s") * 1_000, state.rebalance
        # A run that reverses moves needs the old copies, however late the turn of a move comes.
        is_way_back = run.is_active and run.action is Action.REVERSE
        needed = {number for number, move in state.moves.items() if is_way_back and not move.is_over}
        expired = sorted(
            copy
            for copy, since_ms in self._kept_since_ms.items()
            if now_ms - since_ms >= hold_ms and copy[0] not in needed
        )
        return (ReleaseKept(kept=tuple(expired[:RELEASES_DUE_MAX])),) if expired else ()

    def _policy(self, state: MetadataState, now_ms: int) -> tuple[Command, ...]:
        if self._memory is None:
            return ()
        decision, self._memory = decide(state, self.loads, now_ms, self._memory, self.unlisted_loads)
        if decision is None:
            return ()
        self.decision = decision
        return () if decision.start is None else (decision.start,)


def combine_steps(entries: Sequence[Command]) -> tuple[Command, ...]:
    """The same entries, with steps of different partitions combined into as few entries as possible.

    The order of the steps is free: one round has at most one step for each partition.
    """
    steps = [entry for entry in entries if isinstance(entry, CommitChange | ConfirmOpened | CleanChange)]
    if len(steps) < 2:
        return tuple(entries)
    others = [entry for entry in entries if not isinstance(entry, CommitChange | ConfirmOpened | CleanChange)]
    parts = (tuple(steps[at : at + STEPS_MAX]) for at in range(0, len(steps), STEPS_MAX))
    return (*others, *(part[0] if len(part) == 1 else ChangeSteps(steps=part) for part in parts))


def _active_changes(state: MetadataState) -> list[Change]:
    """All planned changes, whose number is limited, and the oldest failovers."""
    failovers = sorted(
        (change for change in state.changes.values() if change.kind is ChangeKind.FAILOVER),
        key=lambda change: (change.change, change.partition),
    )
    planned = [
        change
        for change in state.changes.values()
        if change.kind not in {ChangeKind.FAILOVER, ChangeKind.SEAL}  # a SEAL goes on with its transition
    ]
    most = FAILOVERS_MAX if state.level >= STEPS_LEVEL else FAILOVERS_MAX_OF_LEVEL_0
    return [*failovers[:most], *planned]


def _due_failovers(state: MetadataState) -> list[FailOver]:
    """A FailOver for each failed node that owns replicated partitions without an open failover."""
    failovers = []
    for number, node in state.nodes.items():
        if node.life is Life.FAILED:
            place = Replica(node=number, store=node.store)
            if any(
                assignment.owner == place
                and not awaits_owner(state, partition)
                and (topic.seal(partition) is None or live_replicas(state, assignment, place))
                for topic in state.topics.values()
                if topic.replication > 1
                for partition, assignment in topic.assignments.items()
            ):
                failovers.append(FailOver(node=number, changed=node.changed))
    return failovers
