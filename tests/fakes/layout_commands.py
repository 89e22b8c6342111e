"""Commands of layout changes for property tests: sound ones for the state they meet, and unsound ones."""

from __future__ import annotations

from hypothesis import strategies as st

from ringfence.control.model.commands import Command
from ringfence.control.model.ids import Epoch, NodeId, PartitionId, TopicId
from ringfence.control.model.layout_changes import Transition, TransitionKind
from ringfence.control.model.layout_commands import (
    AbortLayout,
    CommitLayout,
    ConfirmLayout,
    FinalizeLayout,
    HoldLayout,
    PlannedChild,
    PrepareLayout,
    PrunePartitions,
)
from ringfence.control.model.log_end import LogEnd
from ringfence.control.model.ranges import SlotRange, tile
from ringfence.control.model.reassignments import ChangeId
from ringfence.control.model.state import MetadataState
from ringfence.control.model.topics import Topic

END = LogEnd(Epoch(1), 7, 70, 99)


def layout_commands(state: MetadataState) -> st.SearchStrategy[Command]:
    """Steps of transitions that are open, prunes, and intents on ACTIVE partitions of any topic."""
    steps = [step for transition in state.transitions.values() for step in _steps(transition)]
    prunes = [
        PrunePartitions(topic=topic.topic, partitions=(number,))
        for topic in state.topics.values()
        for number in topic.seals or {}
    ]
    known: list[Command] = [*steps, *prunes] or [HoldLayout(change=ChangeId(3))]
    intents = [intent for topic in state.topics.values() for intent in _intents(state, topic)]
    return st.one_of(st.sampled_from(intents), st.sampled_from(known)) if intents else st.sampled_from(known)


def _steps(transition: Transition) -> list[Command]:
    number = transition.change
    created = tuple((child.partition, LogEnd(Epoch(number), 2, 0, 5)) for child in transition.children)
    ends = tuple((source, END) for source in transition.sources)
    return [
        HoldLayout(change=number),
        CommitLayout(change=number, ends=ends, created=created),
        CommitLayout(change=number, ends=ends[:-1], created=created),
        ConfirmLayout(change=number),
        FinalizeLayout(change=number),
        AbortLayout(change=number, why="test"),
    ]


def _intents(state: MetadataState, topic: Topic) -> list[Command]:
    active = topic.layout.active()
    first, made = active[0], list[Command]()
    lo, hi = first.slots
    if lo < hi:
        halves = (SlotRange(lo, lo), SlotRange(lo + 1, hi))
        made.append(_prepare(state, topic, TransitionKind.SPLIT, (first.partition,), halves))
    if len(active) > 1:
        pair = (first.partition, active[1].partition)
        whole = (SlotRange(lo, active[1].slots.hi),)
        made.append(_prepare(state, topic, TransitionKind.MERGE, pair, whole))
    for count in (2, 3):
        ranges = tile(count)
        sources = tuple(part.partition for part in active if part.slots not in ranges)
        new = tuple(slots for slots in ranges if slots not in {part.slots for part in active})
        made.append(_prepare(state, topic, TransitionKind.REPARTITION, sources, new))
    return made


def _prepare(
    state: MetadataState,
    topic: Topic,
    kind: TransitionKind,
    sources: tuple[PartitionId, ...],
    ranges: tuple[SlotRange, ...],
) -> PrepareLayout:
    nodes: tuple[NodeId, ...] = (state.ring.members or (NodeId(1),))[: topic.replication]
    return PrepareLayout(
        topic=TopicId(topic.topic),
        kind=kind,
        version=topic.layout.version,
        sources=tuple((number, topic.assignments[number].epoch) for number in sources),
        children=tuple(PlannedChild(slots.lo, slots.hi, nodes) for slots in ranges),
    )
