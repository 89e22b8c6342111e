"""Effects of entries on the changes of a partition, shared by commands of changes, restarts and deletions.

Rules:

- A partition has at most one open change.
- Every COMMIT, and every ABORT after a HOLD, draws a new owner epoch. So only an OPEN above the fence at the
change's number ends that fence.
- The steps that a change leaves for a store stand in `leftovers` until the store confirms them. No store
deletes rows for lack of metadata, and none forgets to adopt a copy that counted for a COMMIT's majority.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet

from msgspec.structs import replace

from ringfence.control.model.ids import Epoch, Index, PartitionId
from ringfence.control.model.reassignments import (
    Change,
    ChangeId,
    ChangeKind,
    ChangePhase,
    Kept,
    Leftover,
    LeftoverKind,
)
from ringfence.control.model.rebalances import MoveState
from ringfence.control.model.state import MetadataState
from ringfence.control.model.topics import Assignment, Replica, Topic
from ringfence.control.state_machines.metadata.config import limit
from ringfence.control.state_machines.metadata.move_records import with_step, without_topic_moves

# Error of a move whose change is aborted since the owner failed or was restarted. It is part of the hashed
# state, so all versions of the program must write the same text.
OWNER_RESTARTED = "the owner failed or was started anew"


def quorum(replication: int) -> int:
    """The majority of a topic's replicas: a fixed number, independent of the live ones."""
    return replication // 2 + 1


def assignment_of(state: MetadataState, change: Change) -> Assignment:
    """The present assignment of the change's partition."""
    return state.topics[change.topic].assignments[change.partition]


def forced_epoch(state: MetadataState, change: Change) -> Epoch:
    """The newest epoch of the change's partition with a forced owner; 0: none is known."""
    return state.topics[change.topic].forced_epoch(change.partition)


def with_change(state: MetadataState, change: Change) -> MetadataState:
    return replace(state, changes={**state.changes, change.partition: change})


def without_change(state: MetadataState, partition: PartitionId) -> MetadataState:
    left = dict(state.changes)  # one copy, not a filter: an entry may end hundreds of changes
    del left[partition]
    return replace(state, changes=left)


def with_assignment(
    state: MetadataState, topic: Topic, partition: PartitionId, assignment: Assignment, index: Index
) -> MetadataState:
    """The state with this assignment. `changed` is set to `index`: a node that starts derives the topic's
    orders again.
    """
    changed = replace(topic, assignments={**topic.assignments, partition: assignment}, changed=index)
    return replace(state, topics={**state.topics, topic.topic: changed})


def with_leftovers(
    state: MetadataState, change: Change, places: Iterable[Replica], kind: LeftoverKind
) -> MetadataState:
    """The state in which the change leaves a step of this kind for each of the stores, if their nodes are
    members.
    """
    added = tuple(
        Leftover(topic=change.topic, change=change.change, attempt=change.attempt, place=place, kind=kind)
        for place in places
        if place.node in state.nodes
    )
    if not added:
        return state
    leaving = {left.place for left in added}
    # A store that drops its replica need not adopt an earlier copy any more.
    earlier = tuple(
        left
        for left in state.leftovers.get(change.partition, ())
        if left.kind is not LeftoverKind.ADOPT or left.place not in leaving
    )
    return replace(state, leftovers={**state.leftovers, change.partition: (*earlier, *added)})


def abort(state: MetadataState, change: Change, index: Index | None, why: str) -> MetadataState:
    """The state as before the change. An owner that may have been fenced opens again, under `index`.

    `index` is None if the same entry starts a failover of the partition: then the owner does not open.
    """
    assert change.may_abort, (
        f"I13: change {change.change} is {change.kind} {change.phase}, it cannot be aborted"
    )
    ended = with_leftovers(without_change(state, change.partition), change, change.adds, LeftoverKind.DISCARD)
    ended = with_step(ended, change, MoveState.FAILED, error=why)
    if change.phase is not ChangePhase.HELD or index is None:
        return ended
    topic = state.topics[change.topic]
    assignment = replace(topic.assignments[change.partition], epoch=Epoch(index))
    return with_assignment(ended, topic, change.partition, assignment, index)


def clean(state: MetadataState, change: Change, gap_us: int | None = None) -> MetadataState:
    """End a committed change. The rows of stores that left are all on a majority of the replicas."""
    assert change.is_committed, f"I16: change {change.change} is {change.phase}, the old replicas count"
    state = without_change(state, change.partition)
    if gap_us is not None:
        state = with_step(state, change, MoveState.COMMITTED, gap_us=gap_us)
    if change.kind is ChangeKind.FAILOVER:
        return state
    if not change.before or limit(state, "reverse_hold_s") == 0:
        state = release_copies(state, change.partition)
        return with_leftovers(state, change, change.leaves, LeftoverKind.RELEASE)
    return keep_for_reversal(state, change)


def without_adopts(state: MetadataState, change: Change) -> MetadataState:
    """Remove ADOPT steps of stores that leave by a COMMIT, if they have not yet adopted their copies."""
    listed = state.leftovers.get(change.partition, ())
    rest = tuple(
        left for left in listed if left.kind is not LeftoverKind.ADOPT or left.place not in change.leaves
    )
    return state if rest == listed else _with_leftovers_of(state, change.partition, rest)


def keep_for_reversal(state: MetadataState, change: Change) -> MetadataState:
    """Keep the rows of stores that left for a while. Only the last change of a partition can be reversed."""
    left = tuple(place for place in change.leaves if place.node in state.nodes)
    state = release_copies(state, change.partition, but={*left, *change.replicas})
    kept = Kept(
        topic=change.topic,
        partition=change.partition,
        change=change.change,
        attempt=change.attempt,
        run=change.run,
        before=change.before,
        stores=left,
        since_ms=state.time_ms,
    )
    return replace(state, kept={**state.kept, change.partition: kept})


