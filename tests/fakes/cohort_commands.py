"""Commands of cohorts for property tests: sound ones for the state they meet, and unsound ones."""

from __future__ import annotations

from hypothesis import strategies as st

from ringfence.control.model.cohort_commands import (
    Begun,
    ChangeCohort,
    CreateCohort,
    DeleteCohort,
    Drained,
    MarkBegun,
    MarkDrained,
    PublishPlan,
    RegisterMembers,
    Registration,
    Removal,
    RemovalReason,
    RemoveMembers,
    SeekCohort,
    SliceChange,
)
from ringfence.control.model.cohorts import (
    Cohort,
    CohortId,
    CohortMode,
    CohortPosition,
    CohortSettings,
    MemberSession,
    StartKind,
)
from ringfence.control.model.commands import Command
from ringfence.control.model.ids import Epoch, Index, NodeId, PartitionId, TopicId
from ringfence.control.model.state import MetadataState
from ringfence.control.state_machines.cohorts.plans import next_entry
from ringfence.control.state_machines.metadata.cohort_lineage import heir, members_of


def cohort_commands(state: MetadataState) -> st.SearchStrategy[Command]:
    """Commands about cohorts of any topic; ids are mostly those of the state."""
    created = st.builds(
        CreateCohort,
        topic=st.sampled_from([*state.topics, TopicId(999_999)]),
        name=st.sampled_from(["c", "d", "", "bad name"]),
        mode=st.sampled_from([*CohortMode]),
        start=st.sampled_from([*StartKind]),
        settings=st.sampled_from([CohortSettings(), CohortSettings(limit=500)]),
    )
    known = [one for cohort in state.cohorts.values() for one in _known(state, cohort)]
    joined = st.builds(
        lambda cohort, name, process, after: RegisterMembers(
            members=(Registration(cohort, name, process, MemberSession(after), NodeId(1)),)
        ),
        st.sampled_from([*state.cohorts, CohortId(7)]),
        st.sampled_from(["m", "n", "bad name"]),
        st.sampled_from([b"1" * 16, b"2" * 16, b"short"]),
        st.sampled_from([0, *_sessions(state)]),
    )
    return st.one_of(created, joined, st.sampled_from(known)) if known else st.one_of(created, joined)


def _sessions(state: MetadataState) -> list[MemberSession]:
    return [member.session for members in state.cohort_members.values() for member in members.values()]


def _known(state: MetadataState, cohort: Cohort) -> list[Command]:
    number, topic = cohort.cohort, state.topics[cohort.topic]
    parts = topic.layout.by_id()
    members = members_of(state, number)
    made = next_entry(state, cohort)
    first = topic.layout.partitions[0].partition
    marks = tuple(Drained(number, cohort.incarnation, part, True) for part in parts)
    begun = tuple(
        Begun(number, cohort.incarnation, part, Epoch(topic.assignments[heir(parts, part)].epoch - late))
        for part in cohort.resetting
        for late in (0, 1)
    )
    return [
        ChangeCohort(
            cohort=number, mode=cohort.mode, settings=CohortSettings(limit=7), expected=cohort.changed
        ),
        ChangeCohort(cohort=number, mode=cohort.mode, settings=CohortSettings(limit=8), expected=Index(1)),
        DeleteCohort(topic=cohort.topic, name=cohort.name, cohort=number),
        MarkDrained(marks=marks),
        *([MarkBegun(marks=begun)] if begun else []),
        *([made.command] if made is not None else []),
        PublishPlan(
            cohort=number,
            generation=cohort.generation,
            changes=(SliceChange("m", (first, PartitionId(7)), ()),),
        ),
        *(
            RemoveMembers(members=(Removal(number, name, member.session, RemovalReason.LEFT),))
            for name, member in members.items()
        ),
        SeekCohort(cohort=number, incarnation=cohort.incarnation, to=StartKind.LATEST),
        SeekCohort(
            cohort=number,
            incarnation=cohort.incarnation,
            to=StartKind.POSITIONS,
            positions=(CohortPosition(first, 0, Epoch(0)),),
            rest=StartKind.EARLIEST,
        ),
    ]
