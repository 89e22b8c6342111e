"""MessagePack bodies that only a cluster, a cohort or an atomic writer uses; their shapes are fixed now.

docs/protocol.md has bytes of each, and says which of them a node of this version serves.
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
    """BEGIN: the same `instance` (up to 64 bytes) again is the same driver; without one each BEGIN is new.

    `one_off`: nobody will begin it anew; it is forgotten before others. `after`: the scope's newest driver,
    as far as the sender knows (0: none); one that began since is not fenced. nil, of an older client:
    whoever has the scope is fenced. `drawn`: the instance is of this BEGIN alone; who compares needs none.
    `idle_s`: once it was not used for so many seconds it may be forgotten as `one_off` ones are; 0: never.
    """

    scope: str
    instance: bytes = b""
    one_off: bool = False
    after: int | None = None
    drawn: bool = False
    idle_s: int = 0


class ScopeBegun(Message):
    """`driver` is the metadata index that fences older drivers of the scope."""

    scope_id: int
    driver: int
    committed: int = 0  # the last committed epoch
    decided: int = 0  # this one and all before it are committed or expired


class ScopeCommit(Message):
    """COMMIT: each token is 16 bytes, drawn by the attempt that staged under it.

    `parts`: (topic, partition, rows) of all that was staged under these tokens. The answer comes when all of
    it may be read.
    """

    scope_id: int
    driver: int
    epoch: int
    tokens: list[bytes]
    parts: list[tuple[int, int, int]] = msgspec.field(default_factory=list)


class ScopeCommitted(Message):
    """Answer to COMMIT and EXPIRE with status OK: decided by this request, or by an earlier try of it."""


class AlreadyCommitted(Message, omit_defaults=True):
    """The same with status ALREADY_COMMITTED: the epoch was committed before.

    `own`, of a COMMIT: true, these very tokens were committed in it; false, others were, or a later epoch's
    commit gave it up; nil, not known any more, or not said by a node of an older program. `given_up`: a later
    epoch was committed first, so nobody's rows of this one are in the log.
    """

    own: bool | None = None
    given_up: bool = False


class ScopeExpire(Message):
    """EXPIRE: refused FENCED_PRODUCER if `driver` was fenced; 0 is nobody's wish in particular."""

    scope_id: int
    epoch: int
    driver: int = 0
