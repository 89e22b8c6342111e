"""MessagePack bodies that only watches, clusters and atomic writers use. Their shapes are fixed.

docs/protocol.md has the bytes of each, and lists the ones that a node of this version serves. REPLICATE,
REPLICA_ACK, COPY, CONFIRM_MARK and TABLE_ACK have no body: all of their values are in the header.
"""

from __future__ import annotations

import msgspec
from msgspec import UNSET, UnsetType

from ringfence.native.messages import Message, Table, prepare_messages

# ---- layout watch -----------------------------------------------------------------------------------


class WatchOpen(Message):
    """WATCH_OPEN: the client chooses `session`, 16 bytes that identify the watch on its connection.

    Exactly one of the two names: `topic` follows the layout of one topic; `prefix` follows the catalogue of
    the topics whose names begin so. `held`: the generation of the table that the client holds; 0: none.
    """

    session: bytes
    topic: str | UnsetType = UNSET
    prefix: str | UnsetType = UNSET
    held: int = 0


class Controller(Message):
    """The leader of the metadata, as one node knows it; node 0: it knows none."""

    node: int
    addresses: list[str]
    http: str


class WatchUpdate(Message):
    """WATCH_UPDATE: states in ascending order of the header's generation.

    `table`: absent if only the controller changed. `deleted`: the topic is gone, and so is the session.
    Of a catalogue: `topics` that were made, as (id, name), and ids of topics that are `gone`. `whole`: the
    list begins here, and what the session held before counts no more. `more`: further pages follow.
    """

    session: bytes
    controller: Controller
    table: Table | UnsetType = UNSET
    deleted: bool | UnsetType = UNSET
    topics: list[tuple[int, str]] | UnsetType = UNSET
    gone: list[int] | UnsetType = UNSET
    whole: bool | UnsetType = UNSET
    more: bool | UnsetType = UNSET


class WatchClose(Message):
    """WATCH_CLOSE: no frame of the session follows the answer."""

    session: bytes


# ---- replicas ---------------------------------------------------------------------------------------


class Order(Message):
    """ORDER: `kind` is host, open, hold, close or drop; (term, operation) make repeats harmless."""

    term: int
    operation: int
    kind: str
    topic: int
    partition: int
    epoch: int
    replicas: list[int] = msgspec.field(default_factory=list)


# ---- atomic writers -----------------------------------------------------------------------------------


class ScopeBegin(Message):
    """BEGIN: a new driver of the scope, unless `instance` equals that of the current driver.

    Attributes:
        scope: name.
        instance: up to 64 bytes; a repeat with the same value is the same driver. Empty: always a new driver.
        one_off: the scope is not begun a second time; the cluster removes such scopes before others.
        after: the scope's newest driver that the sender knows (0: none); a later one is not fenced. nil, from
            an older client: the current driver is fenced, whichever it is.
        drawn: the instance is random and for this BEGIN alone; with `after`, nodes do not store it.
        idle_s: seconds without use after which the scope may be removed like `one_off` ones; 0: never.
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
    decided: int = 0  # this epoch and all before it are committed or expired


class ScopeCommit(Message):
    """COMMIT: each token has 16 random bytes, drawn by the attempt that staged rows under it.

    `parts`: (topic, partition, rows) of all rows staged under these tokens. The node answers when all of them
    can be read. `consumed`: positions of a cohort that take effect together with the rows; the node answers
    when they are settled, too. Only to nodes of a cluster that has cohorts.
    """

    scope_id: int
    driver: int
    epoch: int
    tokens: list[bytes]
    parts: list[tuple[int, int, int]] = msgspec.field(default_factory=list)
    consumed: ScopeConsumed | UnsetType = UNSET


class ScopeConsumed(Message):
    """Of a COMMIT: rows that a member of a STREAM cohort read, whose gates it has claimed.

    `token` is one of the commit's: the one under which the gates were claimed. `ranges`: (partition, hold,
    from, through) of each gate, ascending.
    """

    topic: int
    cohort: int
    incarnation: int
    session: int
    token: bytes
    ranges: list[tuple[int, int, int, int]]


class ScopeCommitted(Message):
    """Answer to COMMIT and EXPIRE with status OK: this request or an earlier try of it decided the epoch."""


class AlreadyCommitted(Message, omit_defaults=True):
    """Answer to COMMIT and EXPIRE with status ALREADY_COMMITTED: the epoch was committed before.

    `own`, for a COMMIT: true if the epoch was committed with these tokens; false if with others, or if the
    commit of a later epoch skipped it; nil if the cluster no longer knows, or the node has an older program.
    `given_up`: a later epoch was committed first, so the log has no rows of this one.
    """

    own: bool | None = None
    given_up: bool = False


class ScopeExpire(Message):
    """EXPIRE: refused FENCED_PRODUCER if `driver` was fenced; 0: not from a driver."""

    scope_id: int
    epoch: int
    driver: int = 0


prepare_messages(globals())
