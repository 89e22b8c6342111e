"""Questions that nodes and administrators put to a node at its control address: bodies and their limits."""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, Struct

from ringfence.control.model.nodes import WEIGHT_DEFAULT
from ringfence.control.state_machines.reassignment.messages import Answer, Order

Text = Annotated[str, Meta(max_length=256)]
Addresses = Annotated[tuple[Text, ...], Meta(max_length=16)]
Id = Annotated[bytes, Meta(min_length=16, max_length=16)]
Number = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
PARTITIONS_MAX: Final = 4_096
ORDERS_MAX: Final = 256
"""Orders of one question: 40 KB, and as much of answers."""


class _Call(Struct, frozen=True, kw_only=True, tag_field="call"):
    """Base of all questions."""


class Join(_Call, frozen=True, kw_only=True, tag="join"):
    """A store asks to be a node.

    `weight` 0: a usual node's. `body_bytes` is the largest body that it takes of clients, `stored_bytes` the
    largest that it has room for as a replica; 0 where it does not tell (an older program). `level` is the
    newest one that the program knows.
    """

    store: Id
    control: Addresses
    addresses: Addresses = ()
    program: Text = ""
    zone: Text = ""
    weight: Number = 0
    body_bytes: Number = 0
    stored_bytes: Number = 0
    level: Number = 0


class ListNodes(_Call, frozen=True, kw_only=True, tag="list_nodes"):
    """All members, as this node knows them."""


class ChangeNode(_Call, frozen=True, kw_only=True, tag="change_node"):
    """One of `node_changes.NODE_CHANGES` for a member."""

    node: Number
    change: Text


class AwaitExecution(_Call, frozen=True, kw_only=True, tag="settle"):
    """Answer once the orders of the entry at `index` are carried out here."""

    index: Number


class ShowExecutedIndex(_Call, frozen=True, kw_only=True, tag="carried"):
    """Up to which index orders are carried out here."""


class ListHosted(_Call, frozen=True, kw_only=True, tag="hosted"):
    """Figures of the partitions of one topic that are here."""

    topic: Number


class OpenProducer(_Call, frozen=True, kw_only=True, tag="open_producer"):
    """Write a named producer's epoch into one partition that is owned here.

    `previous` is an earlier epoch that reached all partitions, 0 where none is known or a fresh start is
    accepted. Programs of level 0 do not look at it; below level 1 it is 0.
    """

    topic: Number
    partition: Number
    producer: Number
    epoch: Number
    name: Annotated[bytes, Meta(max_length=1_024)]
    previous: Number = 0


class CountStaged(_Call, frozen=True, kw_only=True, tag="count_staged"):
    """What is staged under these tokens in partitions that are owned here: (topic, partition)."""

    scope: Number
    epoch: Number
    tokens: Annotated[tuple[Id, ...], Meta(max_length=16_384)]
    parts: Annotated[tuple[tuple[Number, Number], ...], Meta(max_length=256)]


class ExecuteOrder(_Call, frozen=True, kw_only=True, tag="obey"):
    """An order of the leader of `term` about a change."""

    term: Number
    order: Order


class ExecuteOrders(_Call, frozen=True, kw_only=True, tag="execute_many"):
    """Orders of the leader of `term` about changes; for nodes of a cluster of level 1 and above."""

    term: Number
    orders: Annotated[tuple[Order, ...], Meta(max_length=ORDERS_MAX)]


class ShowRebalance(_Call, frozen=True, kw_only=True, tag="show_rebalance"):
    """The run, its moves, and those before it."""


class SteerRebalance(_Call, frozen=True, kw_only=True, tag="steer_rebalance"):
    """`verb`: preview, start, pause, resume or cancel. `moves`: (partition, nodes, the owner first).

    `partitions` are those that action `reverse` is about; none: all of the newest run that can be reversed.
    """

    verb: Text
    action: Text = ""
    node: Number = 0
    moves: Annotated[tuple[tuple[Number, tuple[Number, ...]], ...], Meta(max_length=4_096)] = ()
    partitions: Annotated[tuple[Number, ...], Meta(max_length=4_096)] = ()


class ShowPartition(_Call, frozen=True, kw_only=True, tag="show_partition"):
    """Who has a partition and what changes it; `here`: as this node knows it, no other one is asked."""

    partition: Number
    here: bool = False


class ForcePartition(_Call, frozen=True, kw_only=True, tag="force_partition"):
    """End failover `change` of a partition: `owner` it is. `accepts` says what may be lost.

    `replicas`, if there are any, are the nodes from then on.
    """

    partition: Number
    change: Number
    owner: Number
    accepts: Annotated[str, Meta(max_length=1_000)]
    replicas: Annotated[tuple[Number, ...], Meta(max_length=5)] = ()


class GiveUpPart(_Call, frozen=True, kw_only=True, tag="give_up_part"):
    """A decided epoch is waited for no longer in a partition whose owner has lost rows of it."""

    partition: Number
    scope: Number
    epoch: Number


class Inspect(_Call, frozen=True, kw_only=True, tag="inspect"):
    """What this store has of partitions behind `after`."""

    after: Number = 0


class InspectAll(_Call, frozen=True, kw_only=True, tag="inspect_all"):
    """Whether the cluster keeps its invariants: this node asks all."""


