"""Owners of SEALED partitions: failures, moves, and an operator's choice.

A SEALED log never changes, and the layout has its end and chain. So any one replica that has both may serve
it: a failure needs neither fences nor a majority, and an owner that is not up to date does no harm. One entry
gives all SEALED partitions of a failed node to live replicas. A replica that lacks records says so when it
opens, and the partition is handed over to one that has all.
"""

from __future__ import annotations

from collections import Counter

from msgspec import UNSET
from msgspec.structs import replace

from ringfence.control.model.characters import BLANKS
from ringfence.control.model.ids import Epoch, Index, NodeId, PartitionId
from ringfence.control.model.nodes import Life
from ringfence.control.model.reassignment_commands import CommitChange, ForceOwner
from ringfence.control.model.reassignments import Change, ChangeKind
from ringfence.control.model.results import Refused
from ringfence.control.model.state import MetadataState
from ringfence.control.model.topics import Assignment, Replica, Seal, Topic
from ringfence.control.state_machines.metadata.reassignment_rules import end_open_change, quorum
from ringfence.control.state_machines.metadata.refusals import conflict, invalid
from ringfence.native.wire import Code


def sealed_of(state: MetadataState, place: Replica) -> list[tuple[Topic, PartitionId]]:
    """SEALED partitions with several replicas that a store owns."""
    return [
        (topic, number)
        for topic in state.topics.values()
        if topic.replication > 1 and topic.seals is not UNSET
        for number in sorted(topic.seals)
        if topic.assignments[number].owner == place
    ]


def sealed_in(state: MetadataState, partition: PartitionId) -> Topic | None:
    """The topic that has this partition as a SEALED one; None otherwise."""
    topics = (topic for topic in state.topics.values() if topic.seals is not UNSET)
    return next((topic for topic in topics if topic.seal(partition) is not None), None)


def restarted(state: MetadataState, place: Replica, index: Index) -> MetadataState:
    """The store stays the owner, under a new epoch. What it lost meanwhile it finds out by the chain."""
    owned = sealed_of(state, place)
    for _, number in owned:
        state = end_open_change(state, number, None)
    return _with_owners(state, {number: place for _, number in owned}, index)


def failed_over(state: MetadataState, place: Replica, index: Index) -> MetadataState:
    """Give the partitions to live replicas, each to the one that got fewest. Without one they stay."""
    given, owners = Counter[NodeId](), dict[PartitionId, Replica]()
    for topic, number in sealed_of(state, place):
        state = end_open_change(state, number, None)
        live = live_replicas(state, topic.assignments[number], place)
        if live:
            owners[number] = min(live, key=lambda replica: (given[replica.node], replica.node))
            given[owners[number].node] += 1
    return _with_owners(state, owners, index)


def live_replicas(state: MetadataState, assignment: Assignment, but: Replica) -> list[Replica]:
    """Replicas on live nodes, apart from one."""
    return [
        replica
        for replica in assignment.replicas
        if replica != but and state.nodes[replica.node].life is Life.LIVE
    ]


def _with_owners(state: MetadataState, owners: dict[PartitionId, Replica], index: Index) -> MetadataState:
    topics = dict(state.topics)
    for key, topic in state.topics.items():
        if topic.seals is UNSET:
            continue
        moved = {
            number: _owned(topic.assignments[number], owners[number], index)
            for number in sorted(topic.seals)
            if number in owners
        }
        if moved:
            topics[key] = replace(topic, assignments={**topic.assignments, **moved}, changed=index)
    return replace(state, topics=topics) if owners else state


def _owned(assignment: Assignment, owner: Replica, index: Index) -> Assignment:
    others = tuple(replica for replica in assignment.replicas if replica != owner)
    return replace(assignment, owner=owner, epoch=Epoch(index), replicas=(owner, *others))


# ---- moves ------------------------------------------------------------------------------------------


