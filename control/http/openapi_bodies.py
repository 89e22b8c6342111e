"""Define the bodies of the admin API, for validation and for OpenAPI.

Unknown keys of requests are refused, so that a misspelt option is not silently ignored.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from ringfence.control.model.tokens import Role
from ringfence.control.state_machines.metadata.config import PROPERTIES_MAX
from ringfence.native.wire import COLUMNS_MAX

NUMBER_MAX: Final = (1 << 63) - 1
# base64 of 256 KiB, the limit of a topic's schemas.
SCHEMA_TEXT_MAX: Final = 360_000

Number = Annotated[int, Field(ge=1, le=NUMBER_MAX)]
Offset = Annotated[int, Field(ge=0, le=NUMBER_MAX)]
Name = Annotated[str, StringConstraints(min_length=1, max_length=255)]
# One of the three parts of a topic's name.
Segment = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-][A-Za-z0-9._-]*$", max_length=253)]


class _Given(BaseModel):
    """Base of requests: no unknown keys, no `"1"` for 1."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class ColumnGiven(_Given):
    name: Name
    type: Annotated[str, StringConstraints(min_length=1, max_length=200)] = Field(
        description="as pyarrow names it: int64, string, timestamp[us, UTC], decimal(15,2), list<string>"
    )
    nullable: bool = True


class SchemaGiven(_Given):
    """Either `columns` or `schema_ipc`, not both."""

    columns: Annotated[list[ColumnGiven], Field(min_length=1, max_length=COLUMNS_MAX)] | None = None
    schema_ipc: Annotated[str, StringConstraints(max_length=SCHEMA_TEXT_MAX)] | None = Field(
        default=None, description="an Arrow IPC schema message, base64"
    )


class TopicGiven(SchemaGiven):
    name: Annotated[str, StringConstraints(min_length=1, max_length=255)] = Field(
        description="`name`, which stands for `public/default/name`, or `tenant/namespace/name`"
    )
    key: Annotated[list[Name], Field(max_length=64)] = []
    partitions: Annotated[int, Field(ge=1, le=4_096)] = 1
    replication: Annotated[int, Field(ge=1, le=5)] = 1
    retention_bytes: Number | None = None
    retention_ms: Number | None = None
    properties: Annotated[
        dict[Name, Annotated[str, StringConstraints(max_length=8_192)]], Field(max_length=PROPERTIES_MAX)
    ] = {}


class TruncateGiven(_Given):
    """Without `partition`: every partition; without `before_offset`: all rows."""

    partition: Number | None = None
    before_offset: Offset | None = None


class ConfigGiven(_Given):
    values: Annotated[dict[Name, Offset], Field(min_length=1, max_length=64)]


class ForgetGiven(_Given):
    """The name of a producer or of a scope."""

    name: Name


class TokenGiven(_Given):
    """A token. The client keeps the secret and sends its SHA-256 only."""

    name: Name
    sha256: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
    role: Annotated[Role, Field(strict=False)]
    expires_ms: Annotated[int, Field(ge=1, le=(1 << 53) - 1)] | None = None
    prefix: Annotated[str, StringConstraints(max_length=255)] = Field(
        default="", description="restricts the token to topics whose full names begin so, as `acme/sales/`"
    )
    cohorts: Annotated[str, StringConstraints(max_length=64)] = Field(
        default="", description="restricts the token to cohorts whose names begin so"
    )


class Problem(BaseModel):
    """RFC 9457. Further members are the values that `detail` names."""

    model_config = ConfigDict(extra="allow")
    type: str
    title: str
    status: int
    detail: str
    instance: str | None = None


class Receipt(BaseModel):
    """A change that is committed at `index`. A repeat with the same key gets the same receipt."""

    index: int
    resource: str = Field(description="the path of the resource that was created or changed")
    topic: int | None = Field(default=None, description="the id of a topic that was created")
    pending: list[str] | None = Field(
        default=None, description="with 202: orders that did not succeed yet, with the reason"
    )


class Live(BaseModel):
    live: bool
    uptime_s: float


class Ready(BaseModel):
    state: str
    reasons: list[str]


