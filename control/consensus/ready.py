"""Define `Ready`, the orders of a node. The package's docstring has their order and possible overlaps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from ringfence.control.consensus.core import Role
from ringfence.control.consensus.messages import Entry, HardState, Message, MessageType, Snapshot
from ringfence.control.consensus.read_queue import ReadState

# Promises, and requests that claim a log: after a crash no node may have an answer about lost entries.
_WAIT_FOR_DISK: Final = frozenset(
    {
        MessageType.APPEND_ANSWER,
        MessageType.VOTE_ANSWER,
        MessageType.PRE_VOTE_ANSWER,
        MessageType.VOTE,
        MessageType.PRE_VOTE,
    }
)


class SoftState(Struct, frozen=True):
    """State that is not stored: the leader, and the role of this node."""

    lead: int
    role: Role


class Ready(Struct, frozen=True, kw_only=True):
    """Orders of one step, to be executed in the order of the fields. Empty fields order nothing."""

    soft_state: SoftState | None = None
    # Store the hard state; synced if `must_sync`.
    hard_state: HardState | None = None
    read_states: Sequence[ReadState] = ()
    # Append the entries, after `snapshot`; from the first one's index on they replace existing entries.
    entries: Sequence[Entry] = ()
    # Replace log and state by the snapshot, before `entries`, which then follow it.
    snapshot: Snapshot | None = None
    # Apply the entries, in order.
    committed: Sequence[Entry] = ()
    messages: Sequence[Message] = ()
    # True with entries, a new term or a vote; a commit index alone may be lost.
    must_sync: bool = False

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
        """Messages that may leave during the write: a leader's, questions, forwarded proposals."""
        return [message for message in self.messages if message.type not in _WAIT_FOR_DISK]

    def messages_after_sync(self) -> list[Message]:
        """Messages that must not leave before hard state, entries and snapshot are durable."""
        return [message for message in self.messages if message.type in _WAIT_FOR_DISK]
