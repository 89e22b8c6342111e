"""Messages at a node's control address, from other nodes and administrators: requests and replies."""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, Struct

from ringfence.control.model.nodes import WEIGHT_DEFAULT
from ringfence.control.runtime.rpc.cohort_messages import CohortCall, CohortReply
from ringfence.control.runtime.rpc.layout_messages import (
    ChangeLayout,
    ExplainLayout,
    GatesOf,
    LayoutReply,
    ShowTransitions,
    SketchOf,
    TableOf,
    TellSealed,
)
from ringfence.control.runtime.rpc.message_base import Addresses, CallBase, Id, Number, ReplyBase, Text
from ringfence.control.state_machines.layout.messages import LayoutAnswer, LayoutOrder
from ringfence.control.state_machines.reassignment.messages import ReassignmentAnswer, ReassignmentOrder

PARTITIONS_MAX: Final = 4_096
# Orders per request: 40 KB, and as much of answers.
ORDERS_MAX: Final = 256

# An order to a node, of a reassignment or of a layout change, and its answer. Orders of layout changes exist
# from level 2 of the cluster on: programs of lower levels do not know their tags.
NodeOrder = ReassignmentOrder | LayoutOrder
NodeAnswer = ReassignmentAnswer | LayoutAnswer


class Join(CallBase, frozen=True, kw_only=True, tag="join"):
    """Register a store as a node of the cluster.

    `weight` 0 means the default weight. `body_bytes` is the largest body that the node accepts from clients,
    `stored_bytes` the largest that it has room for as a replica; both are 0 from an older program. `level` is
    the newest level of the program.
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


class ListNodes(CallBase, frozen=True, kw_only=True, tag="list_nodes"):
    """List all members in the metadata of the node that answers."""


class ChangeNode(CallBase, frozen=True, kw_only=True, tag="change_node"):
    """Change a member; `change` is one of `node_commands.NODE_CHANGES`."""

    node: Number
    change: Text


class AwaitExecution(CallBase, frozen=True, kw_only=True, tag="settle"):
    """Answer once this node has executed all orders up to the entry at `index`."""

    index: Number


class ShowExecutedIndex(CallBase, frozen=True, kw_only=True, tag="carried"):
    """Show the index up to which this node has executed its orders."""


class ListHosted(CallBase, frozen=True, kw_only=True, tag="hosted"):
    """List counters of this node's partitions of one topic; 0: of all topics."""

    topic: Number


class OpenProducer(CallBase, frozen=True, kw_only=True, tag="open_producer"):
    """Write a named producer's epoch into one partition that this node owns.

    `previous` is an earlier epoch that reached all partitions; 0 if there is none or the producer accepts a
    fresh start. Programs of level 0 ignore it; below level 1 it is 0.
    """

    topic: Number
    partition: Number
    producer: Number
    epoch: Number
    name: Annotated[bytes, Meta(max_length=1_024)]
    previous: Number = 0


class CountStaged(CallBase, frozen=True, kw_only=True, tag="count_staged"):
    """Count the rows staged under `tokens` in `parts` (topic, partition), which this node owns."""

    scope: Number
    epoch: Number
    tokens: Annotated[tuple[Id, ...], Meta(max_length=16_384)]
    parts: Annotated[tuple[tuple[Number, Number], ...], Meta(max_length=256)]


class ExecuteOrder(CallBase, frozen=True, kw_only=True, tag="obey"):
    """Execute an order of the leader of `term`."""

    term: Number
    order: NodeOrder


class ExecuteOrders(CallBase, frozen=True, kw_only=True, tag="obey_many"):
    """Execute reassignment orders of the leader of `term`. Only in a cluster of level 1 and above."""

    term: Number
    orders: Annotated[tuple[ReassignmentOrder, ...], Meta(max_length=ORDERS_MAX)]


class ShowRebalance(CallBase, frozen=True, kw_only=True, tag="show_rebalance"):
    """Show the current rebalance with its moves, and earlier ones."""


class ShowRunRates(CallBase, frozen=True, kw_only=True, tag="show_run_rates"):
    """Show this node's windows of rates around the newest rebalances (`run_rates.Windows`)."""


class SteerRebalance(CallBase, frozen=True, kw_only=True, tag="steer_rebalance"):
    """Steer rebalances. `verb` is preview, start, pause, resume or cancel.

    `moves` are (partition, nodes), the owner first. `partitions` limits the action `reverse`; empty: all
    partitions of the newest run that can be reversed.
    """

    verb: Text
    action: Text = ""
    node: Number = 0
    moves: Annotated[tuple[tuple[Number, tuple[Number, ...]], ...], Meta(max_length=4_096)] = ()
    partitions: Annotated[tuple[Number, ...], Meta(max_length=4_096)] = ()


class ShowPartition(CallBase, frozen=True, kw_only=True, tag="show_partition"):
    """Show a partition's owner, replicas and reassignment; `here`: only this node's view."""

    partition: Number
    here: bool = False


class ForcePartition(CallBase, frozen=True, kw_only=True, tag="force_partition"):
    """End the failover `change` of a partition with `owner`; `accepts` names the loss that is accepted.

    `replicas`, if not empty, are the partition's nodes after that.
    """

    partition: Number
    change: Number
    owner: Number
    accepts: Annotated[str, Meta(max_length=1_000)]
    replicas: Annotated[tuple[Number, ...], Meta(max_length=5)] = ()


