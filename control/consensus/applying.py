"""React to applied entries: release limits, and leave a joint configuration."""

from __future__ import annotations

from collections.abc import Sequence

from ringfence.control.consensus import configuration_changes, describe, leader_log, proposals
from ringfence.control.consensus.core import Core, Role
from ringfence.control.consensus.errors import ProposalDroppedError
from ringfence.control.consensus.messages import Entry, Snapshot, size_bytes
from ringfence.control.consensus.trace import Level


def entries_applied(core: Core, entries: Sequence[Entry]) -> None:
    """Note that the entries handed out for applying have taken effect."""
    _applied_to(core, entries[-1].index, sum(size_bytes(entry) for entry in entries))
    leader_log.release_uncommitted(core, sum(len(entry.data) for entry in entries))


def snapshot_applied(core: Core, snapshot: Snapshot) -> None:
    """Note that a snapshot is durable and in use."""
    core.log.unstable.confirm_snapshot(snapshot.index)
    _applied_to(core, snapshot.index, 0)


def _applied_to(core: Core, index: int, bytes_count: int) -> None:
    # A snapshot may have overtaken entries that were still being applied.
    core.log.applied_to(max(index, core.log.applied), bytes_count)
    configuration = core.tracker.configuration
    if not configuration.auto_leave or core.role is not Role.LEADER:
        return
    if core.log.applied < core.pending_change_index:
        return
    # The proposal may be refused during a transfer of leadership; each applied entry tries it again.
    text = describe.configuration(configuration)
    try:
        proposals.propose(core, (configuration_changes.to_entry(configuration_changes.LEAVE_JOINT),))
    except ProposalDroppedError:
        core.trace(
            Level.DEBUG,
            f"not initiating automatic transition out of joint configuration {text}: raft proposal dropped",
        )
    else:
        core.trace(Level.INFO, f"initiating automatic transition out of joint configuration {text}")
