"""Invariants of layouts with SEALED partitions and of open layout changes, and of each step of them.

The rules are those of docs/design/layout_changes.md, as far as one state, or two successive ones, show them.
"""

from __future__ import annotations

from collections.abc import Sequence

from ringfence.control.model.ids import PartitionId, drawn_at
from ringfence.control.model.layout import Partition
from ringfence.control.model.layout_changes import LAYOUT_LEVEL, Transition, TransitionKind
from ringfence.control.model.reassignments import ChangeId, ChangeKind, ChangePhase, LeftoverKind
from ringfence.control.model.state import MetadataState
from ringfence.control.model.topics import Replica, Topic
from ringfence.control.state_machines.metadata.drained import is_transition_drained

_ORDER = tuple(ChangePhase)


def check(state: MetadataState, index: int) -> None:
    """AssertionError names the first rule that `state`, after the entry at `index`, breaks."""
    if state.level < LAYOUT_LEVEL:
        assert not state.transitions, f"a layout change at level {state.level}"
    used = {part.partition for topic in state.topics.values() for part in topic.layout.partitions}
    used |= {number for tombstone in state.tombstones.values() for number in tombstone.partitions}
    seals: dict[PartitionId, ChangeId] = {}
    for number, transition in state.transitions.items():
        assert number == transition.change <= index, f"layout change {number} is newer than entry {index}"
        assert transition.topic in state.topics, f"layout change {number} is of a topic that does not exist"
        topic = state.topics[transition.topic]
        if transition.may_abort:
            _check_before_commit(state, topic, transition, used)
            for source in transition.sources:
                assert source not in seals, f"I1: partition {source} is a source of two layout changes"
                seals[source] = number
        else:
            _check_after_commit(topic, transition)
    sealing = {
        part: change.change for part, change in state.changes.items() if change.kind is ChangeKind.SEAL
    }
    assert sealing == seals, "a SEAL without its layout change, or a source without its SEAL"
    _check_repartitions(state)
    for topic in state.topics.values():
        _check_lineage(state, topic)


def _check_before_commit(
    state: MetadataState, topic: Topic, transition: Transition, used: set[PartitionId]
) -> None:
    number, parts = transition.change, topic.layout.by_id()
    for source in transition.sources:
        part, change = parts.get(source), state.changes.get(source)
        assert part is not None, f"L9: source {source} of layout change {number} is not in the layout"
        assert part.is_active, f"I3: source {source} of layout change {number} is SEALED"
        assert change is not None, f"source {source} of layout change {number} has no SEAL"
        assert (change.change, change.phase) == (number, transition.phase), (
            f"source {source} of layout change {number} has the SEAL of {change.change}, {change.phase}"
        )
        assert topic.assignments[source].epoch == change.epoch < number, (
            f"I4: the owner of source {source} changed under layout change {number}"
        )
    ranges = sorted(parts[source].slots for source in transition.sources)
    made = sorted(child.slots for child in transition.children)
    assert ranges, f"layout change {number} has no sources"
    assert _bounds(ranges) == _bounds(made), f"I1: children of layout change {number} do not tile its sources"
    assert transition.version == transition.before == transition.after == transition.adoption_generation == 0
    for child in transition.children:
        assert int(drawn_at(child.partition)) == number, (
            f"I2: child {child.partition} was drawn by another entry"
        )
        assert child.partition not in used, f"I2: the id of child {child.partition} is in use"
        places = child.replicas
        assert len({place.node for place in places}) == len(places) == topic.replication, (
            f"child {child.partition} has other places than its topic needs"
        )
        assert all(_is_member(state, place) for place in places), (
            f"L9: child {child.partition} has a place on a node or store that is no member"
        )


