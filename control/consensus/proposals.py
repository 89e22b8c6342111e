"""Validate proposals at the leader: limits, and one change of the configuration at a time."""

from __future__ import annotations

from collections.abc import Sequence

from ringfence.control.consensus import (
    configuration_changes,
    configuration_rules,
    describe,
    leader_log,
    replication,
)
from ringfence.control.consensus.core import Core
from ringfence.control.consensus.errors import ProposalDroppedError
from ringfence.control.consensus.messages import NOBODY, Entry, EntryType
from ringfence.control.consensus.trace import Level


def propose(core: Core, entries: Sequence[Entry]) -> None:
    """Append entries at the leader and send them.

    Raises:
        ProposalDroppedError: the leader is no member any more, transfers leadership, or has too many
            uncommitted bytes.
        MalformedMessageError: an entry of the type of a change has no valid change.
    """
    if core.id not in core.tracker.progress:
        raise ProposalDroppedError(f"node {core.id} was removed from the configuration; propose elsewhere")
    if core.transferee != NOBODY:
        core.say(
            Level.DEBUG,
            f"[term {core.term}] transfer leadership to {core.transferee:x} is in progress; dropping "
            "proposal",
        )
        raise ProposalDroppedError(
            f"node {core.id} hands leadership to {core.transferee}; propose again in a moment"
        )
    pending_before = core.pending_change_index
    taken = False
    try:
        taken = leader_log.append(core, _with_changes_checked(core, entries))
    finally:
        if not taken:
            core.pending_change_index = pending_before
    if not taken:
        raise ProposalDroppedError(
            f"node {core.id} has {core.uncommitted_bytes} bytes that are not applied, "
            f"{core.options.uncommitted_bytes_max} is the limit; propose again later"
        )
    replication.broadcast_append(core)


def _with_changes_checked(core: Core, entries: Sequence[Entry]) -> Sequence[Entry]:
    if all(entry.type is EntryType.NORMAL for entry in entries):
        return entries
    checked = list(entries)
    for at, entry in enumerate(entries):
        if entry.type is EntryType.NORMAL:
            continue
        change = configuration_changes.from_entry(entry)
        reason = configuration_rules.why_not(core, change) if core.options.validate_changes else None
        if reason is None:
            core.pending_change_index = core.log.last_index() + 1 + at
            continue
        core.say(
            Level.INFO,
            f"ignoring conf change {describe.change(change)} at config "
            f"{describe.configuration(core.tracker.configuration)}: {reason}",
        )
        checked[at] = Entry()
    return checked
