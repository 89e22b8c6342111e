"""Commands of layout changes: PREPARE, HOLD, COMMIT, OPENED, FINALIZED, ABORT, the prune of SEALED
partitions, and a topic's settings of automatic changes.

    PREPARE   children get ids and places, each source a SEAL; stores create the children
    HOLD      owners of the sources may be fenced at the transition's number
    COMMIT    version + 1: sources are SEALED at their ends, children are owned under the number
    OPENED    children take rows
    FINALIZE  the transition is forgotten, which permits a prune

One entry each, whatever the number of sources and children. `state_machines.layout` decides them. A repeated
step finds the transition in another phase, or ended, and is refused.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from ringfence.control.model.ids import Index, PartitionId, drawn
from ringfence.control.model.layout_changes import Child, Transition
from ringfence.control.model.layout_commands import (
    AbortLayout,
    CommitLayout,
    ConfirmLayout,
    FinalizeLayout,
    HoldLayout,
    LayoutCommand,
    PrepareLayout,
    PrunePartitions,
    SetAutoLayout,
)
from ringfence.control.model.ranges import SlotRange
from ringfence.control.model.reassignments import ChangeId, ChangePhase, Leftover, LeftoverKind
from ringfence.control.model.results import (
    ChangesPrepared,
    Done,
    LayoutFinalized,
    PartitionsPruned,
    Refused,
    Result,
)
from ringfence.control.model.state import MetadataState
from ringfence.control.model.topics import Replica, Seal
from ringfence.control.state_machines.metadata import (
    auto_layout,
    cohort_rules,
    drained,
    layout_checks,
    layout_rules,
    prune_checks,
)
from ringfence.control.state_machines.metadata.move_records import without_partition_moves
from ringfence.control.state_machines.metadata.reassignment_rules import release_copies
from ringfence.control.state_machines.metadata.refusals import conflict

PREPARED: Final = (ChangePhase.PREPARED,)
BEFORE_COMMIT: Final = (ChangePhase.PREPARED, ChangePhase.HELD)
COMMITTED: Final = (ChangePhase.COMMITTED,)
OPENED: Final = (ChangePhase.OPENED,)


def validate(state: MetadataState, command: LayoutCommand) -> Refused | None:
    fault = layout_checks.level_fault(state, command)
    if fault is not None:
        return fault
    match command:
        case PrepareLayout():
            return layout_checks.prepare_fault(state, command)
        case HoldLayout(change=change):
            return layout_checks.phase_fault(state, change, PREPARED, "HOLD")
        case CommitLayout():
            return layout_checks.commit_fault(state, command)
        case ConfirmLayout(change=change):
            return layout_checks.phase_fault(state, change, COMMITTED, "OPENED")
        case AbortLayout(change=change):
            return layout_checks.phase_fault(state, change, BEFORE_COMMIT, "ABORT")
        case FinalizeLayout():
            return check_finalize(state, command)
        case PrunePartitions():
            return prune_checks.prune_fault(state, command)
        case SetAutoLayout():
            return auto_layout.settings_fault(state, command)


def execute(state: MetadataState, command: LayoutCommand, index: Index) -> tuple[MetadataState, Result]:
    match command:
        case PrepareLayout():
            return prepare(state, command, index)
        case HoldLayout(change=change):
            return hold(state, change), Done()
        case CommitLayout():
            return commit(state, command, index), Done()
        case ConfirmLayout(change=change):
            opened = replace(state.transitions[change], phase=ChangePhase.OPENED)
            return layout_rules.with_transition(state, opened), Done()
        case AbortLayout(change=change):
            return layout_rules.abort(state, state.transitions[change], index), Done()
        case FinalizeLayout(change=change):
            return finalize(state, change)
        case PrunePartitions():
            return prune(state, command, index)
        case SetAutoLayout():
            return auto_layout.set_settings(state, command)


def prepare(state: MetadataState, command: PrepareLayout, index: Index) -> tuple[MetadataState, Result]:
    transition = Transition(
        change=ChangeId(index),
        kind=command.kind,
        topic=command.topic,
        sources=tuple(number for number, _ in command.sources),
        children=tuple(
            Child(
                partition=PartitionId(drawn(index, ordinal)),
                slots=SlotRange(child.lo, child.hi),
                replicas=tuple(Replica(node=node, store=state.nodes[node].store) for node in child.nodes),
            )
            for ordinal, child in enumerate(command.children)
        ),
        why=command.why,
    )
    prepared = layout_rules.with_transition(layout_rules.with_seals(state, transition), transition)
    return prepared, ChangesPrepared(change=index, partitions=len(transition.sources))


def hold(state: MetadataState, number: ChangeId) -> MetadataState:
    held = replace(state.transitions[number], phase=ChangePhase.HELD)
    return layout_rules.with_transition(layout_rules.with_seals(state, held, ChangePhase.HELD), held)


def commit(state: MetadataState, command: CommitLayout, index: Index) -> MetadataState:
    """Make the new layout. The version follows the present one: other transitions may have committed since
    the PREPARE.
    """
    transition = state.transitions[command.change]
    topic = state.topics[transition.topic]
    before = sum(part.is_active for part in topic.layout.partitions)
    seals = [(number, Seal(end=end, sealed_ms=state.time_ms)) for number, end in command.ends]
    topic = layout_rules.committed_topic(topic, transition, seals, index)
    committed = replace(
        transition,
        phase=ChangePhase.COMMITTED,
        version=topic.layout.version,
        before=before,
        after=before - len(transition.sources) + len(transition.children),
        children=tuple(replace(child, replicas=()) for child in transition.children),
        adoption_generation=index,
        stopped_us=command.stopped_us,
    )
    state = layout_rules.without_seals(state, transition)
    for source in transition.sources:
        if source in state.kept:
            state = release_copies(state, source)  # a sealed partition goes back to no earlier owner
    state = replace(state, topics={**state.topics, topic.topic: topic})
    return layout_rules.with_transition(state, committed)


def check_finalize(state: MetadataState, command: FinalizeLayout) -> Refused | None:
    fault = layout_checks.phase_fault(state, command.change, OPENED, "FINALIZE")
    if fault is not None:
        return fault
    transition = state.transitions[command.change]
    if drained.is_transition_drained(state, transition):
        return None
    return conflict(
        f"layout change {command.change}: registered readers are not through its sources; it ends once they "
        f"are, or `{drained.HOLD_PROPERTY}` is over"
    )


def finalize(state: MetadataState, number: ChangeId) -> tuple[MetadataState, Result]:
    """Forget the transition. Readers that were not through its sources are named: they are waited for no
    longer.
    """
    transition = state.transitions[number]
    topic, born_by = transition.topic, transition.adoption_generation
    readers = drained.registered_readers(state, topic)
    overdue = {
        name
        for source in transition.sources
        for name in drained.holders(state, topic, source, born_by, readers)
    }
    ended = layout_rules.without_transition(state, number)
    return ended, LayoutFinalized(overdue=tuple(sorted(overdue))) if overdue else Done()


def prune(state: MetadataState, command: PrunePartitions, index: Index) -> tuple[MetadataState, Result]:
    """Remove the partitions; the stores of all their replicas release them. Cohorts that were not through
    one note it at its children.
    """
    topic = state.topics[command.topic]
    state, missed = cohort_rules.without_partitions(state, topic, command.partitions)
    parts = topic.layout.by_id()
    for number in command.partitions:
        state = release_copies(without_partition_moves(state, number), number)
    leftovers = dict(state.leftovers)
    for number in command.partitions:
        released = tuple(
            Leftover(
                topic=topic.topic,
                change=layout_rules.sealed_by(parts[number]),
                attempt=1,
                place=place,
                kind=LeftoverKind.RELEASE,
            )
            for place in topic.assignments[number].replicas
        )
        leftovers[number] = (*leftovers.get(number, ()), *released)
    pruned = layout_rules.pruned_topic(topic, command.partitions, index)
    state = replace(state, topics={**state.topics, topic.topic: pruned}, leftovers=leftovers)
    return state, PartitionsPruned(missed=missed) if missed else Done()
