"""MessagePack bodies that only a cluster, a cohort or an atomic writer uses; their shapes are fixed now.

A node of this version answers these opcodes REFUSED(not_supported); docs/protocol.md has bytes of each.
Messages that need no body (REPLICATE, REPLICA_ACK, COPY, CONFIRM_MARK, TABLE_ACK) say all in their header.
"""

from __future__ import annotations

import msgspec

from ringfence.native.messages import Message, PartitionEntry

# ---- layout watch and cohorts -----------------------------------------------------------------------


class WatchOpen(Message):
    """WATCH_OPEN: `session` is chosen by the client and names the watch on any node."""

    name: str
    session: int


class WatchUpdate(Message):
    """WATCH_UPDATE: the whole DAG of a topic, ordered by (index, version)."""

    session: int
    index: int
    version: int
    partitions: list[PartitionEntry]
    controller: list[str]  # addresses


class WatchClose(Message):
    session: int


class Slice(Message):
    """One partition of a member's share."""

    partition: int
    lo: int
    hi: int
    name: str


class Join(Message):
    """JOIN: `mode` is STREAM, QUEUE or CHECKPOINT; `start` (earliest, latest) is for a new cohort."""

    name: str
    cohort: str
    mode: str
    member: str
    start: str = "earliest"


class Joined(Message):
    version: int
    generation: int
    slices: list[Slice]


class Leave(Message):
    name: str
    cohort: str
    member: str


class Assign(Message):
    """ASSIGN: the member's new share under a plan generation."""

    cohort: str
    generation: int
    slices: list[Slice]


class Acknowledge(Message):
    """ACKNOWLEDGE: STREAM says `through` (rows up to and with it), QUEUE lists single `offsets`."""

    cohort: str
    member: str
    partition: int
    generation: int
    through: int | None = None
    offsets: list[int] = msgspec.field(default_factory=list)


# ---- replicas ---------------------------------------------------------------------------------------


class Order(Message):
    """ORDER: `kind` is host, open, hold, close or drop; (term, operation) make a repeat harmless."""

    term: int
    operation: int
    kind: str
    topic: int
    partition: int
    epoch: int
    replicas: list[int] = msgspec.field(default_factory=list)


# ---- atomic writers -----------------------------------------------------------------------------------


class ScopeBegin(Message):
    scope: str


class ScopeBegun(Message):
    """`driver` is the metadata index that fences older drivers of the scope."""

    scope_id: int
    driver: int


class ScopeCommit(Message):
    """COMMIT: each token is 16 bytes, drawn by the attempt that staged under it."""

    scope_id: int
    driver: int
    epoch: int
    tokens: list[bytes]


class ScopeExpire(Message):
    scope_id: int
    epoch: int