class Status(BaseModel):
    """Identity, role and state of this node."""

    cluster: str
    history: str
    node: int
    store: str
    program: str
    state: Literal["starting", "serving", "degraded", "stopping"]
    reasons: list[str]
    leader: int = Field(description="the node that leads the metadata; 0: unknown")
    term: int
    role: str
    members: int = Field(description="number of nodes of the cluster, as this node knows it")
    failed: list[int] = Field(description="nodes that are marked as failed")
    index: int
    hash: str = Field(description="of the metadata at `hash_index`; equal on all nodes")
    hash_index: int
    addresses: list[str]
    control: str | None
    uptime_s: float
    topics: int
    partitions: int
    table: str = Field(description="UNASSIGNED while the cluster is below its minimum size; then ASSIGNED")
    counters: dict[str, int]


class NodeShown(BaseModel):
    node: int
    life: str
    role: str
    vote: str
    draining: bool
    in_ring: bool
    zone: str
    weight: int = Field(description="relative share of partitions; the default is 100")
    addresses: list[str]
    control: list[str]
    http: list[str]
    program: str
    partitions: int = Field(description="number of partitions that the node owns")
    replicas: int = Field(description="number of replicas on the node, owned partitions included")


class Nodes(BaseModel):
    leader: int
    term: int
    nodes: list[NodeShown]


class TopicSummary(BaseModel):
    topic: int
    name: str
    version: int
    partitions: int
    replication: int
    key: list[str]
    schemas: int
    retention_bytes: int | None
    retention_ms: int | None
    properties: dict[str, str]


class Topics(BaseModel):
    """A page of topics. `more`: repeat the request with `after` = the last name."""

    topics: list[TopicSummary]
    more: bool


class ColumnShown(BaseModel):
    name: str
    type: str
    nullable: bool


class PartitionStats(BaseModel):
    partition: int
    name: str
    lo: int
    hi: int
    state: str
    owner: int
    epoch: int
    start_offset: int | None
    end_offset: int | None
    bytes: int | None
    quarantined: str | None
    unknown: str | None = Field(description="the reason for null figures: the owner did not answer")
    replicas: list[int] = Field(description="nodes that have a replica, the owner first")
    lag_records: int | None = Field(description="largest lag of a replica, in records")


class TopicShown(TopicSummary):
    columns: list[ColumnShown]
    rows: int | None = Field(description="null if a partition's figures are `unknown`")
    bytes: int | None = Field(description="null if a partition's figures are `unknown`")
    stats: list[PartitionStats]


class TopicsShown(BaseModel):
    """A page of topics with columns and figures. `more`: repeat the request with `after` = the last name."""

    topics: list[TopicShown]
    more: bool


class Place(BaseModel):
    node: int
    store: str


class AssignmentShown(BaseModel):
    partition: int
    owner: int
    epoch: int
    state: str = Field(
        description="ASSIGNED; ONLINE once it is open at its owner; MOVING during a reassignment; PLANNED"
    )
    replicas: list[Place]


class PendingOrder(BaseModel):
    partition: int
    node: int
    epoch: int


class Assignments(BaseModel):
    """`state` is ASSIGNED once every partition is open at its owner; `pending` lists the others.

    `partitions` take rows. `sealed` ones do not any more; `planned` are children of open layout changes.
    """

    topic: int
    state: str
    partitions: list[AssignmentShown]
    sealed: list[AssignmentShown]
    planned: list[AssignmentShown]
    pending: list[PendingOrder]


class RingShown(BaseModel):
    version: int
    members: list[int]
    changed: int
    nodes_min: int


class Metadata(BaseModel):
    """`hash` covers the state at `hash_index`; two nodes with equal `hash_index` have equal hashes."""

    index: int
    term: int
    leader: int
    hash: str
    hash_index: int
    time_ms: int
    snapshot_index: int
    log_first: int
    log_last: int
    commit: int
    voters: list[int]
    voters_outgoing: list[int]
    learners: list[int]


class LimitShown(BaseModel):
    value: int
    default: int
    low: int
    high: int
    reason: str


class Config(BaseModel):
    values: dict[str, LimitShown]


class TokenShown(BaseModel):
    """A token, without the hash of its secret."""

    name: str
    role: Role
    created: int
    expires_ms: int | None
    prefix: str
    cohorts: str = Field(default="", description="prefix of cohorts; empty: all")


class Tokens(BaseModel):
    tokens: list[TokenShown]


class Me(BaseModel):
    name: str
    role: Role
    prefix: str
