"""Check steps of a change, one question a function."""

from __future__ import annotations

from collections.abc import Iterable

from ringfence.control.model.characters import BLANKS
from ringfence.control.model.ids import Epoch, PartitionId
from ringfence.control.model.nodes import Life
from ringfence.control.model.reassignment_commands import CommitChange, FailOver, ForceOwner, PrepareChange
from ringfence.control.model.reassignments import Change, ChangeKind, ChangePhase, Proof
from ringfence.control.model.results import Refused
from ringfence.control.model.state import MetadataState
from ringfence.control.model.topics import Assignment, Replica
from ringfence.control.state_machines.metadata.config import limit
from ringfence.control.state_machines.metadata.reassignment_rules import assignment_of, forced_epoch, quorum
from ringfence.control.state_machines.metadata.refusals import conflict, invalid, stale, unknown_topic
from ringfence.control.state_machines.metadata.ring_commands import eligible_fault
from ringfence.native.wire import Code

# Characters of an operator's statement of possible losses: a single word is not a statement.
ACCEPTS_MIN = 10
# Characters of a reason in the log.
WHY_MAX = 1_000


def prepare_fault(state: MetadataState, command: PrepareChange) -> Refused | None:
    topic = state.topics.get(command.topic)
    if topic is None:
        return unknown_topic(command.topic)
    assignment = topic.assignments.get(command.partition)
    if assignment is None:
        message = f"topic {topic.name!r} has no partition {command.partition}"
        return Refused(code=Code.UNKNOWN_PARTITION, message=message)
    open_change = state.changes.get(command.partition)
    if open_change is not None:
        return conflict(
            f"partition {command.partition} is in change {open_change.change} ({open_change.kind}, "
            f"{open_change.phase}); wait for its end or abort it"
        )
    if command.epoch != assignment.epoch:
        return stale(
            f"partition {command.partition} has owner epoch {assignment.epoch}, the change was decided on "
            f"{command.epoch}"
        )
    planned = sum(change.kind is not ChangeKind.FAILOVER for change in state.changes.values())
    if planned >= limit(state, "changes_max"):
        return conflict(f"{planned} changes are open, the limit `changes_max`; wait until one has ended")
    return placement_fault(state, command, assignment, topic.replication)


def placement_fault(
    state: MetadataState, command: PrepareChange, now: Assignment, replication: int
) -> Refused | None:
    nodes = command.replicas
    if len(nodes) != replication or len(set(nodes)) != replication:
        return invalid(f"replicas {list(nodes)}: name {replication} different nodes")
    if command.owner not in nodes:
        return invalid(f"owner {command.owner} is not one of the replicas {list(nodes)}")
    present = {place.node for place in now.replicas}
    if set(nodes) == present and command.owner == now.owner.node:
        return invalid(
            f"partition {command.partition} is already at {sorted(present)}; the change would do nothing"
        )
    owner = state.nodes[now.owner.node]
    if owner.life is not Life.LIVE:
        return conflict(
            f"node {owner.node}, which owns partition {command.partition}, is {owner.life}; "
            "only its owner can copy it"
        )
    for node in sorted({*nodes} - present):
        fault = eligible_fault(state, node) or _leftover_fault(state, command.partition, node)
        if fault is not None:
            return fault
    if state.nodes[command.owner].life is not Life.LIVE:
        return conflict(
            f"node {command.owner} is {state.nodes[command.owner].life}; it cannot become the owner"
        )
    return None


def fail_over_fault(state: MetadataState, command: FailOver) -> Refused | None:
    node = state.nodes.get(command.node)
    if node is None:
        return invalid(f"node {command.node} is not a member")
    if (node.life, node.changed) != (Life.FAILED, command.changed):
        return stale(
            f"node {command.node} is {node.life} since entry {node.changed}, the decision was about FAILED "
            f"since {command.changed}"
        )
    return None


def open_fault(
    state: MetadataState, partition: PartitionId, number: int, phases: Iterable[ChangePhase], what: str
) -> Refused | None:
    """The refusal of a step whose change is not open, or not in one of these phases."""
    change = state.changes.get(partition)
    if change is None or change.change != number:
        now = "none is open" if change is None else f"{change.change} is open"
        return stale(f"change {number} of partition {partition} is over: {now}")
    if change.phase in phases:
        return None
    return conflict(f"change {number} of partition {partition} is {change.phase}; no {what} now")


def commit_fault(state: MetadataState, command: CommitChange) -> Refused | None:
    change = state.changes.get(command.partition)
    is_failover = change is not None and change.kind is ChangeKind.FAILOVER
    phase = ChangePhase.PREPARED if is_failover else ChangePhase.HELD
    fault = open_fault(state, command.partition, command.change, (phase,), "COMMIT")
    if fault is not None:
        return fault
    assert change is not None, "checked above"
    assignment = assignment_of(state, change)
    if not command.epoch == change.epoch == assignment.epoch:
        return stale(
            f"partition {command.partition} has owner epoch {assignment.epoch}, change {change.change} began "
            f"under {change.epoch}, its COMMIT was decided on {command.epoch}"
        )
    return _proof_fault(change, command.proofs) or (
        chosen_fault(change, command, forced_epoch(state, change))
        if is_failover
        else proven_fault(change, command)
    )


