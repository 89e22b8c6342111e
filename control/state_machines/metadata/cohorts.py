"""Commands of cohorts: the cohort itself, its members, their slices, and its progress over SEALED partitions.

    CreateCohort, ChangeCohort, DeleteCohort   what operators and the first member ask for
    RegisterMembers, RemoveMembers             members come and go, up to 512 in one entry
    PublishPlan                                slices change, and the generation with them
    MarkDrained, MarkBegun                     what the owners of gates tell, up to 4,096 in one entry
    SeekCohort                                 a new incarnation

`state_machines.cohorts` decides the entries of the leader. The owner of a partition decides which member
reads it, in the partition's own log: a plan that is late or lost costs balance, never order.
"""

from __future__ import annotations

from msgspec.structs import replace

from ringfence.control.model.cohort_commands import (
    Begun,
    ChangeCohort,
    CohortCommand,
    CreateCohort,
    DeleteCohort,
    Drained,
    MarkBegun,
    MarkDrained,
    PublishPlan,
    RegisterMembers,
    Registration,
    RemoveMembers,
    SeekCohort,
    SliceChange,
)
from ringfence.control.model.cohorts import (
    REPLACED_MAX,
    Cohort,
    CohortId,
    CohortStart,
    DrainedMark,
    Incarnation,
    Member,
    MemberSession,
    StartKind,
)
from ringfence.control.model.ids import Index, PartitionId, drawn
from ringfence.control.model.layout import Partition
from ringfence.control.model.results import (
    CohortCreated,
    CohortSought,
    Done,
    ItemsTaken,
    MembersRegistered,
    NotRegistered,
    PlanPublished,
    Refused,
    RegistrationOutcome,
    Result,
)
from ringfence.control.model.state import MetadataState
from ringfence.control.state_machines.metadata import cohort_checks, cohort_rules, cohort_starts
from ringfence.control.state_machines.metadata.cohort_lineage import (
    has_partition,
    heir,
    is_through,
    members_of,
    waits_for,
)
from ringfence.control.state_machines.metadata.config import limit


def validate(state: MetadataState, command: CohortCommand) -> Refused | None:
    fault = cohort_checks.level_fault(state) or cohort_checks.fault_of(state, command)
    if fault is None and isinstance(command, SeekCohort):
        topic = state.topics[state.cohorts[command.cohort].topic]
        return cohort_starts.unrelated_fault(topic, command)
    return fault


def execute(state: MetadataState, command: CohortCommand, index: Index) -> tuple[MetadataState, Result]:
    match command:
        case CreateCohort():
            return create(state, command, index)
        case ChangeCohort():
            return change(state, command, index), Done()
        case DeleteCohort():
            return cohort_rules.without_cohort(state, state.cohorts[command.cohort]), Done()
        case RegisterMembers():
            return register(state, command, index)
        case RemoveMembers():
            return remove(state, command)
        case PublishPlan():
            return publish(state, command)
        case MarkDrained():
            return mark_drained(state, command)
        case SeekCohort():
            return seek(state, command, index)
        case MarkBegun():
            return mark_begun(state, command)


# ---- the cohort -------------------------------------------------------------------------------------


def create(state: MetadataState, command: CreateCohort, index: Index) -> tuple[MetadataState, Result]:
    names = state.cohort_names.get(command.topic, {})
    if command.name in names:
        return state, CohortCreated(cohort=names[command.name], already=True)
    topic, number = state.topics[command.topic], drawn(index, 0)
    cohort = Cohort(
        cohort=CohortId(number),
        topic=command.topic,
        name=command.name,
        mode=command.mode,
        settings=command.settings,
        start=CohortStart(kind=command.start),
        incarnation=Incarnation(number),
        layout_version=topic.layout.version,
        resetting=(
            tuple(sorted(part.partition for part in topic.layout.active()))
            if command.start is StartKind.LATEST
            else ()
        ),
        idle_since_ms=max(state.time_ms, 1),
        changed=index,
    )
    created = replace(
        cohort_rules.with_cohort(state, cohort),
        cohort_names={**state.cohort_names, command.topic: {**names, command.name: cohort.cohort}},
    )
    return created, CohortCreated(cohort=cohort.cohort, already=False)


