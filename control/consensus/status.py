"""Copy the status of a node, for metrics, the admin API and decisions about members."""

from __future__ import annotations

from msgspec import Struct

from ringfence.control.consensus.core import Core, Role
from ringfence.control.consensus.messages import ConfigurationState
from ringfence.control.consensus.progress import ProgressState


class MemberStatus(Struct, frozen=True):
    """A member from the leader's view. `pending_snapshot` is the index of a snapshot being sent, or 0."""

    # The member's log equals the leader's up to this index.
    match: int
    next: int
    state: ProgressState
    is_learner: bool
    recent_active: bool
    paused: bool
    inflight_count: int
    pending_snapshot: int


class Status(Struct, frozen=True):
    """A node at one moment. `lead` is 0 if no leader is known; only a leader has `members`."""

    id: int
    term: int
    lead: int
    role: Role
    commit: int
    applied: int
    first_index: int
    last_index: int
    transferee: int
    uncommitted_bytes: int
    waiting_reads_count: int
    configuration: ConfigurationState
    members: dict[int, MemberStatus]


def status(core: Core) -> Status:
    """Copy the status: O(members) at the leader; elsewhere O(1), apart from the configuration."""
    log = core.log
    members = {}
    if core.role is Role.LEADER:
        for member, progress in core.tracker.progress.items():
            members[member] = MemberStatus(
                match=progress.match,
                next=progress.next,
                state=progress.state,
                is_learner=progress.is_learner,
                recent_active=progress.recent_active,
                paused=progress.is_paused(),
                inflight_count=len(progress.window),
                pending_snapshot=progress.pending_snapshot,
            )
    return Status(
        id=core.id,
        term=core.term,
        lead=core.lead,
        role=core.role,
        commit=log.commit,
        applied=log.applied,
        first_index=log.first_index(),
        last_index=log.last_index(),
        transferee=core.transferee,
        uncommitted_bytes=core.uncommitted_bytes,
        waiting_reads_count=len(core.reads),
        configuration=core.tracker.configuration.state(),
        members=members,
    )
