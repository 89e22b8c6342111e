"""Append entries to the leader's own log, within a limit of bytes that are not yet applied."""

from __future__ import annotations

from collections.abc import Sequence

from ringfence.control.consensus.core import Core
from ringfence.control.consensus.messages import Entry, Message, MessageType
from ringfence.control.consensus.trace import Level


def append(core: Core, entries: Sequence[Entry]) -> bool:
    """Give `entries` term and index and append them; False if too much is uncommitted already."""
    if not _count_uncommitted(core, sum(len(entry.data) for entry in entries)):
        core.say(
            Level.WARN,
            "appending new entries to log would exceed uncommitted entry size limit; dropping proposal",
        )
        return False
    index, term = core.log.last_index(), core.term
    placed = [Entry(term, index + at, entry.type, entry.data) for at, entry in enumerate(entries, 1)]
    last = core.log.append(placed)
    # The leader counts its own copy once it is durable, like that of a follower.
    core.send(Message(type=MessageType.APPEND_ANSWER, to=core.id, sender=core.id, term=term, index=last))
    return True


def _count_uncommitted(core: Core, data_bytes: int) -> bool:
    # One proposal always fits. Empty entries (of a new leader, or to leave a joint state) cost nothing.
    total = core.uncommitted_bytes + data_bytes
    if core.uncommitted_bytes > 0 and data_bytes > 0 and total > core.options.uncommitted_bytes_max:
        return False
    core.uncommitted_bytes = total
    return True


def release_uncommitted(core: Core, data_bytes: int) -> None:
    """Release the bytes of applied entries. Entries of earlier leaders were never counted."""
    core.uncommitted_bytes = max(core.uncommitted_bytes - data_bytes, 0)
