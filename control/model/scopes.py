"""Scopes of atomic writers: who may stage and commit, and which committed epochs await their publish.

A scope's epochs ascend. One is decided by its commit (or by its expiry) and with it every earlier one, so a
scope is a few numbers however long a stream runs.
"""

from __future__ import annotations

import msgspec

from ringfence.control.model.base import CommandBase
from ringfence.control.model.ids import Index, PartitionId, ScopeId, TopicId


class StagedPart(msgspec.Struct, frozen=True, array_like=True):
    """How many rows a commit has in one partition, as their writers counted them.

    They are those in records below `upto`, as the owner counted them before the commit; 0: whatever is there.
    """

    topic: TopicId
    partition: PartitionId
    rows: int
    upto: int = 0


class PendingCommit(msgspec.Struct, frozen=True):
    """A committed epoch whose rows are not known to have their offsets yet."""

    epoch: int
    tokens: tuple[bytes, ...]
    parts: tuple[StagedPart, ...]


class Scope(msgspec.Struct, frozen=True):
    """`driver` is the index of the BEGIN that fenced older drivers; `instance` names who begun it.

    `one_off`: nobody begins it anew, so nobody asks for its epochs once they are published. `kept`: of its
    last commits the epoch (u64, big-endian) and 16 bytes that tell which tokens it had, the oldest first;
    what was committed in `unkept` and before it is not known any more. From level 1 on: `prefix` of the
    token that began it; `idle_s` of its newest BEGIN, and then `used_ms`, the cluster's time at its last use.
    """

    scope: ScopeId
    name: str
    driver: Index
    used: Index
    instance: bytes = b""
    fenced: tuple[bytes, ...] = ()
    committed: int = 0
    expired: int = 0
    pending: tuple[PendingCommit, ...] = ()
    one_off: bool = False
    kept: bytes = b""
    unkept: int = 0
    prefix: str | msgspec.UnsetType = msgspec.UNSET
    idle_s: int | msgspec.UnsetType = msgspec.UNSET
    used_ms: int | msgspec.UnsetType = msgspec.UNSET


class BeginScope(CommandBase, frozen=True, kw_only=True, tag="begin_scope"):
    """A new driver of a scope. The same `instance` (not empty) again is the same driver.

    Compare-and-set on `after`, the driver that it fences; None, of an older client: it fences any. From level
    1 on: `prefix` of the token; `idle_s`, seconds without use after which the scope may be forgotten.
    """

    name: str
    instance: bytes = b""
    one_off: bool = False
    after: Index | None = None
    prefix: str = ""
    idle_s: int | msgspec.UnsetType = msgspec.UNSET


class CommitScope(CommandBase, frozen=True, kw_only=True, tag="commit_scope"):
    """What was staged under these tokens in this epoch is in the log now, all of it.

    `keep`: the scope remembers whose commit it was. Entries of older programs do not say so: read again, they
    give the state that such a program's snapshot is converted to.
    """

    scope: ScopeId
    driver: Index
    epoch: int
    tokens: tuple[bytes, ...]
    parts: tuple[StagedPart, ...]
    keep: bool = False


class ExpireScope(CommandBase, frozen=True, kw_only=True, tag="expire_scope"):
    """Give up what is staged in this epoch and before it, and is not committed.

    `driver`: whose wish it is; 0: an operator's, or an older client's, which any driver bears.
    """

    scope: ScopeId
    epoch: int
    driver: Index = Index(0)


class ConfirmPublished(CommandBase, frozen=True, kw_only=True, tag="confirm_published"):
    """The rows of a committed epoch have their offsets in these partitions."""

    scope: ScopeId
    epoch: int
    parts: tuple[tuple[TopicId, PartitionId], ...]


class ForgetScope(CommandBase, frozen=True, kw_only=True, tag="forget_scope"):
    """Give a scope's name back, from level 1 on. Compare-and-set on `driver`, the newest one."""

    scope: ScopeId
    driver: Index


ScopeCommand = BeginScope | CommitScope | ExpireScope | ConfirmPublished | ForgetScope
