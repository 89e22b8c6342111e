"""Check steps of layout changes, one question a function.

A SPLIT or a MERGE compares no version: ranges and ids never change, the epochs of its sources are compared,
and each source is in at most one open change. So any number of them is prepared side by side. A REPARTITION
speaks of the whole topic, also of the partitions that it leaves alone: it compares the version, and waits
until no other layout change can alter the number of partitions.
"""

from __future__ import annotations

from typing import Final

from msgspec import UNSET

from ringfence.control.model.ids import NodeId, PartitionId
from ringfence.control.model.layout import Partition, joined
from ringfence.control.model.layout_changes import LAYOUT_LEVEL, Transition, TransitionKind
from ringfence.control.model.layout_commands import CommitLayout, LayoutCommand, PrepareLayout
from ringfence.control.model.nodes import Life
from ringfence.control.model.ranges import SlotRange
from ringfence.control.model.reassignments import ChangeId, ChangePhase
from ringfence.control.model.results import Refused
from ringfence.control.model.state import MetadataState
from ringfence.control.model.text import listed
from ringfence.control.model.topics import Topic
from ringfence.control.state_machines.metadata.config import limit
from ringfence.control.state_machines.metadata.layout_rules import open_count, planned_children, sealed_by
from ringfence.control.state_machines.metadata.reassignment_checks import WHY_MAX
from ringfence.control.state_machines.metadata.refusals import conflict, invalid, stale, unknown_topic
from ringfence.control.state_machines.metadata.topic_checks import place_fault
from ringfence.native.wire import Code

# Partitions that a message names.
NAMED: Final = 8


def level_fault(state: MetadataState, command: LayoutCommand) -> Refused | None:
    """The refusal of every layout command that would begin something new while layout changes are closed."""
    return closed_fault(state, is_new=isinstance(command, PrepareLayout))


def closed_fault(state: MetadataState, *, is_new: bool = True) -> Refused | None:
    """The refusal of all layout changes, or only of new ones, in this state."""
    if is_new and not limit(state, "layout_changes_enabled"):
        return conflict("layout changes are switched off (`layout_changes_enabled`)")
    if state.level >= LAYOUT_LEVEL:
        return None
    return conflict(
        f"the cluster's level is {state.level}, layout changes need {LAYOUT_LEVEL}: run `ringfence cluster "
        "finalize` once all nodes have a program that knows it"
    )


def prepare_fault(state: MetadataState, command: PrepareLayout) -> Refused | None:
    topic = state.topics.get(command.topic)
    if topic is None:
        return unknown_topic(command.topic)
    if command.kind is TransitionKind.REPARTITION and command.version != topic.layout.version:
        return stale(
            f"the layout of topic {topic.name!r} has version {topic.layout.version}, the repartition was "
            f"decided on {command.version}; look at the layout and ask again"
        )
    # In this order: later checks rely on what earlier ones have established.
    return (
        sources_fault(state, topic, command)
        or (repartition_fault(state, topic) if command.kind is TransitionKind.REPARTITION else None)
        or shape_fault(topic, command)
        or nodes_fault(state, topic, command)
        or room_fault(state, topic, command)
    )


def sources_fault(state: MetadataState, topic: Topic, command: PrepareLayout) -> Refused | None:
    """Check that each source is ACTIVE, as it was when the change was decided, and in no other change."""
    parts = topic.layout.by_id()
    for number, _ in command.sources:
        part = parts.get(number)
        if part is None:
            message = f"topic {topic.name!r} has no partition {number}{_pruned_text(topic, number)}"
            return Refused(code=Code.UNKNOWN_PARTITION, message=message)
        if not part.is_active:
            return sealed_fault(part)
    for number, epoch in command.sources:
        present = topic.assignments[number].epoch
        if present != epoch:
            return stale(
                f"partition {number} has owner epoch {present}, the layout change was decided on {epoch}"
            )
    for number, _ in command.sources:
        change = state.changes.get(number)
        if change is not None:
            return conflict(
                f"partition {number} is in change {change.change} ({change.kind}, {change.phase}); wait for "
                "its end or abort it"
            )
    return None


def sealed_fault(part: Partition) -> Refused:
    children = listed(part.children, NAMED)
    return conflict(
        f"partition {part.partition} was sealed by layout change {sealed_by(part)}; its slots are in "
        f"{children}"
    )


