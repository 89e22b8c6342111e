"""MessagePack bodies of control requests and answers: with wire.toml the contract of client and node.

Bodies are maps with string keys. Unknown keys are ignored (a newer peer may send more), missing optional keys
get their defaults, and wrong types are refused. Callers check the length before they decode.
`docs/protocol.md` has bytes of each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from ringfence.native.struct_types import prepare_types

if TYPE_CHECKING:
    from collections.abc import Mapping


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all bodies."""


AnyMessage = TypeVar("AnyMessage", bound=Message)


# ---- handshake ------------------------------------------------------------------------------------


class Hello(Message):
    """HELLO: identifies the client. A node refuses another `cluster` or `history` (of an earlier READY).

    `features`: bits of `wire.Features`, what the client can do.
    """

    version_min: int
    version_max: int
    client: str
    cluster: bytes | None = None
    history: bytes | None = None
    credential: str | None = None
    features: int | UnsetType = UNSET


class Ready(Message):
    """READY: the first answer. The credit is in the answer's header.

    `features`: bits of `wire.Features`, what the node can do.
    """

    cluster: bytes
    history: bytes
    node: int
    store: bytes
    version_min: int
    version_max: int
    program: str
    message_bytes_max: int
    window: int
    heartbeat_ms: int
    credential_needed: bool = False
    features: int | UnsetType = UNSET


# ---- refusals and redirects -------------------------------------------------------------------------


class Refused(Message):
    """Body of REFUSED: a sentence for users, and the values in it."""

    message: str
    details: dict[str, Any] = msgspec.field(default_factory=dict)


class Redirected(Message):
    """Body of REDIRECT; version and epoch are in the header.

    Of a sealed partition: its `children`, the `version` that sealed it, and what of the sender is stored
    there. `stored` is the number of sequences of this producer epoch, or of batches under this token; absent
    where nobody can tell any more. `answers`: (sequence, first offset, rows) of the newest, oldest first.
    """

    owner: int
    addresses: list[str]
    children: list[int] = msgspec.field(default_factory=list)
    offsets: list[int] = msgspec.field(default_factory=list)
    stored: int | UnsetType = UNSET
    answers: list[tuple[int, int, int]] | UnsetType = UNSET
    version: int | UnsetType = UNSET


# ---- topics and routing ---------------------------------------------------------------------------


class PartitionEntry(Message):
    """One partition of a table.

    `end_offset`, `sealed_ms`: of SEALED ones; the offset after the last row, and when they were sealed (Unix
    ms). `gone`: (partition, end offset) of parents that were pruned.
    """

    partition: int
    lo: int
    hi: int
    state: str  # ACTIVE | SEALED
    owner: int
    epoch: int
    parents: list[int] = msgspec.field(default_factory=list)
    children: list[int] = msgspec.field(default_factory=list)
    created_version: int = 0
    sealed_version: int = 0
    end_offset: int | UnsetType = UNSET
    sealed_ms: int | UnsetType = UNSET
    gone: list[tuple[int, int]] | UnsetType = UNSET


class NodeEntry(Message):
    node: int
    addresses: list[str]


class Table(Message):
    """Routing table of one topic: answer to TABLE, and body of TABLE_PUSH, with the same bytes."""

    topic: int
    name: str
    history: bytes
    generation: int
    version: int
    key: list[str]
    schemas: list[bytes]  # Arrow IPC schema messages, by schema id
    replication: int
    partitions: list[PartitionEntry]
    nodes: list[NodeEntry]
    # Only for topics without a key: bytes a second that each partition receives, if the load is known. A hint
    # that may be old, and the only field that may differ between two tables of one generation.
    loads: dict[int, int] = msgspec.field(default_factory=dict)


# Prefix of the properties that nodes interpret.
OWN_PROPERTIES: Final = "ringfence."
# Property of a topic: the event that its retention waits for. Without it, retention waits for nothing.
RETENTION: Final = "ringfence.retention"
# Value of RETENTION: nodes remove no rows by themselves; a compaction removes rows that its files have.
COMPACTED: Final = "compacted"


class TopicCreate(Message):
    name: str
    schema: bytes  # Arrow IPC schema message
    key: list[str] = msgspec.field(default_factory=list)
    partitions: int = 1
    replication: int = 1
    retention_bytes: int | None = None  # per partition; None = keep
    retention_ms: int | None = None
    properties: dict[str, str] = msgspec.field(default_factory=dict)
    exist_ok: bool = False


class TopicName(Message):
    """TOPIC_DESCRIBE."""

    name: str


class TopicDelete(Message):
    """TOPIC_DELETE. `force`: also if members of cohorts read the topic."""

    name: str
    force: bool | UnsetType = UNSET


class TopicTruncate(Message):
    name: str
    partition: int | None = None  # None = every partition
    before_offset: int | None = None  # None = up to the mark