def _bounds(ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Ascending ranges, with neighbours joined; overlapping ones stay apart."""
    found: list[tuple[int, int]] = []
    for lo, hi in ranges:
        if found and found[-1][1] + 1 == lo:
            found[-1] = (found[-1][0], hi)
        else:
            found.append((lo, hi))
    return found


def _is_member(state: MetadataState, place: Replica) -> bool:
    return place.node in state.nodes and state.nodes[place.node].store == place.store


def _check_after_commit(topic: Topic, transition: Transition) -> None:
    number, parts = transition.change, topic.layout.by_id()
    assert number < transition.adoption_generation, f"F1: layout change {number} has no generation to adopt"
    assert 1 < transition.version <= topic.layout.version, f"I2: layout change {number} made no version"
    for source in transition.sources:
        part = parts.get(source)
        assert part is not None, f"L8: source {source} of layout change {number} was pruned before its end"
        assert part.sealed_version == transition.version, (
            f"I3: source {source} of layout change {number} is not SEALED by it"
        )
    assert all(not child.replicas for child in transition.children), (
        f"layout change {number} keeps places that the assignments have"
    )


def _check_repartitions(state: MetadataState) -> None:
    open_ones = [
        transition.topic
        for transition in state.transitions.values()
        if transition.kind is TransitionKind.REPARTITION and transition.phase is not ChangePhase.OPENED
    ]
    assert len(set(open_ones)) == len(open_ones), "F9: two repartitions of one topic are open"


def _check_lineage(state: MetadataState, topic: Topic) -> None:
    parts = topic.layout.by_id()
    assert tuple(sorted(parts)) == tuple(parts), f"topic {topic.topic}: partitions are out of order"
    seals = {} if not topic.seals else topic.seals
    sealed = {number for number, part in parts.items() if not part.is_active}
    assert sealed == {*seals}, f"I3: topic {topic.topic}: SEALED partitions and their ends differ"
    if state.level < LAYOUT_LEVEL:
        assert not sealed, f"a SEALED partition at level {state.level}"
        return
    for number, part in parts.items():
        assert part.created_version <= topic.layout.version, f"I2: partition {number} is of a later version"
        for parent in part.parents:
            assert parent in parts, f"L8: parent {parent} of partition {number} was pruned without a note"
            assert number in parts[parent].children, (
                f"partition {number} names parent {parent}, which does not"
            )
        if not part.is_active:
            _check_sealed(topic, part, parts)
    for number, old in ({} if not topic.gone else topic.gone).items():
        assert number in parts, f"partition {number} has pruned parents and is not in the layout"
        assert not {parent.partition for parent in old} & {*parts}, (
            f"L8: a pruned parent of partition {number} is in the layout"
        )


def _check_sealed(topic: Topic, part: Partition, parts: dict[PartitionId, Partition]) -> None:
    number = part.partition
    assert part.created_version < part.sealed_version <= topic.layout.version, (
        f"I2: partition {number} was sealed by version {part.sealed_version}"
    )
    assert part.children, f"partition {number} is SEALED without children"
    reached = part.slots.lo
    for child in part.children:
        heir = parts.get(child)
        assert heir is not None, f"L8: child {child} of partition {number} was pruned before it"
        assert number in heir.parents, f"partition {number} names child {child}, which does not"
        assert heir.created_version == part.sealed_version, (
            f"child {child} of partition {number} is of another version"
        )
        assert heir.slots.lo <= reached <= heir.slots.hi, (
            f"I1: no child of partition {number} has slot {reached}"
        )
        reached = heir.slots.hi + 1
    assert reached > part.slots.hi, f"I1: no child of partition {number} has slot {reached}"


def check_step(before: MetadataState, after: MetadataState, index: int) -> None:
    """AssertionError names the first rule that the step to `index` breaks."""
    for number, topic in after.topics.items():
        old = before.topics.get(number)
        if old is not None and old is not topic:
            _check_topic_step(before, after, old, topic, index)
    for change, transition in before.transitions.items():
        later = after.transitions.get(change)
        if later is None:
            _check_end(after, transition, index)
        elif later is not transition:
            assert _ORDER.index(later.phase) == _ORDER.index(transition.phase) + 1, (
                f"I13: layout change {change} went from {transition.phase} to {later.phase}"
            )
    if after.scopes is not before.scopes:
        _check_decided(before, after)
    for change in {*after.transitions} - {*before.transitions}:
        assert change == index, f"I2: layout change {change} appeared at entry {index}"


def _check_topic_step(
    before: MetadataState, after: MetadataState, old: Topic, topic: Topic, index: int
) -> None:
    """The ACTIVE set and the version change together, by one COMMIT; a SEALED partition keeps its end."""
    was, now = old.layout.by_id(), topic.layout.by_id()
    active = {number for number, part in was.items() if part.is_active}
    same = active == {number for number, part in now.items() if part.is_active}
    assert topic.layout.version == old.layout.version + (not same), (
        f"I2: version {old.layout.version} became {topic.layout.version}"
    )
    committed = [
        transition
        for transition in after.transitions.values()
        if transition.adoption_generation == index and transition.topic == topic.topic
    ]
    assert len(committed) == (not same), f"I2: {len(committed)} COMMITs changed the ACTIVE set"
    for transition in committed:
        _check_commit(before, old, topic, transition)
    for number, seal in ({} if not old.seals else old.seals).items():
        later = topic.seal(number)
        if later is None:
            assert number not in now, f"I3: SEALED partition {number} became ACTIVE"
            assert not was[number].parents, f"L8: partition {number} was pruned before its parents"
            _check_released(after, number, old.assignments[number].replicas)
        elif later != seal:
            assert later.lowered == index, f"L1: SEALED partition {number} got another end"
            assert later.end.records < seal.end.records, f"L1: SEALED partition {number} became longer"
    for number in active - {*now}:
        raise AssertionError(f"I3: ACTIVE partition {number} vanished")


def _check_decided(before: MetadataState, after: MetadataState) -> None:
    """Rows are decided only where a publish can reach them: not in a SEALED or held partition."""
    closed = {
        number
        for number, change in before.changes.items()
        if (change.kind, change.phase) == (ChangeKind.SEAL, ChangePhase.HELD)
    }
    closed |= {
        number for topic in before.topics.values() for number in ({} if not topic.seals else topic.seals)
    }
    for number, scope in after.scopes.items():
        old = before.scopes.get(number)
        earlier = set() if old is None else {pending.epoch for pending in old.pending}
        for pending in scope.pending:
            named = {part.partition for part in pending.parts} if pending.epoch not in earlier else set()
            assert named.isdisjoint(closed), f"T3: scope {scope.name!r} decided rows that no publish reaches"


def _check_commit(before: MetadataState, old: Topic, topic: Topic, transition: Transition) -> None:
    number = transition.change
    earlier = before.transitions.get(number)
    assert earlier is not None, f"L1: COMMIT of {number} without a PREPARE"
    assert earlier.phase is ChangePhase.HELD, f"L1: COMMIT of {number} without a HOLD"
    assert transition.version == topic.layout.version, f"I2: COMMIT of {number} names another version"
    for child in earlier.children:
        assignment = topic.assignments[child.partition]
        assert (int(assignment.epoch), assignment.replicas) == (int(number), child.replicas), (
            f"L2: child {child.partition} has another owner epoch or other places than it was created with"
        )
    for source in transition.sources:
        assert topic.assignments[source] == old.assignments[source], (
            f"I3: the COMMIT of {number} changed the owner of source {source}"
        )
    waiting = {
        part.partition
        for scope in before.scopes.values()
        for pending in scope.pending
        for part in pending.parts
    }
    assert waiting.isdisjoint(transition.sources), (
        f"T3: rows that wait for their publish were sealed by layout change {number}"
    )


def _check_end(after: MetadataState, transition: Transition, index: int) -> None:
    """An aborted transition leaves sources that open again, and stores that drop the children."""
    number = transition.change
    topic = after.topics.get(transition.topic)
    if topic is None:
        tombstone = after.tombstones[transition.topic]
        for child in transition.children:
            assert child.partition in tombstone.partitions, f"D1: child {child.partition} was forgotten"
            for place in child.replicas:
                assert place.store in tombstone.holders or not _is_member(after, place), (
                    f"D1: a store of child {child.partition} was forgotten"
                )
        return
    if not transition.may_abort:
        assert transition.phase is ChangePhase.OPENED, f"F1: layout change {number} ended before OPENED"
        assert is_transition_drained(after, transition), f"F1: layout change {number} ended undrained"
        return
    for child in transition.children:
        _check_released(after, child.partition, child.replicas)
    for source in transition.sources:
        if transition.phase is ChangePhase.HELD and source in topic.assignments:
            change = after.changes.get(source)
            is_sought = change is not None and change.kind is ChangeKind.FAILOVER
            assert topic.assignments[source].epoch == index or is_sought, (
                f"L6: source {source} of layout change {number} was fenced and does not open again"
            )


def _check_released(after: MetadataState, partition: PartitionId, places: tuple[Replica, ...]) -> None:
    listed = {left.place for left in after.leftovers.get(partition, ()) if left.kind is LeftoverKind.RELEASE}
    missing = [place.node for place in places if _is_member(after, place) and place not in listed]
    assert not missing, f"D1: nodes {missing} are not told to release partition {partition}"
