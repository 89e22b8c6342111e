"""Effects of entries on layout changes, shared by their commands, restarts, failovers and deletions.

Rules:

- Each source has a SEAL in `state.changes` from the PREPARE to the COMMIT or the ABORT. Both remove it.
- An ABORT after a HOLD draws a new owner epoch for each source: only an OPEN above the fence at the
transition's number ends that fence. A source whose owner fails by the same entry gets a failover instead.
- Children exist at their stores from the PREPARE on, without an assignment. An end without COMMIT leaves a
RELEASE for each of their places. Their ids are never used again, so no late order can meet a later try.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import TypeVar

from msgspec import UNSET
from msgspec.structs import replace

from ringfence.control.model.ids import Epoch, Index, PartitionId, TopicId, drawn_at
from ringfence.control.model.layout import Partition
from ringfence.control.model.layout_changes import Child, Transition
from ringfence.control.model.reassignments import (
    Change,
    ChangeId,
    ChangeKind,
    ChangePhase,
    Leftover,
    LeftoverKind,
)
from ringfence.control.model.state import MetadataState
from ringfence.control.model.topics import Assignment, PrunedParent, Replica, Seal, Topic

Value = TypeVar("Value")


def planned_children(state: MetadataState, topic: TopicId | None = None) -> Iterator[Child]:
    """Children of transitions before their COMMIT, of one topic or of all: stores have them, the layout has
    not.
    """
    for transition in state.transitions.values():
        if transition.may_abort and topic in {None, transition.topic}:
            yield from transition.children


def open_count(state: MetadataState) -> int:
    """Open changes that `changes_max` limits: planned changes, and transitions that are not OPENED.

    A transition counts once, whatever the number of its sources. An OPENED one holds no partition, and may
    wait for a reader for days.
    """
    planned = sum(
        change.kind not in {ChangeKind.FAILOVER, ChangeKind.SEAL} for change in state.changes.values()
    )
    return planned + sum(
        transition.phase is not ChangePhase.OPENED for transition in state.transitions.values()
    )


def with_transition(state: MetadataState, transition: Transition) -> MetadataState:
    return replace(state, transitions={**state.transitions, transition.change: transition})


def without_transition(state: MetadataState, number: ChangeId) -> MetadataState:
    left = {key: value for key, value in state.transitions.items() if key != number}
    return replace(state, transitions=left)


def with_seals(
    state: MetadataState, transition: Transition, phase: ChangePhase = ChangePhase.PREPARED
) -> MetadataState:
    """The state in which each source has a SEAL in this phase."""
    topic = state.topics[transition.topic]
    changes = dict(state.changes)
    for source in transition.sources:
        assignment = topic.assignments[source]
        before = changes.get(source)
        changes[source] = (
            replace(before, phase=phase)
            if before is not None
            else Change(
                change=transition.change,
                kind=ChangeKind.SEAL,
                topic=transition.topic,
                partition=source,
                epoch=assignment.epoch,
                owner=assignment.owner,
                replicas=(),
                phase=phase,
            )
        )
    return replace(state, changes=changes)


def without_seals(state: MetadataState, transition: Transition) -> MetadataState:
    sources = {*transition.sources}
    left = {number: change for number, change in state.changes.items() if number not in sources}
    return replace(state, changes=left)


def abort(
    state: MetadataState, transition: Transition, index: Index, failing: Replica | None = None
) -> MetadataState:
    """The state as before the transition. Sources that may have been fenced open again, under `index`.

    `failing` is the store whose replicated partitions fail over by the same entry: their owner does not
    open.
    """
    assert transition.may_abort, (
        f"I13: transition {transition.change} is {transition.phase}, it only goes forward"
    )
    ended = without_transition(without_seals(state, transition), transition.change)
    ended = with_released_children(ended, transition)
    if transition.phase is not ChangePhase.HELD:
        return ended
    topic = ended.topics[transition.topic]
    assignments = dict(topic.assignments)
    for source in transition.sources:
        fails_over = topic.replication > 1 and assignments[source].owner == failing
        if not fails_over:
            assignments[source] = replace(assignments[source], epoch=Epoch(index))
    changed = replace(topic, assignments=assignments, changed=index)
    return replace(ended, topics={**ended.topics, topic.topic: changed})


def with_released_children(state: MetadataState, transition: Transition) -> MetadataState:
    """Each place of a child that is not committed shall drop what it has of the child."""
    added = {
        child.partition: tuple(
            Leftover(
                topic=transition.topic,
                change=transition.change,
                attempt=ordinal + 1,
                place=place,
                kind=LeftoverKind.RELEASE,
            )
            for place in child.replicas
            if place.node in state.nodes
        )
        for ordinal, child in enumerate(transition.children)
    }
    listed = {number: leftovers for number, leftovers in added.items() if leftovers}
    return replace(state, leftovers={**state.leftovers, **listed}) if listed else state


def overtaken(state: MetadataState, place: Replica, index: Index) -> MetadataState:
    """Abort the transitions that a restart or a failure of this store concerns: it owns a source or a child.

    A follower of a child does not matter: the child's owner needs a quorum only.
    """
    for transition in tuple(state.transitions.values()):
        if transition.may_abort and place in owners_of(state, transition):
            state = abort(state, transition, index, place)
    return state


def owners_of(state: MetadataState, transition: Transition) -> frozenset[Replica]:
    """Owners of the sources and of the children, before the COMMIT."""
    assignments = state.topics[transition.topic].assignments
    return frozenset((*(assignments[source].owner for source in transition.sources), *transition.owners))


def without_topic_transitions(
    state: MetadataState, topic: Topic
) -> tuple[MetadataState, tuple[PartitionId, ...], frozenset[bytes]]:
    """The state without the transitions of a deleted topic, the children that no layout names, and the stores
    that may have them.
    """
    children = tuple(planned_children(state, topic.topic))
    for transition in tuple(state.transitions.values()):
        if transition.topic == topic.topic:
            if transition.may_abort:
                state = without_seals(state, transition)
            state = without_transition(state, transition.change)
    stores = frozenset(place.store for child in children for place in child.replicas)
    return state, tuple(child.partition for child in children), stores


def committed_topic(
    topic: Topic, transition: Transition, ends: Iterable[tuple[PartitionId, Seal]], index: Index
) -> Topic:
    """The topic with the new layout: sources SEALED at their ends, children owned under the number."""
    layout = topic.layout.replaced(
        transition.sources, [(child.partition, child.slots) for child in transition.children]
    )
    epoch = Epoch(transition.change)
    assigned = {
        child.partition: Assignment(owner=child.replicas[0], epoch=epoch, replicas=child.replicas)
        for child in transition.children
    }
    seals = {} if topic.seals is UNSET else topic.seals
    return replace(
        topic,
        layout=layout,
        assignments={**topic.assignments, **assigned},
        seals={**seals, **dict(ends)},
        changed=index,
    )


def pruned_topic(topic: Topic, gone: Collection[PartitionId], index: Index) -> Topic:
    """The topic without these SEALED partitions. Their children note where they ended."""
    parts, noted = topic.layout.by_id(), {} if topic.gone is UNSET else dict(topic.gone)
    for number in sorted(gone):
        seal = topic.seal(number)
        assert seal is not None, f"I3: partition {number} is SEALED and has no end"
        for child in parts[number].children:
            if child in parts and child not in gone:
                noted[child] = (*noted.get(child, ()), PrunedParent(number, seal.end.offset))

    return replace(
        topic,
        layout=topic.layout.pruned(gone),
        assignments=_without(topic.assignments, gone),
        starts=_without(topic.starts, gone),
        start_epochs=UNSET if topic.start_epochs is UNSET else _without(topic.start_epochs, gone),
        forced=UNSET if topic.forced is UNSET else _without(topic.forced, gone),
        seals=UNSET if topic.seals is UNSET else _without(topic.seals, gone),
        gone=_without(noted, gone) or UNSET,
        changed=index,
    )


def _without(values: dict[PartitionId, Value], gone: Collection[PartitionId]) -> dict[PartitionId, Value]:
    return {number: value for number, value in values.items() if number not in gone}


def sealed_by(part: Partition) -> ChangeId:
    """The number of the transition that sealed a partition: the children's ids were drawn from it."""
    assert part.children, f"I3: partition {part.partition} is not SEALED"
    return ChangeId(drawn_at(part.children[0]))
