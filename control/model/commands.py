"""Commands of the metadata log: tagged MessagePack maps, so that a later version may add fields.

A command carries every decision that its proposer took (ranges, placement, columns of a schema): applying
it needs neither a clock nor a library. Added fields have defaults. Tags are never reused.
"""

from __future__ import annotations

from msgspec import UNSET, UnsetType, field

from ringfence.control.model.base import CommandBase
from ringfence.control.model.cohort_commands import CohortCommand
from ringfence.control.model.ids import Epoch, Index, NodeId, PartitionId, TopicId
from ringfence.control.model.layout_commands import LayoutCommand
from ringfence.control.model.node_commands import NodeCommand, RingCommand
from ringfence.control.model.ranges import SlotRange
from ringfence.control.model.reassignment_commands import ChangeCommand
from ringfence.control.model.rebalance_commands import RebalanceCommand
from ringfence.control.model.schemas import Column
from ringfence.control.model.scopes import ScopeCommand
from ringfence.control.model.tokens import Role


class InitCluster(CommandBase, frozen=True, kw_only=True, tag="init_cluster"):
    """The first entry of a history: names the cluster and its first node, and opens that node's session.

    With `nodes_min` above 1 the ring, and with it the first topic, waits for that many nodes. `level` is
    the newest one that the first node's program knows; programs without levels left it out.
    """

    cluster: bytes
    history: bytes
    node: NodeId
    store: bytes
    nodes_min: int = 1
    level: int = 0


class RestartNode(CommandBase, frozen=True, kw_only=True, tag="restart_node"):
    """A node has started: each partition that it owns on this store gets this entry's index as owner epoch.

    The entry also opens the node's session, so that a start costs one entry. Other nodes reach it at the
    addresses; `None` keeps a present value. A FAILED or JOINING node becomes LIVE. `witness` is the number
    that its log's directory now has (from level 1 on).

    Compare-and-set on `after`, the entry of the node's last start (0: none). Older programs give None,
    which matches any last start. `level` is the newest one that the program knows; one below the cluster's
    is refused.
    """

    node: NodeId
    store: bytes
    addresses: tuple[str, ...]
    program: str
    control: tuple[str, ...] | None = None
    http: tuple[str, ...] | None = None
    zone: str | None = None
    labels: dict[str, str] | None = None
    after: Index | None = None
    level: int = 0
    witness: int | None = None


class SetAddresses(CommandBase, frozen=True, kw_only=True, tag="set_addresses"):
    """The node's addresses: ports that the system chose are known only once the node listens."""

    node: NodeId
    addresses: tuple[str, ...]
    control: tuple[str, ...] | None = None
    http: tuple[str, ...] | None = None


class OpenSession(CommandBase, frozen=True, kw_only=True, tag="open_session"):
    """Open a proposer's session: within it, a repeated command is applied once."""


class RaiseLevel(CommandBase, frozen=True, kw_only=True, tag="raise_level"):
    """All programs of the cluster know `level`, and all stores of `nodes` refuse older programs.

    Compare-and-set on the members: a node that has joined since was not asked.
    """

    level: int
    nodes: tuple[NodeId, ...]


class CreateTopic(CommandBase, frozen=True, kw_only=True, tag="create_topic"):
    """Create a topic with its first layout. Partition i gets `ranges[i]` and `nodes[i]`, the owner first."""

    name: str
    key: tuple[str, ...]
    schema: bytes
    columns: tuple[Column, ...]
    ranges: tuple[SlotRange, ...]
    nodes: tuple[tuple[NodeId, ...], ...]
    retention_bytes: int | None = None
    retention_ms: int | None = None
    properties: dict[str, str] = field(default_factory=dict)


class AddSchema(CommandBase, frozen=True, kw_only=True, tag="add_schema"):
    """Append to a topic's schemas. Compare-and-set: `schema_id` is the position that it expects."""

    topic: TopicId
    schema_id: int
    schema: bytes
    columns: tuple[Column, ...]


class TruncateTopic(CommandBase, frozen=True, kw_only=True, tag="truncate_topic"):
    """Raise log starts. A start below the present one changes nothing and is no error.

    `epochs` are the owner epochs whose logs the starts are about; programs of level 0 left them out.
    """

    topic: TopicId
    starts: dict[PartitionId, int]
    epochs: dict[PartitionId, Epoch] | UnsetType = UNSET


class DeleteTopic(CommandBase, frozen=True, kw_only=True, tag="delete_topic"):
    """Delete a topic. Its name is free immediately; its rows are removed as the holders drop them.

    `force`, from level 3 on: also if members of cohorts read it.
    """

    topic: TopicId
    force: bool | UnsetType = UNSET


class ConfirmDropped(CommandBase, frozen=True, kw_only=True, tag="confirm_dropped"):
    """A store has no rows of a deleted topic any more."""

    topic: TopicId
    store: bytes


class PurgeTopic(CommandBase, frozen=True, kw_only=True, tag="purge_topic"):
    """Remove a tombstone without holders."""

    topic: TopicId


class OpenProducers(CommandBase, frozen=True, kw_only=True, tag="open_producers"):
    """Draw `count` producer ids for one topic; their epoch is the entry's index."""

    topic: TopicId
    count: int


class OpenNamedProducer(CommandBase, frozen=True, kw_only=True, tag="open_named_producer"):
    """Raise a named producer's epoch to the entry's index.

    `spread`: True for the rule SPREAD. An entry has the field only from the level of layout changes on.
    """

    topic: TopicId
    name: str
    spread: bool | UnsetType = UNSET


class ConfirmNamedProducer(CommandBase, frozen=True, kw_only=True, tag="confirm_named_producer"):
    """An open of this name has written its epoch into every partition; a partition without an entry has lost
    it since.
    """

    topic: TopicId
    name: str
    epoch: Epoch


class ForgetNamedProducer(CommandBase, frozen=True, kw_only=True, tag="forget_named_producer"):
    """Forget a name. The next open of it draws a new id, so that entries of the old id do not count for it.

    Compare-and-set on `epoch`, which was written into every partition before: it fences the last process
    with the name.
    """

    topic: TopicId
    name: str
    epoch: Epoch


class SetConfig(CommandBase, frozen=True, kw_only=True, tag="set_config"):
    """Change limits of the cluster; keys of `values` are the names in `state_machines.metadata.config`."""

    values: dict[str, int]


class CreateToken(CommandBase, frozen=True, kw_only=True, tag="create_token"):
    """Create a token. The log has only the hash of its secret.

    `cohorts` restricts it to cohorts whose names begin so; below level 3 it is UNSET, as nothing knows it.
    """

    name: str
    hash: bytes
    role: Role
    expires_ms: int | None = None
    prefix: str = ""
    cohorts: str | UnsetType = UNSET


class RevokeToken(CommandBase, frozen=True, kw_only=True, tag="revoke_token"):
    """Revoke a token: its secret is refused from now on."""

    name: str


ClusterCommand = InitCluster | RestartNode | SetAddresses | OpenSession | SetConfig | RaiseLevel
TokenCommand = CreateToken | RevokeToken
TopicCommand = CreateTopic | AddSchema | TruncateTopic | DeleteTopic | ConfirmDropped | PurgeTopic
ProducerCommand = OpenProducers | OpenNamedProducer | ConfirmNamedProducer | ForgetNamedProducer
Command = (
    ClusterCommand
    | NodeCommand
    | RingCommand
    | TopicCommand
    | ProducerCommand
    | TokenCommand
    | ChangeCommand
    | LayoutCommand
    | RebalanceCommand
    | ScopeCommand
    | CohortCommand
)