def change(state: MetadataState, command: ChangeCohort, index: Index) -> MetadataState:
    cohort = state.cohorts[command.cohort]
    if command.settings == cohort.settings:
        return state
    return cohort_rules.with_cohort(state, replace(cohort, settings=command.settings, changed=index))


# ---- members ----------------------------------------------------------------------------------------


def register(state: MetadataState, command: RegisterMembers, index: Index) -> tuple[MetadataState, Result]:
    """Register the items one after the other: a later one meets what an earlier one has changed."""
    total = sum(map(len, state.cohort_members.values()))
    changed = dict[CohortId, dict[str, Member]]()
    others: list[NotRegistered] = []
    for place, item in enumerate(command.members):
        members = changed.get(item.cohort) or dict(members_of(state, item.cohort))
        known = members.get(item.name)
        why = registration_fault(state, item, members, total)
        if why is not None:
            others.append(NotRegistered(place, why, MemberSession(0) if known is None else known.session))
            continue
        total += known is None
        members[item.name] = _registered(known, item, MemberSession(drawn(index, place)), state.time_ms)
        changed[item.cohort] = members
    for cohort, members in changed.items():
        state = _with_members(state, cohort, members)
    return state, MembersRegistered(others=tuple(others))


def registration_fault(
    state: MetadataState, item: Registration, members: dict[str, Member], total: int
) -> RegistrationOutcome | None:
    """Why an item gets no new session; None if it gets one. `total` counts members of all cohorts."""
    known = members.get(item.name)
    if item.cohort not in state.cohorts:
        return RegistrationOutcome.UNKNOWN
    if known is not None and known.instance == item.instance:
        return RegistrationOutcome.SAME
    if known is not None and item.instance in known.replaced:
        return RegistrationOutcome.FENCED
    if item.after != (0 if known is None else known.session):
        return RegistrationOutcome.CONFLICT
    is_full = len(members) >= limit(state, "cohort_members_max") or total >= limit(state, "members_max")
    return RegistrationOutcome.LIMIT if known is None and is_full else None


def _registered(known: Member | None, item: Registration, session: MemberSession, time_ms: int) -> Member:
    """The member with a new session. Slices are by name: a process that replaces another one keeps it."""
    replaced = () if known is None else (*known.replaced, known.instance)[-REPLACED_MAX:]
    return Member(
        session=session,
        instance=item.instance,
        home=item.home,
        since_ms=time_ms,
        slice=() if known is None else known.slice,
        replaced=replaced,
    )


def _with_members(state: MetadataState, number: CohortId, members: dict[str, Member]) -> MetadataState:
    """The state with these members, and with the time since when the cohort has none."""
    state = cohort_rules.with_members(state, number, members)
    cohort = state.cohorts[number]
    if (cohort.idle_since_ms == 0) == bool(members):
        return state
    return cohort_rules.with_cohort(
        state, replace(cohort, idle_since_ms=cohort_rules.is_idle_since(state, number))
    )


def remove(state: MetadataState, command: RemoveMembers) -> tuple[MetadataState, Result]:
    changed, count, moved = dict[CohortId, dict[str, Member]](), 0, set[CohortId]()
    for item in command.members:
        members = changed[item.cohort] if item.cohort in changed else dict(members_of(state, item.cohort))
        known = members.get(item.name)
        if known is None or known.session != item.session:
            continue
        count += 1
        if known.slice:
            moved.add(item.cohort)
        del members[item.name]
        changed[item.cohort] = members
    for number, members in changed.items():
        state = _with_members(state, number, members)
        if number in moved:
            state = _with_next_generation(state, state.cohorts[number])
    return state, ItemsTaken(count=count)


def _with_next_generation(state: MetadataState, cohort: Cohort) -> MetadataState:
    return cohort_rules.with_cohort(state, replace(cohort, generation=cohort.generation + 1))


# ---- the plan ---------------------------------------------------------------------------------------


def publish(state: MetadataState, command: PublishPlan) -> tuple[MetadataState, Result]:
    cohort = state.cohorts[command.cohort]
    members = dict(members_of(state, command.cohort))
    for made in command.changes:
        members[made.member] = _with_slice(members[made.member], made)
    state = cohort_rules.with_members(state, command.cohort, members)
    return _with_next_generation(state, cohort), PlanPublished(generation=cohort.generation + 1)


