"""What a node wants done: a Ready. In what order, and what may overlap, stands in the package's docstring."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from ringfence.control.consensus.core import Role
from ringfence.control.consensus.messages import Entry, HardState, Message, MessageType, Snapshot
from ringfence.control.consensus.reads import ReadState

_WAIT_FOR_DISK: Final = frozenset(
    {
        MessageType.APPEND_ANSWER,
        MessageType.VOTE_ANSWER,
        MessageType.PRE_VOTE_ANSWER,
        MessageType.VOTE,
        MessageType.PRE_VOTE,
    }
)
"""Promises, and requests that claim a log: after a crash nobody must hold an answer to what was lost."""


class SoftState(Struct, frozen=True):
    """What need not be stored, but may interest: who leads, and what this node is."""

    lead: int
    role: Role


class Ready(Struct, frozen=True, kw_only=True):
    """Orders of one step, in the order of the fields. Empty parts ask for nothing."""

    soft_state: SoftState | None = None
    hard_state: HardState | None = None
    """Store it; synced if `must_sync`."""
    read_states: Sequence[ReadState] = ()
    entries: Sequence[Entry] = ()
    """Append them; from the first one's index on they replace what is there. After `snapshot`."""
    snapshot: Snapshot | None = None
    """Install it in place of log and state, before `entries`, which then follow it."""
    committed: Sequence[Entry] = ()
    """Apply them, in order."""
    messages: Sequence[Message] = ()
    must_sync: bool = False
    """Entries, term or vote are in it; a commit index alone may be lost."""

    def __bool__(self) -> bool:
        return bool(
            self.soft_state is not None
            or self.hard_state is not None
            or self.read_states
            or self.entries
            or self.snapshot is not None
            or self.committed
            or self.messages
        )

    def messages_at_once(self) -> list[Message]:
        """Those that may leave while the disk is still writing.

        A leader's, questions, forwarded proposals.
        """
        return [message for message in self.messages if message.type not in _WAIT_FOR_DISK]

    def messages_after_sync(self) -> list[Message]:
        """Those that must not leave before hard state, entries and snapshot are durable."""
        return [message for message in self.messages if message.type in _WAIT_FOR_DISK]