def repartition_fault(state: MetadataState, topic: Topic) -> Refused | None:
    for other in state.transitions.values():
        is_open = other.may_abort or (
            other.kind is TransitionKind.REPARTITION and other.phase is not ChangePhase.OPENED
        )
        if other.topic == topic.topic and is_open:
            return conflict(
                f"topic {topic.name!r} is in layout change {other.change} ({other.kind}, {other.phase}); a "
                "repartition is about all partitions: wait for its end or abort it"
            )
    return None


def shape_fault(topic: Topic, command: PrepareLayout) -> Refused | None:
    """Check that the children tile the slots of the sources, and that the kind has its numbers of them."""
    numbers = [number for number, _ in command.sources]
    if len(set(numbers)) != len(numbers) or not numbers:
        return invalid(f"sources {listed(numbers, NAMED)}: name at least one partition, each once")
    parts = topic.layout.by_id()
    sources = sorted(parts[number].slots for number in numbers)
    children = [SlotRange(lo, hi) for lo, hi, _ in command.children]
    fault = _count_fault(command, sources)
    if fault is not None:
        return fault
    if any(lo > hi for lo, hi in children) or joined(children) != joined(sources):
        return invalid(
            f"children {_ranges_text(children)} do not tile the slots of the sources, "
            f"{_ranges_text(sources)}, in ascending order"
        )
    same = {*children} & {*sources}
    if same:
        return invalid(f"child {_ranges_text(sorted(same))} has the range of a source: leave that source out")
    return None


def _count_fault(command: PrepareLayout, sources: list[SlotRange]) -> Refused | None:
    count, made = len(sources), len(command.children)
    if command.kind is TransitionKind.SPLIT:
        if count != 1:
            return invalid(f"a split of {count} partitions: name one, or repartition the topic")
        if sources[0].lo == sources[0].hi:
            return invalid(f"partition {command.sources[0][0]} has one slot, it cannot be split")
        if made < 2:
            return invalid(f"a split into {made}: name the slots at which its two or more parts begin")
    if command.kind is TransitionKind.MERGE:
        if count != 2 or made != 1:
            return invalid(f"a merge of {count} into {made}: name two partitions, or repartition the topic")
        if len(joined(sources)) != 1:
            return invalid(
                f"partitions {command.sources[0][0]} and {command.sources[1][0]} are not adjacent: "
                f"{_ranges_text(sources)}; name two whose slots meet"
            )
    return None


def nodes_fault(state: MetadataState, topic: Topic, command: PrepareLayout) -> Refused | None:
    for child in command.children:
        if len(child.nodes) != topic.replication or len(set(child.nodes)) != topic.replication:
            return invalid(
                f"child {child.lo}..{child.hi} has nodes {list(child.nodes)}: name {topic.replication} "
                "different ones"
            )
    for node in sorted({node for child in command.children for node in child.nodes}):
        fault = place_fault(state, node)
        if fault is not None:
            return fault
    for number, _ in command.sources:
        fault = owner_fault(state, number, topic.assignments[number].owner.node)
        if fault is not None:
            return fault
    return None


def owner_fault(state: MetadataState, partition: PartitionId, node: NodeId) -> Refused | None:
    owner = state.nodes[node]
    if owner.life is Life.LIVE:
        return None
    return conflict(
        f"node {node}, which owns partition {partition}, is {owner.life}; only a live owner can seal it"
    )


def room_fault(state: MetadataState, topic: Topic, command: PrepareLayout) -> Refused | None:
    """Check limits. Children of other open transitions count: they are partitions soon."""
    made = len(command.children)
    count = len(topic.layout.partitions) + sum(1 for _ in planned_children(state, topic.topic))
    most = limit(state, "topic_partitions_max")
    if count + made > most:
        return conflict(
            f"topic {topic.name!r} has {count} partitions, SEALED ones too, and would get {made} more; the "
            f"limit `topic_partitions_max` is {most}: SEALED ones go once retention has emptied them"
        )
    present = sum(len(other.layout.partitions) for other in state.topics.values())
    present += sum(1 for _ in planned_children(state))
    most = limit(state, "partitions_max")
    if present + made > most:
        return conflict(
            f"the cluster has {present} partitions, SEALED ones too, and would get {made} more; the limit "
            f"`partitions_max` is {most}: raise it, or delete a topic"
        )
    open_changes, most = open_count(state), limit(state, "changes_max")
    if open_changes >= most:
        return conflict(f"{open_changes} changes are open, the limit `changes_max`; wait until one has ended")
    if len(command.why) > WHY_MAX:
        return invalid(f"a reason of {len(command.why)} characters: at most {WHY_MAX}")
    return None


