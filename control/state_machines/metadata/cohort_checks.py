"""Check commands of cohorts, one question a function."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ringfence.control.model.cohort_commands import (
    ChangeCohort,
    CohortCommand,
    CreateCohort,
    DeleteCohort,
    MarkBegun,
    MarkDrained,
    PublishPlan,
    RegisterMembers,
    RemoveMembers,
    SeekCohort,
    SliceChange,
)
from ringfence.control.model.cohorts import (
    COHORT_LEVEL,
    DELIVERY_LIMIT,
    HANDOVER_MS,
    INSTANCE_BYTES,
    LEASE_MS,
    Cohort,
    CohortSettings,
    Member,
    StartKind,
    label_fault,
)
from ringfence.control.model.ids import PartitionId
from ringfence.control.model.layout import Partition
from ringfence.control.model.results import Refused
from ringfence.control.model.state import MetadataState
from ringfence.control.model.text import listed
from ringfence.control.state_machines.metadata.cohort_lineage import has_partition, members_of, plannable
from ringfence.control.state_machines.metadata.config import limit
from ringfence.control.state_machines.metadata.refusals import (
    conflict,
    invalid,
    stale,
    unknown_cohort,
    unknown_topic,
)
from ringfence.native.wire import Code

# Members of one entry: at 100 bytes each it stays small beside entries of other commands.
MEMBERS_OF_ENTRY_MAX: Final = 512
# Drained or begun partitions of one entry: five of them take 1,000 parents of 20 cohorts.
MARKS_OF_ENTRY_MAX: Final = 4_096
# Partitions that one plan entry gives and takes: 10 bytes each.
PLAN_PARTITIONS_MAX: Final = 16_384
# Partitions and members that a message names.
NAMED: Final = 8


def level_fault(state: MetadataState) -> Refused | None:
    """The refusal of every cohort command below its level: older programs cannot read it."""
    if state.level >= COHORT_LEVEL:
        return None
    return conflict(
        f"the cluster's level is {state.level}, cohorts need {COHORT_LEVEL}: run `ringfence cluster "
        "finalize` once all nodes have a program that knows it"
    )


def fault_of(state: MetadataState, command: CohortCommand) -> Refused | None:
    match command:
        case CreateCohort():
            return create_fault(state, command)
        case ChangeCohort():
            return change_fault(state, command)
        case DeleteCohort():
            return delete_fault(state, command)
        case RegisterMembers():
            return registrations_fault(command)
        case RemoveMembers():
            return size_fault(command.members, MEMBERS_OF_ENTRY_MAX, "members")
        case PublishPlan():
            return plan_fault(state, command)
        case SeekCohort():
            return seek_fault(state, command)
        case MarkDrained() | MarkBegun():
            return size_fault(command.marks, MARKS_OF_ENTRY_MAX, "partitions")


def size_fault(items: tuple[object, ...], most: int, noun: str) -> Refused | None:
    return None if 0 < len(items) <= most else invalid(f"{len(items)} {noun} in one entry: 1 to {most}")


# ---- the cohort -------------------------------------------------------------------------------------


def create_fault(state: MetadataState, command: CreateCohort) -> Refused | None:
    topic = state.topics.get(command.topic)
    if topic is None:
        return unknown_topic(command.topic)
    fault = label_fault(command.name, "cohort name")
    if fault is not None:
        return invalid(fault)
    if command.start is StartKind.POSITIONS:
        return invalid("a cohort begins at EARLIEST or LATEST; seek it to begin at positions")
    known = state.cohort_names.get(command.topic, {})
    if command.name in known:
        return same_fault(state.cohorts[known[command.name]], command)
    for name, count in (("cohorts_max", len(state.cohorts)), ("topic_cohorts_max", len(known))):
        if count >= limit(state, name):
            return invalid(f"there are {count} cohorts, the limit `{name}`; delete one, or raise it")
    return settings_fault(command.settings)


def same_fault(cohort: Cohort, command: CreateCohort) -> Refused | None:
    """The refusal to create a cohort that exists, unless it is the same."""
    if (cohort.mode, cohort.settings) == (command.mode, command.settings):
        return None
    return conflict(
        f"cohort {cohort.name!r} exists with mode {cohort.mode} and {_text(cohort.settings)}; the command "
        f"has mode {command.mode} and {_text(command.settings)}"
    )


def _text(settings: CohortSettings) -> str:
    return f"handover_ms={settings.handover_ms}, lease_ms={settings.lease_ms}, limit={settings.limit}"


def settings_fault(settings: CohortSettings) -> Refused | None:
    for name, value, (low, high) in (
        ("handover_ms", settings.handover_ms, HANDOVER_MS),
        ("lease_ms", settings.lease_ms, LEASE_MS),
        ("limit", settings.limit, DELIVERY_LIMIT),
    ):
        if not low <= value <= high:
            return invalid(f"{name}={value}: {low} to {high}")
    return None


def change_fault(state: MetadataState, command: ChangeCohort) -> Refused | None:
    cohort = state.cohorts.get(command.cohort)
    if cohort is None:
        return unknown_cohort(command.cohort)
    if command.mode is not cohort.mode:
        return conflict(
            f"cohort {cohort.name!r} has mode {cohort.mode}, which never changes; delete it and create it "
            f"with mode {command.mode}"
        )
    if command.settings != cohort.settings and command.expected != cohort.changed:
        return stale(
            f"the settings of cohort {cohort.name!r} are of version {cohort.changed}, the change is for "
            f"{command.expected}; read them again"
        )
    return settings_fault(command.settings)


def delete_fault(state: MetadataState, command: DeleteCohort) -> Refused | None:
    if command.topic not in state.topics:
        return unknown_topic(command.topic)
    known = state.cohort_names.get(command.topic, {}).get(command.name)
    if known is None:
        return unknown_cohort(command.name)
    if known == command.cohort:
        return None
    return stale(f"cohort {command.name!r} has the id {known}, not {command.cohort}: it was created again")


# ---- members ----------------------------------------------------------------------------------------


def registrations_fault(command: RegisterMembers) -> Refused | None:
    """Check the form of all items: nodes look at them before an entry, so one unsound item is a defect."""
    fault = size_fault(command.members, MEMBERS_OF_ENTRY_MAX, "members")
    if fault is not None:
        return fault
    for item in command.members:
        text = label_fault(item.name, "member name")
        if text is not None:
            return invalid(text)
        if len(item.instance) != INSTANCE_BYTES:
            return invalid(f"an instance of {len(item.instance)} bytes: {INSTANCE_BYTES}")
    return None


# ---- the plan ---------------------------------------------------------------------------------------


def plan_fault(state: MetadataState, command: PublishPlan) -> Refused | None:
    cohort = state.cohorts.get(command.cohort)
    if cohort is None:
        return unknown_cohort(command.cohort)
    if not cohort.mode.is_ordered:
        return invalid(f"cohort {cohort.name!r} has mode {cohort.mode}, which is not planned")
    if command.generation != cohort.generation:
        return stale(
            f"cohort {cohort.name!r} has generation {cohort.generation}, the plan was made on "
            f"{command.generation}; plan again"
        )
    members = members_of(state, cohort.cohort)
    # In this order: later checks rely on what earlier ones have established.
    return (
        _changes_fault(command.changes, members)
        or _removals_fault(command.changes, members)
        or _additions_fault(state, cohort, command.changes, members)
    )


def _changes_fault(changes: tuple[SliceChange, ...], members: Mapping[str, Member]) -> Refused | None:
    count = sum(len(change.add) + len(change.remove) for change in changes)
    if not all(change.add or change.remove for change in changes) or not count:
        return invalid("the plan changes nothing, or nothing of one of its members")
    if count > PLAN_PARTITIONS_MAX:
        return invalid(f"{count} partitions in one plan entry: at most {PLAN_PARTITIONS_MAX}")
    names = [change.member for change in changes]
    if len({*names}) != len(names):
        return invalid("the plan names a member twice")
    unknown = [name for name in names if name not in members]
    return invalid(f"members {listed(unknown, NAMED)} are not registered") if unknown else None


def _removals_fault(changes: tuple[SliceChange, ...], members: Mapping[str, Member]) -> Refused | None:
    for change in changes:
        known = members[change.member].slice
        wrong = [number for number in change.remove if not has_partition(known, number)]
        if wrong or len({*change.remove}) != len(change.remove):
            return invalid(
                f"member {change.member!r} does not have partitions {listed(wrong, NAMED)}, or one is named "
                "twice"
            )
    return None


def _additions_fault(
    state: MetadataState, cohort: Cohort, changes: tuple[SliceChange, ...], members: Mapping[str, Member]
) -> Refused | None:
    """Check that each partition that is added may be read, and is with one member after the entry."""
    parts = state.topics[cohort.topic].layout.by_id()
    holders = holders_of(members)
    for change in changes:
        for number in change.remove:
            del holders[number]
    for change in changes:
        for number in change.add:
            fault = _addition_fault(state, cohort, parts.get(number), number)
            if fault is not None:
                return fault
            if number in holders:
                return invalid(f"partition {number} would be with {holders[number]!r} and {change.member!r}")
            if number in change.remove:
                return invalid(f"the plan takes partition {number} from {change.member!r} and gives it back")
            holders[number] = change.member
    return None


def _addition_fault(
    state: MetadataState, cohort: Cohort, part: Partition | None, number: PartitionId
) -> Refused | None:
    if part is None:
        message = f"cohort {cohort.name!r}: its topic has no partition {number}; it may have been pruned"
        return Refused(code=Code.UNKNOWN_PARTITION, message=message)
    if plannable(state, cohort, part):
        return None
    return invalid(f"partition {number} is SEALED, and cohort {cohort.name!r} is through it")


def holders_of(members: Mapping[str, Member]) -> dict[PartitionId, str]:
    """The member that has each partition in its slice."""
    return {number: name for name, member in members.items() for number in member.slice}


# ---- seeks ------------------------------------------------------------------------------------------


def seek_fault(state: MetadataState, command: SeekCohort) -> Refused | None:
    cohort = state.cohorts.get(command.cohort)
    if cohort is None:
        return unknown_cohort(command.cohort)
    if command.incarnation != cohort.incarnation:
        return stale(
            f"cohort {cohort.name!r} is in incarnation {cohort.incarnation}, the seek is for "
            f"{command.incarnation}; look where it is and seek again"
        )
    if command.to is not StartKind.POSITIONS:
        named = bool(command.positions) or command.rest is not None
        return invalid(f"a seek to {command.to} names no positions") if named else None
    if command.rest is StartKind.POSITIONS:
        return invalid("partitions that are not named begin at EARLIEST or LATEST")
    return positions_fault(state, cohort, command)


def positions_fault(state: MetadataState, cohort: Cohort, command: SeekCohort) -> Refused | None:
    numbers = [position.partition for position in command.positions]
    fault = size_fault(command.positions, PLAN_PARTITIONS_MAX, "positions")
    if fault is not None:
        return fault
    if numbers != sorted({*numbers}):
        return invalid("positions are ascending by partition, each once")
    topic = state.topics[cohort.topic]
    parts = topic.layout.by_id()
    gone = {parent: child for child in parts for parent in topic.pruned_parents(child)}
    ends = {parent.partition: parent.offset for parent in gone}
    for number, offset, epoch in command.positions:
        part, seal = parts.get(number), topic.seal(number)
        if part is None:
            fault = _pruned_fault(number, offset, ends.get(number))
        elif offset < 0 or (seal is not None and offset > seal.end.offset):
            end = "its end" if seal is None else f"its end {seal.end.offset}"
            fault = invalid(f"partition {number}: offset {offset} is not between 0 and {end}")
        elif not 0 <= epoch <= topic.assignments[number].epoch:
            fault = invalid(f"partition {number}: owner epoch {epoch} was not drawn yet")
        if fault is not None:
            return fault
    return None


def _pruned_fault(number: PartitionId, offset: int, end: int | None) -> Refused | None:
    """Only a position at the end of a pruned partition says that nothing of it is missing."""
    if end == offset:
        return None
    where = "nothing is known of it" if end is None else f"it ended at {end}"
    return Refused(
        code=Code.TRUNCATED,
        message=f"partition {number} is not in the layout any more, and {where}; offset {offset} is gone; "
        "seek to its children, or to EARLIEST",
    )
