"""Invariants of scopes in one state, and of each step of them, as far as commits with `consumed` go.

The rules are those of docs/design/consumed.md: a commit waits while rows or positions of it are not confirmed
(CT7), and is decided only by the present owners, session and incarnation of what it consumed (CT5).
"""

from __future__ import annotations

from msgspec import UNSET

from ringfence.control.model.cohorts import COHORT_LEVEL, CohortMode
from ringfence.control.model.ids import PartitionId
from ringfence.control.model.layout import Partition
from ringfence.control.model.scopes import Consumed, PendingCommit, Scope
from ringfence.control.model.state import MetadataState


def check(state: MetadataState) -> None:
    """AssertionError names the first rule that `state` breaks."""
    for scope in state.scopes.values():
        epochs = [commit.epoch for commit in scope.pending]
        assert epochs == sorted({*epochs}), f"scope {scope.name!r}: pending epochs are out of order"
        for commit in scope.pending:
            assert commit.epoch <= scope.committed, f"scope {scope.name!r}: an open epoch is pending"
            if commit.consumed is not UNSET:
                _check_consumed(state, scope, commit, commit.consumed)


def _check_consumed(state: MetadataState, scope: Scope, commit: PendingCommit, consumed: Consumed) -> None:
    place = f"scope {scope.name!r}, epoch {commit.epoch}"
    assert state.level >= COHORT_LEVEL, f"{place}: consumed at level {state.level}"
    assert consumed.token in commit.tokens, f"CT6: {place}: the claims' token is not in the commit"
    partitions = [one.partition for one in consumed.ranges]
    assert partitions, f"CT7: {place}: confirmed, and still pending"
    assert partitions == sorted({*partitions}), f"{place}: consumed partitions are out of order"
    assert all(one.first < one.through for one in consumed.ranges), f"{place}: a range without rows"


def check_step(before: MetadataState, after: MetadataState) -> None:
    """AssertionError names the first rule that the step breaks."""
    check(after)
    for number, scope in after.scopes.items():
        old = before.scopes.get(number)
        earlier = {} if old is None else {commit.epoch: commit for commit in old.pending}
        for commit in scope.pending:
            known = earlier.get(commit.epoch)
            if known is not None:
                _check_pending(scope, known, commit)
            elif commit.consumed is not UNSET:
                _check_decided(before, scope, commit.consumed)
    for number, scope in before.scopes.items():
        assert number in after.scopes or not scope.pending, f"scope {scope.name!r} went with pending commits"


def _check_pending(scope: Scope, old: PendingCommit, new: PendingCommit) -> None:
    """Positions are confirmed and nothing else becomes of them."""
    if old.consumed is UNSET:
        assert new.consumed is UNSET, f"scope {scope.name!r}: epoch {new.epoch} consumes after its commit"
    elif new.consumed is not UNSET:
        assert {*new.consumed.ranges} <= {*old.consumed.ranges}, f"scope {scope.name!r}: positions appeared"


def _check_decided(before: MetadataState, scope: Scope, consumed: Consumed) -> None:
    cohort = before.cohorts.get(consumed.cohort)
    assert cohort is not None, f"CT5: scope {scope.name!r} decided for a cohort that does not exist"
    assert cohort.mode is CohortMode.STREAM, f"CT5: scope {scope.name!r} decided for {cohort.mode}"
    assert cohort.incarnation == consumed.incarnation, f"CT5: scope {scope.name!r}: a seek was passed over"
    members = before.cohort_members.get(consumed.cohort, {})
    assert consumed.session in {member.session for member in members.values()}, (
        f"CT5: scope {scope.name!r} decided for session {consumed.session}, which is not registered"
    )
    topic = before.topics[consumed.topic]
    parts = topic.layout.by_id()
    for one in consumed.ranges:
        assert topic.assignments[_log_of(parts, parts[one.partition])].epoch == one.epoch, (
            f"CT5: scope {scope.name!r}: the claim of {one.partition} was seen at another owner"
        )


def _log_of(parts: dict[PartitionId, Partition], part: Partition) -> PartitionId:
    """The ACTIVE descendant with the partition's lowest slot."""
    return next(
        number
        for number, one in parts.items()
        if one.is_active and one.slots.lo <= part.slots.lo <= one.slots.hi
    )