# ---- later steps ------------------------------------------------------------------------------------


def phase_fault(
    state: MetadataState, number: ChangeId, phases: tuple[ChangePhase, ...], what: str
) -> Refused | None:
    """The refusal of a step whose transition is over, or in another phase."""
    transition = state.transitions.get(number)
    if transition is None:
        return stale(f"layout change {number} is over, or never began")
    if transition.phase in phases:
        return None
    onward = "" if transition.may_abort else "; it only goes forward"
    return conflict(f"layout change {number} is {transition.phase}{onward}: no {what} now")


def commit_fault(state: MetadataState, command: CommitLayout) -> Refused | None:
    fault = phase_fault(state, command.change, (ChangePhase.HELD,), "COMMIT")
    if fault is not None:
        return fault
    transition = state.transitions[command.change]
    return (
        _proof_fault(transition, command)
        or epochs_fault(state, transition)
        or places_fault(state, transition)
        or pending_fault(state, transition)
    )


def _proof_fault(transition: Transition, command: CommitLayout) -> Refused | None:
    ends, created = dict(command.ends), dict(command.created)
    children = {child.partition for child in transition.children}
    if len(command.ends) != len(ends) or {*ends} != {*transition.sources}:
        return invalid(
            f"layout change {transition.change} has the sources {listed(transition.sources, NAMED)}, its "
            f"COMMIT has the ends of {listed([*ends], NAMED)}"
        )
    if len(command.created) != len(created) or {*created} != children:
        return invalid(
            f"layout change {transition.change} has the children {listed(sorted(children), NAMED)}, its "
            f"COMMIT has {listed([*created], NAMED)}"
        )
    odd = [number for number, end in created.items() if int(end.epoch) != transition.change]
    if odd:
        return invalid(
            f"child {odd[0]} has epoch {created[odd[0]].epoch}; children of layout change "
            f"{transition.change} are created under its number"
        )
    late = [number for number, end in ends.items() if end.epoch > transition.change]
    if late:
        return invalid(
            f"partition {late[0]} ends in epoch {ends[late[0]].epoch}, above its fence {transition.change}"
        )
    return None


def epochs_fault(state: MetadataState, transition: Transition) -> Refused | None:
    """Belt and braces: an entry that gives a source another owner epoch aborts the transition itself."""
    assignments = state.topics[transition.topic].assignments
    for source in transition.sources:
        change = state.changes[source]
        if assignments[source].epoch != change.epoch:
            return stale(
                f"partition {source} has owner epoch {assignments[source].epoch}, layout change "
                f"{transition.change} began under {change.epoch}"
            )
    return None


def places_fault(state: MetadataState, transition: Transition) -> Refused | None:
    for child in transition.children:
        for place in child.replicas:
            node = state.nodes.get(place.node)
            if node is None or node.store != place.store:
                return conflict(f"child {child.partition} has a place on node {place.node}, which is gone")
        owner = state.nodes[child.replicas[0].node]
        if owner.life is not Life.LIVE:
            return conflict(f"node {owner.node}, the owner of child {child.partition}, is {owner.life}")
    return None


def pending_fault(state: MetadataState, transition: Transition) -> Refused | None:
    """Refuse a COMMIT while rows of a decided scope wait for their publish in a source: a SEALED log takes no
    publish record, so these rows would never get offsets.
    """
    name = waiting_scope(state, {*transition.sources})
    if name is None:
        return None
    return conflict(
        f"layout change {transition.change}: rows that scope {name!r} has committed wait for their publish "
        "in a source"
    )


def waiting_scope(state: MetadataState, sources: set[PartitionId]) -> str | None:
    """The name of a scope with a committed, unpublished part in one of the partitions; None without one."""
    return next(
        (
            scope.name
            for scope in state.scopes.values()
            for pending in scope.pending
            for part in pending.parts
            if part.partition in sources
        ),
        None,
    )


def _ranges_text(ranges: list[SlotRange]) -> str:
    return listed([f"{lo}..{hi}" for lo, hi in ranges], NAMED)


def _pruned_text(topic: Topic, number: PartitionId) -> str:
    gone = {} if topic.gone is UNSET else topic.gone
    offset = next((old.offset for olds in gone.values() for old in olds if old.partition == number), None)
    return "" if offset is None else f"; it was sealed, ended at offset {offset}, and was pruned"