def commit_fault(change: Change, command: CommitChange, seal: Seal) -> Refused | None:
    """Check that the new owner has exactly the sealed log, and a majority after a copy (I3, I11)."""
    if (command.end.records, command.end.chain) != (seal.end.records, seal.end.chain):
        return invalid(
            f"SEALED partition {change.partition} ends at record {seal.end.records}, the COMMIT names "
            f"{command.end.records}, or another chain"
        )
    if command.owner != change.owner.node:
        return invalid(
            f"change {change.change} has owner {change.owner.node}, its COMMIT names {command.owner}"
        )
    equal = {
        proof.place.node
        for proof in command.proofs
        if (proof.end.records, proof.end.chain) == (seal.end.records, seal.end.chain)
    }
    needed = 1 if change.kind is ChangeKind.HAND_OVER else quorum(len(change.replicas))
    if command.owner in equal and len(equal) >= needed:
        return None
    return Refused(
        code=Code.TOO_FEW_REPLICAS,
        message=f"change {change.change} of SEALED partition {change.partition}: {sorted(equal)} have all of "
        f"its {seal.end.records} records; {needed} must, and the owner {command.owner}",
    )


# ---- an accepted loss -------------------------------------------------------------------------------


def force_fault(
    state: MetadataState, topic: Topic, command: ForceOwner, accepts_min: int, accepts_max: int
) -> Refused | None:
    """Check an operator's choice of a replica whose log is shorter than the sealed one."""
    partition, seal = command.partition, topic.seal(command.partition)
    assert seal is not None, "the caller has looked"
    change = state.changes.get(partition)
    if change is not None or command.change:
        now = "none is open" if change is None else f"change {change.change} is open"
        return conflict(
            f"partition {partition} is SEALED: an owner is forced without a change (0), {now}; the command "
            f"names {command.change}"
        )
    if command.end is UNSET or command.replicas:
        return invalid(
            f"partition {partition} is SEALED: name the end that the replica has proved, and no replicas"
        )
    if command.owner not in {place.node for place in topic.assignments[partition].replicas}:
        return invalid(f"node {command.owner} holds no replica of partition {partition}")
    if state.nodes[command.owner].life is not Life.LIVE:
        return conflict(f"node {command.owner} is {state.nodes[command.owner].life}; start it first")
    if not 0 <= command.end.records < seal.end.records or not 0 <= command.end.offset <= seal.end.offset:
        return invalid(
            f"partition {partition} was sealed at record {seal.end.records}, offset {seal.end.offset}; an "
            f"owner with record {command.end.records}, offset {command.end.offset} loses nothing, or has more"
        )
    if not accepts_min <= len(command.accepts.strip(BLANKS)) or len(command.accepts) > accepts_max:
        return invalid(
            f"accepts={command.accepts[:80]!r}: state the losses in {accepts_min} to {accepts_max} characters"
        )
    return None


def force(state: MetadataState, topic: Topic, command: ForceOwner, index: Index) -> MetadataState:
    """Lower the end to what the replica has. A log start above it is cut back."""
    partition, seal, end = command.partition, topic.seal(command.partition), command.end
    assert seal is not None, "checked"
    assert end is not UNSET, "checked"
    assignment = topic.assignments[partition]
    owner = next(place for place in assignment.replicas if place.node == command.owner)
    seals = {} if topic.seals is UNSET else topic.seals
    changed = replace(
        topic,
        assignments={**topic.assignments, partition: _owned(assignment, owner, index)},
        seals={**seals, partition: replace(seal, end=end, lowered=index)},
        changed=index,
    )
    if topic.starts.get(partition, 0) > end.offset:
        epochs = {} if topic.start_epochs is UNSET else topic.start_epochs
        changed = replace(
            changed,
            starts={**topic.starts, partition: end.offset},
            start_epochs={**epochs, partition: Epoch(index)},
        )
    return replace(state, topics={**state.topics, topic.topic: changed})