class ShowVersions(_Call, frozen=True, kw_only=True, tag="show_versions"):
    """Programs and levels of the nodes as this one knows them, and the newest level of its own program."""


class PromiseLevel(_Call, frozen=True, kw_only=True, tag="promise_level"):
    """Refuse programs below `level` from now on, durably: the cluster is about to raise its level to it."""

    level: Number


class SaveRecording(_Call, frozen=True, kw_only=True, tag="keep_events"):
    """Write the last steps of consensus into the data directory."""


Call = (
    Join
    | ListNodes
    | ChangeNode
    | AwaitExecution
    | ShowExecutedIndex
    | ListHosted
    | OpenProducer
    | CountStaged
    | SaveRecording
    | ExecuteOrder
    | ExecuteOrders
    | ShowRebalance
    | SteerRebalance
    | ShowPartition
    | ForcePartition
    | GiveUpPart
    | Inspect
    | InspectAll
    | ShowVersions
    | PromiseLevel
)


class _Reply(Struct, frozen=True, kw_only=True, tag_field="reply"):
    """Base of all answers."""


class Refusal(_Reply, frozen=True, kw_only=True, tag="refusal"):
    code: int
    message: Annotated[str, Meta(max_length=4_096)]
    retry_after_ms: int = 0


class Joined(_Reply, frozen=True, kw_only=True, tag="joined"):
    """Who the store is from now on; `peers` are the members' control addresses, `level` is the cluster's."""

    cluster: Id
    history: Id
    node: Number
    peers: dict[int, Addresses]
    level: Number = 0


class NodeInfo(Struct, frozen=True, kw_only=True):
    """One member. `role` is what it is in consensus: leader, voter, learner, or none yet.

    `partitions` are those that it owns; `replicas` all that it has, these included.
    """

    node: int
    life: str
    role: str
    vote: str
    draining: bool
    in_ring: bool
    zone: str
    addresses: tuple[str, ...]
    control: tuple[str, ...]
    program: str
    partitions: int
    http: tuple[str, ...] = ()
    replicas: int = 0
    weight: int = WEIGHT_DEFAULT


class Nodes(_Reply, frozen=True, kw_only=True, tag="nodes"):
    """`index` and `hash` are of the metadata of the node that answered."""

    cluster: bytes
    node: int
    leader: int
    term: int
    index: int
    hash: str
    nodes: tuple[NodeInfo, ...]


class Done(_Reply, frozen=True, kw_only=True, tag="done"):
    """`faults` say what of it failed."""

    faults: tuple[str, ...] = ()


class Counters(_Reply, frozen=True, kw_only=True, tag="figures"):
    """A list of what the native node says of partitions, or of a producer's last batch."""

    values: tuple[dict[str, Any], ...]


class StagedCount(Struct, frozen=True, array_like=True):
    """Rows of one partition, durable and in records below `upto`, at the owner of `epoch`.

    `is_published`: this epoch of the scope, or a later one, has its offsets there. `why`: it is not open
    here, or what is staged is not durable yet.
    """

    rows: int = 0
    upto: int = 0
    epoch: int = 0
    is_published: bool = False
    why: Text = ""


class StagedCounts(_Reply, frozen=True, kw_only=True, tag="staged_counts"):
    """In the order of the question's parts."""

    counts: tuple[StagedCount, ...]


class ExecutedIndex(_Reply, frozen=True, kw_only=True, tag="how_far"):
    index: int


class OrderAnswer(_Reply, frozen=True, kw_only=True, tag="obeyed"):
    answer: Answer


class OrderAnswers(_Reply, frozen=True, kw_only=True, tag="obeyed_many"):
    """In the order of the question's; None for one that has no answer yet, or is refused: ask again."""

    answers: tuple[Answer | None, ...]


class Document(_Reply, frozen=True, kw_only=True, tag="told"):
    """What people are shown, as JSON has it."""

    value: dict[str, Any]


class Inspected(_Reply, frozen=True, kw_only=True, tag="inspected"):
    """One page of a store: figures of partitions in their order, and whether there are more.

    `at` and `digest` are of the newest metadata that was hashed; `broken` says what the node's metadata
    breaks, and is looked at for the first page.
    """

    store: Id
    at: int
    digest: str
    broken: str | None
    values: tuple[dict[str, Any], ...]
    more: bool


class RecordingSaved(_Reply, frozen=True, kw_only=True, tag="events_kept"):
    """Where they are, on the node that answered."""

    path: str


Reply = (
    Refusal
    | Joined
    | Nodes
    | Done
    | Counters
    | StagedCounts
    | RecordingSaved
    | ExecutedIndex
    | OrderAnswer
    | OrderAnswers
    | Document
    | Inspected
)

_ENCODER: Final = msgspec.msgpack.Encoder()
_CALLS: Final[msgspec.msgpack.Decoder[Call]] = msgspec.msgpack.Decoder(Call)
_REPLIES: Final[msgspec.msgpack.Decoder[Reply]] = msgspec.msgpack.Decoder(Reply)


def encode(body: Call | Reply) -> bytes:
    return _ENCODER.encode(body)


def decode_call(body: bytes) -> Call:
    """Raises msgspec.MsgspecError, RecursionError, UnicodeDecodeError."""
    return _CALLS.decode(body)


def decode_reply(body: bytes) -> Reply:
    """Raises as `decode_call`."""
    return _REPLIES.decode(body)
