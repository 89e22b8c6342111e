"""Define entries, snapshots, hard states and messages, as frozen values.

The message types and their fields follow etcd's raft library (github.com/etcd-io/raft, raftpb), whose
interaction scripts replay against this package. Node ids are positive; 0 (`NOBODY`) means no node. The two
storage threads of asynchronous writes have negative ids, which no message from the network can have.
"""

from __future__ import annotations

import enum
from typing import Annotated, Final

from msgspec import Meta, Struct

NOBODY: Final = 0
APPEND_THREAD: Final = -1
APPLY_THREAD: Final = -2
# Ids, terms and indexes fit a signed 64-bit integer, like all ids of the cluster.
NUMBER_MAX: Final = (1 << 63) - 1

Number = Annotated[int, Meta(ge=0, le=NUMBER_MAX)]
# A node, no node, or a storage thread of this node; `codec` accepts nodes only.
Address = Annotated[int, Meta(ge=APPLY_THREAD, le=NUMBER_MAX)]


class EntryType(enum.IntEnum):
    """The kind of an entry's data: bytes of the application, or a change of the configuration."""

    NORMAL = 0
    # One operation, without joint consensus.
    CHANGE_V1 = 1
    # Any number of operations, with joint consensus if needed.
    CHANGE = 2


class MessageType(enum.IntEnum):
    """Kinds of messages. Their order has no meaning; numbers are never reused."""

    HUP = 0
    BEAT = 1
    PROPOSE = 2
    APPEND = 3
    APPEND_ANSWER = 4
    VOTE = 5
    VOTE_ANSWER = 6
    SNAPSHOT = 7
    HEARTBEAT = 8
    HEARTBEAT_ANSWER = 9
    UNREACHABLE = 10
    SNAPSHOT_STATUS = 11
    CHECK_QUORUM = 12
    TRANSFER = 13
    TIMEOUT_NOW = 14
    READ_INDEX = 15
    READ_INDEX_ANSWER = 16
    PRE_VOTE = 17
    PRE_VOTE_ANSWER = 18
    STORAGE_APPEND = 19
    STORAGE_APPEND_ANSWER = 20
    STORAGE_APPLY = 21
    STORAGE_APPLY_ANSWER = 22
    FORGET_LEADER = 23


# Messages that are never sent between nodes.
LOCAL: Final = frozenset(
    {
        MessageType.HUP,
        MessageType.BEAT,
        MessageType.UNREACHABLE,
        MessageType.SNAPSHOT_STATUS,
        MessageType.CHECK_QUORUM,
        MessageType.STORAGE_APPEND,
        MessageType.STORAGE_APPEND_ANSWER,
        MessageType.STORAGE_APPLY,
        MessageType.STORAGE_APPLY_ANSWER,
    }
)

# Messages that are accepted from nodes of the configuration only.
ANSWERS: Final = frozenset(
    {
        MessageType.APPEND_ANSWER,
        MessageType.VOTE_ANSWER,
        MessageType.HEARTBEAT_ANSWER,
        MessageType.UNREACHABLE,
        MessageType.READ_INDEX_ANSWER,
        MessageType.PRE_VOTE_ANSWER,
        MessageType.STORAGE_APPEND_ANSWER,
        MessageType.STORAGE_APPLY_ANSWER,
    }
)

# Promises: they may leave only once the promised entries, votes and terms are durable.
AFTER_APPEND: Final = frozenset(
    {MessageType.APPEND_ANSWER, MessageType.VOTE_ANSWER, MessageType.PRE_VOTE_ANSWER}
)


class Entry(Struct, frozen=True, array_like=True, gc=False):
    """An entry of the log. `term` and `index` are 0 until a leader has assigned them."""

    term: Number = 0
    index: Number = 0
    type: EntryType = EntryType.NORMAL
    data: bytes = b""


# Bytes of an entry in a message besides its data: two numbers of up to 9 bytes, type, length, list head.
ENTRY_OVERHEAD_BYTES: Final = 24


def size_bytes(entry: Entry) -> int:
    """Bytes that count against limits of messages and of what is being applied."""
    return len(entry.data) + ENTRY_OVERHEAD_BYTES


class HardState(Struct, frozen=True, array_like=True, gc=False):
    """The state that must survive a crash, besides the log. A lost `commit` alone does no harm."""

    term: Number = 0
    vote: Number = NOBODY
    commit: Number = 0


NO_HARD_STATE: Final = HardState()


class ConfigurationState(Struct, frozen=True, array_like=True):
    """A configuration in snapshots. Ids are in ascending order, unless a user wrote them."""

    voters: tuple[Number, ...] = ()
    voters_outgoing: tuple[Number, ...] = ()
    learners: tuple[Number, ...] = ()
    learners_next: tuple[Number, ...] = ()
    auto_leave: bool = False

    def includes(self, node: int) -> bool:
        return node in self.voters or node in self.learners or node in self.voters_outgoing


class Snapshot(Struct, frozen=True, array_like=True):
    """The effect of all entries up to `index`. `data` is opaque: the state, or a reference to it."""

    index: Number = 0
    term: Number = 0
    configuration: ConfigurationState = ConfigurationState()
    data: bytes = b""


class Message(Struct, frozen=True, array_like=True, kw_only=True, forbid_unknown_fields=True):
    """One message. `index` and `log_term` are a log position, with a meaning that depends on the type."""

    type: MessageType
    to: Address = NOBODY
    sender: Address = NOBODY
    term: Number = 0
    log_term: Number = 0
    index: Number = 0
    entries: tuple[Entry, ...] = ()
    commit: Number = 0
    vote: Number = NOBODY
    snapshot: Snapshot | None = None
    reject: bool = False
    reject_hint: Number = 0
    context: bytes = b""


class StorageMessage(Message, frozen=True, array_like=True, kw_only=True, forbid_unknown_fields=True):
    """Work for a storage thread. Once it is done, `responses` are delivered, in this order."""

    responses: tuple[Message, ...] = ()