class GiveUpPart(CallBase, frozen=True, kw_only=True, tag="give_up_part"):
    """Give up the part of a committed epoch in a partition whose owner has lost rows of it."""

    partition: Number
    scope: Number
    epoch: Number


class ReleasePartition(CallBase, frozen=True, kw_only=True, tag="release_partition"):
    """Read the quarantined replicas of a partition again, and end their quarantine if they are sound.

    `here`: only the replica of the node that answers.
    """

    partition: Number
    here: bool = False


class Inspect(CallBase, frozen=True, kw_only=True, tag="inspect"):
    """Show one page of this store's partitions, with ids above `after`."""

    after: Number = 0


class InspectAll(CallBase, frozen=True, kw_only=True, tag="inspect_all"):
    """Check the invariants of the cluster; the node that answers asks all others."""


class ShowVersions(CallBase, frozen=True, kw_only=True, tag="show_versions"):
    """Show programs and levels of the nodes, and the newest level of this node's program."""


class PromiseLevel(CallBase, frozen=True, kw_only=True, tag="promise_level"):
    """Durably refuse programs below `level` from now on: the cluster is about to raise its level."""

    level: Number


class SaveRecording(CallBase, frozen=True, kw_only=True, tag="keep_events"):
    """Write a recording of the last consensus steps into the data directory."""


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
    | ShowRunRates
    | SteerRebalance
    | ShowPartition
    | ForcePartition
    | GiveUpPart
    | ReleasePartition
    | Inspect
    | InspectAll
    | ShowVersions
    | PromiseLevel
    | TableOf
    | GatesOf
    | TellSealed
    | ShowTransitions
    | SketchOf
    | ExplainLayout
    | ChangeLayout
    | CohortCall
)


class Refusal(ReplyBase, frozen=True, kw_only=True, tag="refusal"):
    code: int
    message: Annotated[str, Meta(max_length=4_096)]
    retry_after_ms: int = 0


class Joined(ReplyBase, frozen=True, kw_only=True, tag="joined"):
    """The store's identity as a node; `peers` are control addresses of members, `level` is the cluster's."""

    cluster: Id
    history: Id
    node: Number
    peers: dict[int, Addresses]
    level: Number = 0


class NodeInfo(Struct, frozen=True, kw_only=True):
    """One member. `role` is the role in consensus: leader, voter, learner, or none.

    `partitions` counts the partitions that the node owns; `replicas` counts all of its replicas, owned ones
    included.
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


class Nodes(ReplyBase, frozen=True, kw_only=True, tag="nodes"):
    """The members. `index` and `hash` are of the metadata of the node that answers."""

    cluster: bytes
    node: int
    leader: int
    term: int
    index: int
    hash: str
    nodes: tuple[NodeInfo, ...]


class Done(ReplyBase, frozen=True, kw_only=True, tag="done"):
    """The request is done; `faults` name the orders that failed."""

    faults: tuple[str, ...] = ()


class Counters(ReplyBase, frozen=True, kw_only=True, tag="figures"):
    """Counters of partitions from the native node, or the record of a producer's last batch."""

    values: tuple[dict[str, Any], ...]


class StagedCount(Struct, frozen=True, array_like=True):
    """The staged rows of one partition: durable, in records below `upto`, at the owner of `epoch`.

    `is_published`: this epoch of the scope, or a later one, has offsets in the partition. `why` is not empty
    if the partition is not open here, or its staged rows are not durable yet.
    """

    rows: int = 0
    upto: int = 0
    epoch: int = 0
    is_published: bool = False
    why: Text = ""


class StagedCounts(ReplyBase, frozen=True, kw_only=True, tag="staged_counts"):
    """Counts in the order of the request's parts."""

    counts: tuple[StagedCount, ...]


class ExecutedIndex(ReplyBase, frozen=True, kw_only=True, tag="how_far"):
    """The index up to which the node has executed its orders."""

    index: int


class OrderAnswer(ReplyBase, frozen=True, kw_only=True, tag="obeyed"):
    """The answer to one order."""

    answer: NodeAnswer


class OrderAnswers(ReplyBase, frozen=True, kw_only=True, tag="obeyed_many"):
    """Answers in the order of the request; None for an order that is refused or not finished: repeat it."""

    answers: tuple[ReassignmentAnswer | None, ...]


class Document(ReplyBase, frozen=True, kw_only=True, tag="told"):
    """A view for people, as a JSON object."""

    value: dict[str, Any]


class Inspected(ReplyBase, frozen=True, kw_only=True, tag="inspected"):
    """One page of a store's partition counters, in the order of ids; `more`: there are further pages.

    `at` and `digest` are the newest hashed metadata index and its hash. `broken` names an invariant that the
    node's metadata breaks; it is checked for the first page only.
    """

    store: Id
    at: int
    digest: str
    broken: str | None
    values: tuple[dict[str, Any], ...]
    more: bool


class RecordingSaved(ReplyBase, frozen=True, kw_only=True, tag="events_kept"):
    """The path of the recording on the node that answers."""

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
    | LayoutReply
    | CohortReply
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
