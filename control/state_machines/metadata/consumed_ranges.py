"""Positions of a cohort inside the commit of a scope: what a COMMIT must name, what is due after it. Pure.

The owner of a gate locks it in its memory for a member's attempt (a claim). The lock belongs to the owner
epoch of the log that has the gate, and epochs are drawn by the metadata log: so a COMMIT whose entry names
the epochs of now was seen claimed by the owners of now (CT5). Rows come first: no position is due before
all rows of its commit have their offsets (CT4).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final, NamedTuple

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from ringfence.control.model.cohorts import COHORT_LEVEL, Cohort, CohortMode
from ringfence.control.model.ids import PartitionId, ScopeId
from ringfence.control.model.results import Refused
from ringfence.control.model.scopes import Consumed, ConsumedRange
from ringfence.control.model.state import MetadataState
from ringfence.control.model.text import listed
from ringfence.control.model.topics import Replica
from ringfence.control.state_machines.metadata.cohort_lineage import heir, members_of
from ringfence.control.state_machines.metadata.refusals import invalid, unknown_cohort, unknown_topic
from ringfence.control.state_machines.metadata.scope_owners import claiming_cohort
from ringfence.native.wire import Code

# Claims of one commit: the most partitions of a topic; 200 KiB of an entry of at most 1 MiB.
CLAIMS_MAX: Final = 4_096
# Offsets and holds are 63-bit numbers, as MessagePack and the engine have them.
NUMBER_MAX: Final = (1 << 63) - 1
NAMED: Final = 8


# ---- the entry --------------------------------------------------------------------------------------


def commit_fault(
    state: MetadataState, scope: str, consumed: Consumed, tokens: Collection[bytes]
) -> Refused | None:
    """The refusal of a commit for what it says to have consumed; None if it may be decided (CT5).

    `scope`: the name of the commit's scope.
    """
    fault = level_fault(state) or form_fault(consumed, tokens)
    if fault is not None:
        return fault
    if consumed.topic not in state.topics:
        return unknown_topic(consumed.topic)
    cohort = state.cohorts.get(consumed.cohort)
    if cohort is None or cohort.topic != consumed.topic:
        return unknown_cohort(consumed.cohort)
    return (
        scope_fault(scope, consumed)
        or mode_fault(cohort)
        or incarnation_fault(cohort, consumed)
        or session_fault(state, cohort, consumed)
        or owners_fault(state, cohort, consumed)
    )


def level_fault(state: MetadataState) -> Refused | None:
    if state.level >= COHORT_LEVEL:
        return None
    message = (
        f"the cluster's level is {state.level}, commits with what was consumed need {COHORT_LEVEL}: run "
        "`ringfence cluster finalize` once all nodes have the new program"
    )
    return Refused(code=Code.UNSUPPORTED_VERSION, message=message)


def form_fault(consumed: Consumed, tokens: Collection[bytes]) -> Refused | None:
    """The fault of what can be told without the state."""
    if not 0 < len(consumed.ranges) <= CLAIMS_MAX:
        return invalid(f"a commit that consumed {len(consumed.ranges)} ranges: 1 to {CLAIMS_MAX}")
    if consumed.token not in tokens:
        return invalid("the claims' token is not among the tokens of the commit")
    before = PartitionId(-1)
    for one in consumed.ranges:
        if one.partition <= before:
            return invalid(f"consumed partition {one.partition} is out of order, or named twice")
        if not 0 <= one.first < one.through <= NUMBER_MAX:
            return invalid(
                f"consumed partition {one.partition}: rows {one.first} to {one.through} are none; `through` "
                "is the offset after the last one"
            )
        if not (0 < one.hold <= NUMBER_MAX and one.epoch > 0):
            return invalid(f"consumed partition {one.partition}: hold {one.hold}, epoch {one.epoch}")
        before = one.partition
    return None


def scope_fault(scope: str, consumed: Consumed) -> Refused | None:
    """Refuse positions of a cohort in a commit of a scope that is not the cohort's (CT10)."""
    if claiming_cohort(scope) == consumed.cohort:
        return None
    return invalid(
        f"scope {scope[:300]!r} settles nothing of cohort {consumed.cohort}: a commit of what its members "
        f"consumed has a scope consume/{consumed.cohort}/..."
    )