def proven_fault(change: Change, command: CommitChange) -> Refused | None:
    """Check a planned change: a majority of the new replicas, including the owner, holds [start, S) (I11)."""
    if command.owner != change.owner.node:
        return invalid(
            f"change {change.change} has owner {change.owner.node}, its COMMIT names {command.owner}"
        )
    equal = {
        proof.place.node
        for proof in command.proofs
        if (proof.end.records, proof.end.chain) == (command.end.records, command.end.chain)
    }
    needed = quorum(len(change.replicas))
    if len(equal) < needed or command.owner not in equal:
        return Refused(
            code=Code.TOO_FEW_REPLICAS,
            message=f"change {change.change} of partition {command.partition}: {sorted(equal)} hold its "
            f"{command.end.records} records with an equal chain; {needed} of the new replicas must, and "
            f"the owner {command.owner}",
        )
    return None


def chosen_fault(change: Change, command: CommitChange, forced: Epoch) -> Refused | None:
    """Check a failover: of a majority that is fenced, the owner has the greatest (epoch, end).

    Records of an owner that was `forced` are on no majority before the first record of its epoch is. Until
    a replica with such a record has answered, all replicas must answer.
    """
    all_answered = len(command.proofs) == len(change.replicas)
    countable = [proof for proof in command.proofs if all_answered or not proof.cut]
    needed = quorum(len(change.replicas))
    if len(countable) < needed:
        return Refused(
            code=Code.TOO_FEW_REPLICAS,
            message=f"failover {change.change} of partition {command.partition}: {len(countable)} replicas "
            f"are fenced and count, {needed} must; a replica that lost records counts once all have answered",
        )
    greatest = max((proof.end.epoch, proof.end.records) for proof in countable)
    if greatest[0] < forced and not all_answered:
        return Refused(
            code=Code.TOO_FEW_REPLICAS,
            message=f"failover {change.change} of partition {command.partition}: no replica that answered "
            f"has records of epoch {forced}, whose owner was forced; all replicas must answer, or one with "
            "such records",
        )
    chosen = next((proof for proof in countable if proof.place.node == command.owner), None)
    if chosen is None or (chosen.end.epoch, chosen.end.records) != greatest or chosen.end != command.end:
        return invalid(
            f"failover {change.change} of partition {command.partition}: node {command.owner} is not the "
            f"most advanced replica, which ends at (epoch, records) {greatest}"
        )
    return None


def force_fault(state: MetadataState, command: ForceOwner) -> Refused | None:
    fault = open_fault(
        state, command.partition, command.change, (ChangePhase.PREPARED,), "choice of an owner"
    )
    if fault is not None:
        return fault
    change = state.changes[command.partition]
    if change.kind is not ChangeKind.FAILOVER:
        return conflict(
            f"change {change.change} is a {change.kind}; only in a FAILOVER an owner can be forced"
        )
    if command.owner not in {place.node for place in change.replicas}:
        return invalid(f"node {command.owner} holds no replica of partition {command.partition}")
    if state.nodes[command.owner].life is not Life.LIVE:
        return conflict(
            f"node {command.owner} is {state.nodes[command.owner].life}; start it first: a failed owner "
            "would be failed over again immediately"
        )
    fault = forced_set_fault(state, change, command)
    if fault is not None:
        return fault
    if len(command.accepts.strip(BLANKS)) < ACCEPTS_MIN or len(command.accepts) > WHY_MAX:
        return invalid(
            f"accepts={command.accepts[:80]!r}: state the losses in {ACCEPTS_MIN} to {WHY_MAX} characters"
        )
    return None


def forced_set_fault(state: MetadataState, change: Change, command: ForceOwner) -> Refused | None:
    """Check the replicas after a forced choice: as many as before, including the owner; new ones are
    eligible.
    """
    nodes = command.replicas
    if not nodes:
        return None
    count = len(change.replicas)
    if len(nodes) != count or len(set(nodes)) != count or command.owner not in nodes:
        return invalid(
            f"replicas {list(nodes)}: name {count} different nodes, the owner {command.owner} among them"
        )
    for node in sorted({*nodes} - {place.node for place in change.replicas}):
        fault = eligible_fault(state, node) or _leftover_fault(state, command.partition, node)
        if fault is not None:
            return fault
    return None


def _proof_fault(change: Change, proofs: tuple[Proof, ...]) -> Refused | None:
    """The refusal of proofs by stores that are no replicas of the change, or of two proofs by one store."""
    places: list[Replica] = [proof.place for proof in proofs]
    odd = [place.node for place in places if place not in change.replicas]
    if odd or len(set(places)) != len(places):
        return invalid(
            f"change {change.change}: proofs of nodes {[place.node for place in places]}; give one at most "
            f"of each of {[place.node for place in change.replicas]}, with their stores"
        )
    return None


def _leftover_fault(state: MetadataState, partition: PartitionId, node: int) -> Refused | None:
    """The refusal of a copy to a store that has yet to drop an earlier copy of the partition."""
    # A store that has yet to adopt its copy is a replica, so no change adds it.
    if any(left.place.node == node for left in state.leftovers.get(partition, ())):
        return conflict(
            f"node {node} still drops its copy of an earlier change of partition {partition}; try again later"
        )
    return None