class SchemaAdd(Message):
    name: str
    schema: bytes


class SchemaAdded(Message):
    schema_id: int


class PartitionStats(Message):
    partition: int
    name: str  # {lo:04x}-{hi:04x}-{id}
    lo: int
    hi: int
    state: str
    owner: int
    epoch: int
    start_offset: int
    end_offset: int
    bytes: int
    quarantined: str | None = None
    unknown: str | None = None  # reason for unknown offsets and bytes, which are 0 then; None: they are known


class TopicInfo(Message):
    """Answer to TOPIC_CREATE and TOPIC_DESCRIBE."""

    topic: int
    name: str
    version: int
    key: list[str]
    schema_messages: list[bytes] = msgspec.field(name="schemas")
    replication: int
    retention_bytes: int | None
    retention_ms: int | None
    properties: dict[str, str]
    partitions: list[PartitionStats]
    created: bool = False  # TOPIC_CREATE: False when it existed and exist_ok was set


class TopicList(Message):
    """TOPIC_LIST: the names that begin with `prefix` and come after `after`, sorted.

    `linearizable`: the answer has every topic whose creation any node had answered before this request.
    `cluster`: the answer has names instead of descriptions, and the nodes. `limit` does not count then.
    """

    prefix: str = ""
    after: str = ""
    limit: int = 1000
    linearizable: bool = False
    cluster: bool | UnsetType = UNSET


class Topics(Message):
    """Answer to TOPIC_LIST.

    Of a `cluster` request: `names`, as (id, name), the nodes of the cluster, and the index of the metadata
    that both are of.
    """

    topics: list[TopicInfo]
    more: bool = False
    names: list[tuple[int, str]] | UnsetType = UNSET
    nodes: list[NodeEntry] | UnsetType = UNSET
    generation: int | UnsetType = UNSET


# ---- producers --------------------------------------------------------------------------------------


class ProducerOpen(Message):
    """PRODUCER_OPEN: a new identity for exactly-once appends; one request may get `count` unnamed ids.

    `accept_fresh_start`: partitions that lost their entry of the named producer treat it as new. `spread`,
    for a topic without key: each send has the slot of its number, not that of the name.
    """

    topic: str
    name: str | None = None
    count: int = 1
    accept_fresh_start: bool = False
    spread: bool | UnsetType = UNSET


class ResumePoint(Message):
    """The last batch of earlier epochs of a named producer in one partition, or in some slots of it.

    `lo`, `hi`: the slots, inclusive; absent: all of the partition's.
    """

    partition: int
    sequence: int
    send: int
    note: bytes | None
    first_offset: int
    rows: int
    lo: int | UnsetType = UNSET
    hi: int | UnsetType = UNSET


class ProducerOpened(Message):
    """Ids `producer_id` .. `producer_id + count - 1`, all with epoch `producer_epoch`.

    `rule` of a name: 0 none, 1 line (all sends have the slot of the name), 2 spread.
    """

    producer_id: int
    producer_epoch: int
    resume: list[ResumePoint] = msgspec.field(default_factory=list)
    rule: int | UnsetType = UNSET


class Resolved(Message):
    """Answer to RESOLVE: the producer's last stored batch in a partition, and the window of answers."""

    producer_epoch: int | None
    sequence: int | None
    send: int | None
    # (sequence, first_offset, rows), oldest first
    answers: list[tuple[int, int, int]] = msgspec.field(default_factory=list)


# ---- status -----------------------------------------------------------------------------------------


class Status(Message):
    """Answer to STATUS; counters are documented in docs/operations.md.

    `leader`: the metadata leader in `term`, 0 for none. `role`: this node's role in the metadata group:
    leader, candidate, voter, learner or none. `members`: number of nodes in this node's metadata. `failed`:
    the members that have failed, in ascending order.
    """

    cluster: bytes
    history: bytes
    node: int
    store: bytes
    program: str
    state: str  # starting | serving | degraded | stopping
    reasons: list[str]
    addresses: list[str]
    uptime_s: float
    index: int
    topics: int
    partitions: int
    counters: dict[str, int]
    leader: int = 0
    term: int = 0
    role: str = "none"
    members: int = 0
    failed: list[int] = []


def encode(message: Message) -> bytes:
    return msgspec.msgpack.encode(message)


def decode(kind: type[AnyMessage], body: bytes | memoryview) -> AnyMessage:
    """`body` as `kind`. Raises msgspec.DecodeError, ValidationError; callers check its length first."""
    return msgspec.msgpack.decode(body, type=kind)


def prepare_messages(module: Mapping[str, object]) -> None:
    """Prepare the messages of a module, whose `globals()` these are: its last statement."""
    prepare_types(*(kind for kind in module.values() if isinstance(kind, type) and issubclass(kind, Message)))


prepare_messages(globals())