def mode_fault(cohort: Cohort) -> Refused | None:
    if cohort.mode is CohortMode.STREAM:
        return None
    return invalid(
        f"cohort {cohort.name!r} is {cohort.mode}: only positions of a STREAM cohort take part in a commit"
    )


def incarnation_fault(cohort: Cohort, consumed: Consumed) -> Refused | None:
    if cohort.incarnation == consumed.incarnation:
        return None
    message = (
        f"cohort {cohort.name!r} was sought: its incarnation is {cohort.incarnation}, the rows were read in "
        f"{consumed.incarnation}; nothing was committed, read from the new beginning"
    )
    return Refused(code=Code.CONFLICT, message=message)


def session_fault(state: MetadataState, cohort: Cohort, consumed: Consumed) -> Refused | None:
    members = members_of(state, cohort.cohort)
    if any(member.session == consumed.session for member in members.values()):
        return None
    message = (
        f"cohort {cohort.name!r} has no member with session {consumed.session}: it left, was removed or was "
        "replaced; nothing was committed, the rows go to others"
    )
    return Refused(code=Code.FENCED_MEMBER, message=message)


def owners_fault(state: MetadataState, cohort: Cohort, consumed: Consumed) -> Refused | None:
    """Refuse claims that were seen at an owner of before: it may be gone, and its lock with it."""
    topic = state.topics[cohort.topic]
    parts = topic.layout.by_id()
    missing = [one.partition for one in consumed.ranges if one.partition not in parts]
    if missing:
        message = f"topic {topic.name!r} has no partitions {listed(missing, NAMED)} that were consumed"
        return Refused(code=Code.UNKNOWN_PARTITION, message=message)
    moved = [
        one.partition
        for one in consumed.ranges
        if topic.assignments[heir(parts, one.partition)].epoch != one.epoch
    ]
    if not moved:
        return None
    message = (
        f"the gates of partitions {listed(moved, NAMED)} have other owners than those that were asked; "
        "nothing was committed: claim again, then commit"
    )
    return Refused(code=Code.STALE_CLAIM, message=message)


def without(consumed: Consumed | UnsetType, settled: Collection[PartitionId]) -> Consumed | UnsetType:
    """What is left when these partitions are confirmed; UNSET once nothing is."""
    if consumed is UNSET or not settled:
        return consumed
    left = tuple(one for one in consumed.ranges if one.partition not in settled)
    if len(left) == len(consumed.ranges):
        return consumed
    return replace(consumed, ranges=left) if left else UNSET


# ---- what is due ------------------------------------------------------------------------------------


class DuePosition(NamedTuple):
    """A position of a decided commit whose gate is to write it, or that will never be written.

    `log` is the partition whose log has the gate; 0 if the position is gone (CT7).
    """

    scope: ScopeId
    epoch: int
    consumed: Consumed
    range: ConsumedRange
    log: PartitionId = PartitionId(0)

    @property
    def is_gone(self) -> bool:
        return self.log == 0


def due_positions(state: MetadataState, here: Replica | None = None) -> Iterator[DuePosition]:
    """Positions that the gates of `here` are to write, and those that are gone. None: of all stores.

    Of a commit with unpublished rows only those that are gone (CT4). Scopes and partitions ascend, and the
    commits of one scope keep their order.
    """
    for number, scope in sorted(state.scopes.items()):
        for commit in scope.pending:
            if commit.consumed is UNSET:
                continue
            for one, log in _gates_of(state, commit.consumed):
                due = DuePosition(number, commit.epoch, commit.consumed, one, log)
                is_due = due.is_gone or (not commit.parts and here in (None, _owner(state, due)))
                if is_due:
                    yield due


def _gates_of(state: MetadataState, consumed: Consumed) -> Iterator[tuple[ConsumedRange, PartitionId]]:
    """The ranges, each with the partition whose log has the gate; 0: there is no such gate any more."""
    topic, cohort = state.topics.get(consumed.topic), state.cohorts.get(consumed.cohort)
    is_gone = topic is None or cohort is None or cohort.incarnation != consumed.incarnation
    parts = {} if is_gone or topic is None else topic.layout.by_id()
    for one in consumed.ranges:
        yield one, heir(parts, one.partition) if one.partition in parts else PartitionId(0)


def _owner(state: MetadataState, due: DuePosition) -> Replica:
    return state.topics[due.consumed.topic].assignments[due.log].owner