def _with_slice(member: Member, made: SliceChange) -> Member:
    return replace(member, slice=tuple(sorted({*member.slice, *made.add} - {*made.remove})))


# ---- progress ---------------------------------------------------------------------------------------


def mark_drained(state: MetadataState, command: MarkDrained) -> tuple[MetadataState, Result]:
    """Take the items one after the other: a parent and its child may be in one entry."""
    count = 0
    for number in sorted({item.cohort for item in command.marks}):
        cohort = state.cohorts.get(number)
        if cohort is None:
            continue
        parts = state.topics[cohort.topic].layout.by_id()
        for item in command.marks:
            if item.cohort == number and is_mark_due(state, cohort, parts, item):
                state = _with_mark(state, cohort, item)
                count += 1
    return state, ItemsTaken(count=count)


def is_mark_due(
    state: MetadataState, cohort: Cohort, parts: dict[PartitionId, Partition], item: Drained
) -> bool:
    """Whether a drained partition is noted: of this incarnation, SEALED, its parents drained (CD3), and not
    noted yet.
    """
    part = parts.get(item.partition)
    return (
        part is not None
        and not part.is_active
        and item.incarnation == cohort.incarnation
        and not is_through(state, cohort, part)
        and not waits_for(state, cohort, parts, part)
    )


def _with_mark(state: MetadataState, cohort: Cohort, item: Drained) -> MetadataState:
    """The state with the mark. What was pruned in front of the partition is not told any more."""
    number = cohort.cohort
    marks = state.drained_marks.get(number, ())
    state = cohort_rules.with_marks(state, number, (*marks, DrainedMark(item.partition, item.read)))
    notes = state.pruned_notes.get(number, {})
    if item.partition not in notes:
        return state
    left = {child: note for child, note in notes.items() if child != item.partition}
    return cohort_rules.with_notes(state, number, left)


def seek(state: MetadataState, command: SeekCohort, index: Index) -> tuple[MetadataState, Result]:
    """Begin again: marks and notes of before are gone, and gates wait until all relatives have begun."""
    cohort = state.cohorts[command.cohort]
    topic = state.topics[cohort.topic]
    waiting = {*cohort.resetting} | {
        part.partition
        for part in topic.layout.partitions
        if part.is_active or not is_through(state, cohort, part)
    }
    sought = replace(
        cohort,
        start=cohort_starts.resolved(topic, command),
        incarnation=Incarnation(drawn(index, 0)),
        layout_version=topic.layout.version,
        generation=cohort.generation + 1,
        resetting=tuple(sorted(waiting)),
    )
    state = cohort_rules.with_marks(cohort_rules.with_cohort(state, sought), cohort.cohort, ())
    state = cohort_rules.with_notes(state, cohort.cohort, {})
    return state, CohortSought(incarnation=sought.incarnation)


def mark_begun(state: MetadataState, command: MarkBegun) -> tuple[MetadataState, Result]:
    count = 0
    for number in sorted({item.cohort for item in command.marks}):
        cohort = state.cohorts.get(number)
        if cohort is None:
            continue
        begun = {item.partition for item in command.marks if is_begun_due(state, cohort, item)}
        if begun:
            left = tuple(partition for partition in cohort.resetting if partition not in begun)
            state = cohort_rules.with_cohort(state, replace(cohort, resetting=left))
            count += len(begun)
    return state, ItemsTaken(count=count)


def is_begun_due(state: MetadataState, cohort: Cohort, item: Begun) -> bool:
    """Whether a beginning is noted: of this incarnation, still awaited, and told by the owner of now.

    An owner that was replaced does not count: without a record in the log its successor would not know of it.
    """
    if (item.cohort, item.incarnation) != (cohort.cohort, cohort.incarnation):
        return False
    if not has_partition(cohort.resetting, item.partition):
        return False
    topic = state.topics[cohort.topic]
    log = heir(topic.layout.by_id(), item.partition)
    return topic.assignments[log].epoch == item.epoch
