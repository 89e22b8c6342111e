"""What must hold of replicas in peace: all of a set have the owner's log, nobody else has any.

I11 equal chains at equal ends (an end is a record of an epoch); I6 equal producer tables there; I13 no change
is left open, nothing that one left is still to be done, and no store keeps a copy that the log does not give
it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Mapping
from typing import TYPE_CHECKING, Any

from ringfence.control.model.rebalances import RunState
from ringfence.control.model.state import MetadataState
from ringfence.control.model.topics import Replica
from tests.sim.checks.violation import ViolationError

if TYPE_CHECKING:
    from tests.sim.checks.ledger import Partition
    from tests.sim.world.machine import Machine

Table = tuple[int, int]
"""Record at which a log ends, and the hash of the producer table there."""
Statuses = dict[int, dict[str, Any]]
"""Of one store, by partition."""


def unfinished(state: MetadataState) -> str:
    """Which change, rebalance or step behind a change is not over; empty when all are."""
    for partition, change in sorted(state.changes.items()):
        return f"{change.kind} {change.change} of partition {partition} is {change.phase}"
    for partition, (left, *_) in sorted(state.leftovers.items()):
        return f"{left.kind} of change {left.change} of partition {partition} waits for {left.place.node}"
    if state.rebalance.state is not RunState.IDLE:
        return f"rebalance {state.rebalance.run} is {state.rebalance.state}: {state.rebalance.why}"
    return ""


def behind(state: MetadataState, machines: dict[int, Machine]) -> str:
    """Which replica has not all of its owner's log yet; empty when none. ViolationError where one differs."""
    known = {number: _statuses(machine) for number, machine in machines.items()}
    tables = {number: _tables(machine) for number, machine in machines.items()}
    for topic in state.topics.values():
        for partition, assignment in topic.assignments.items():
            owner = known.get(int(assignment.owner.node), {}).get(int(partition))
            if topic.replication == 1 or owner is None or owner["quarantined"] is not None:
                continue
            for place in assignment.replicas:
                copy = known.get(int(place.node), {}).get(int(partition))
                missing = _unlike(copy, owner, f"partition {partition} at node {place.node}")
                if copy is not None and copy["quarantined"] is not None:
                    continue
                missing = missing or _other_table(
                    tables[int(place.node)].get(int(partition)),
                    tables[int(assignment.owner.node)].get(int(partition)),
                    f"partition {partition} at node {place.node}",
                )
                if missing:
                    return missing
    return ""


def compared(
    state: MetadataState, machines: dict[int, Machine], ledger: Mapping[int, Partition]
) -> Counter[str]:
    """How many replicas of forced and of truncated partitions have a producer table at their owner's end."""
    tables = {number: _tables(machine) for number, machine in machines.items()}
    found = Counter[str]()
    for topic in state.topics.values():
        for partition, assignment in topic.assignments.items():
            part, number = ledger.get(int(partition)), int(partition)
            owner = tables.get(int(assignment.owner.node), {}).get(number)
            for place in assignment.replicas if part is not None and owner is not None else ():
                if place == assignment.owner or part is None or owner is None:
                    continue
                copy = tables.get(int(place.node), {}).get(number)
                is_level = copy is not None and copy[0] == owner[0]
                found["forced_level"] += bool(part.forced) and is_level
                found["forced_lags"] += bool(part.forced) and not is_level
                found["truncated_level"] += part.gone > 0 and is_level
    return found


def _other_table(copy: Table | None, owner: Table | None, name: str) -> str:
    """Replicas that end at one record know the same of producers."""
    if owner is None:
        return ""
    if copy is None:
        return f"{name}: what it knows of producers is ahead of its log"
    if copy[0] == owner[0] and copy[1] != owner[1]:
        raise ViolationError("I6", f"{name}: another producer table at {copy[0]} than its owner's")
    return ""


def _unlike(copy: dict[str, Any] | None, owner: dict[str, Any], name: str) -> str:
    if copy is None:
        return f"{name} is not there"
    if copy["quarantined"] is not None:
        return ""
    if copy["records"] != owner["records"]:
        return f"{name} ends at {copy['records']}, its owner's at {owner['records']}"
    if copy["owner_epoch"] != owner["owner_epoch"]:
        # As long by chance: it has yet to be cut where the epochs part.
        return f"{name} ends in epoch {copy['owner_epoch']}, its owner's in {owner['owner_epoch']}"
    if copy["chain"] != owner["chain"]:
        raise ViolationError("I11", f"{name}: another chain at {copy['records']} than its owner's")
    return f"{name} is a learner's" if copy["role"] == "learner" else ""


def orphans(
    state: MetadataState, machines: dict[int, Machine], dropped: Mapping[int, Container[Replica]]
) -> str:
    """A copy that no assignment, no tombstone and no change that may be reversed gives its store.

    `dropped`: replicas by partition that a forced choice left out; they keep what they have.
    """
    for number, machine in sorted(machines.items()):
        here = Replica(node=state.nodes[number].node, store=state.nodes[number].store)  # type: ignore[index]
        for partition, status in sorted(_statuses(machine).items()):
            topic = state.topics.get(status["topic"])
            assignment = None if topic is None else topic.assignments.get(partition)  # type: ignore[call-overload]
            if assignment is None or here in assignment.replicas or here in dropped.get(partition, ()):
                continue  # of a topic that is gone: its tombstone's
            kept = state.kept.get(partition)  # type: ignore[call-overload]
            if kept is None or here not in kept.stores:
                return f"node {number} keeps partition {partition}, which is no replica's: {status['role']}"
    return ""


def _statuses(machine: Machine) -> Statuses:
    if not machine.host.running:
        return {}
    return {int(each["partition"]): each for each in machine.host.node.partitions()}


def _tables(machine: Machine) -> dict[int, Table]:
    if not machine.host.running:
        return {}
    return {partition: (end, value) for _, partition, end, value in machine.host.node.producer_tables()}