def release_copies(
    state: MetadataState, partition: PartitionId, but: AbstractSet[Replica] = frozenset()
) -> MetadataState:
    """End the possibility to reverse the partition's last change; its old stores, except `but`, release their
    rows.
    """
    kept = state.kept.get(partition)
    if kept is None:
        return state
    state = _with_kept(state, partition, None)
    added = tuple(
        Leftover(
            topic=kept.topic, change=kept.change, attempt=kept.attempt, place=place, kind=LeftoverKind.RELEASE
        )
        for place in kept.stores
        if place not in but and place.node in state.nodes
    )
    earlier = state.leftovers.get(partition, ())
    return _with_leftovers_of(state, partition, (*earlier, *added)) if added else state


def take_up_copies(state: MetadataState, partition: PartitionId, places: Iterable[Replica]) -> MetadataState:
    """A change copies to stores that keep an old copy: from now on that copy belongs to the change."""
    kept, targets = state.kept.get(partition), {*places}
    if kept is None or targets.isdisjoint(kept.stores):
        return state
    left = tuple(place for place in kept.stores if place not in targets)
    return _with_kept(state, partition, replace(kept, stores=left))


def _with_kept(state: MetadataState, partition: PartitionId, kept: Kept | None) -> MetadataState:
    others = {number: old for number, old in state.kept.items() if number != partition}
    return replace(state, kept=others if kept is None else {**others, partition: kept})


def end_open_change(state: MetadataState, partition: PartitionId, index: Index | None) -> MetadataState:
    """End the partition's planned or committed change when its owner has failed or was restarted."""
    change = state.changes.get(partition)
    if change is None or (change.kind is ChangeKind.FAILOVER and not change.is_committed):
        return state
    return clean(state, change) if change.is_committed else abort(state, change, index, OWNER_RESTARTED)


def with_failovers(state: MetadataState, place: Replica, index: Index) -> MetadataState:
    """Start a failover of each replicated partition that a store owns; open failovers continue.

    It builds one new map for all of them: a store may own tens of thousands of partitions.
    """
    partitions = [
        (topic.topic, partition)
        for topic in state.topics.values()
        if topic.replication > 1
        for partition, assignment in topic.assignments.items()
        if assignment.owner == place
    ]
    for _, partition in partitions:
        state = end_open_change(state, partition, None)
    failovers = {
        partition: _failover(state.topics[topic], partition, index)
        for topic, partition in partitions
        if partition not in state.changes
    }
    return replace(state, changes={**state.changes, **failovers}) if failovers else state


def _failover(topic: Topic, partition: PartitionId, index: Index) -> Change:
    assignment = topic.assignments[partition]
    return Change(
        change=ChangeId(index),
        kind=ChangeKind.FAILOVER,
        topic=topic.topic,
        partition=partition,
        epoch=assignment.epoch,
        owner=assignment.owner,
        replicas=assignment.replicas,
    )


def without_topic_changes(state: MetadataState, topic: Topic) -> tuple[MetadataState, frozenset[bytes]]:
    """The state without the changes of a deleted topic, and the stores that may have rows of it.

    Copies that were received and not adopted stay listed until they are dropped.
    """
    stores = {place.store for assignment in topic.assignments.values() for place in assignment.replicas}
    state = without_topic_moves(state, topic)
    for partition in topic.assignments:
        change = state.changes.get(partition)
        if change is not None:
            stores |= {place.store for place in (*change.leaves, *change.adds)}
            state = without_change(state, partition)
            if not change.is_committed:
                state = with_leftovers(state, change, change.adds, LeftoverKind.DISCARD)
        old = state.kept.get(partition)
        if old is not None:
            stores |= {place.store for place in old.stores}
            state = _with_kept(state, partition, None)
        listed = state.leftovers.get(partition, ())
        remaining = tuple(left for left in listed if left.kind is LeftoverKind.DISCARD)
        if remaining != listed:
            stores |= {left.place.store for left in listed if left not in remaining}
            state = _with_leftovers_of(state, partition, remaining)
    return state, frozenset(stores)


def without_leftover(
    state: MetadataState, partition: PartitionId, change: ChangeId, store: bytes
) -> MetadataState:
    remaining = tuple(
        left for left in state.leftovers[partition] if (left.change, left.place.store) != (change, store)
    )
    return _with_leftovers_of(state, partition, remaining)


def without_store(state: MetadataState, store: bytes) -> MetadataState:
    """Remove all steps that wait for a store of a removed node."""
    for partition, listed in state.leftovers.items():
        remaining = tuple(left for left in listed if left.place.store != store)
        if remaining != listed:
            state = _with_leftovers_of(state, partition, remaining)
    for partition, old in state.kept.items():
        if any(place.store == store for place in old.before):
            # A reversal would need this store, so it is not possible any more.
            state = release_copies(
                state, partition, but={place for place in old.before if place.store == store}
            )
    return state


def _with_leftovers_of(
    state: MetadataState, partition: PartitionId, listed: tuple[Leftover, ...]
) -> MetadataState:
    leftovers = {number: old for number, old in state.leftovers.items() if number != partition}
    return replace(state, leftovers={**leftovers, partition: listed} if listed else leftovers)


def awaits_owner(state: MetadataState, partition: PartitionId) -> bool:
    """Whether a failover still seeks the partition's owner, so that no node may open the partition."""
    change = state.changes.get(partition)
    return change is not None and change.kind is ChangeKind.FAILOVER and not change.is_committed
