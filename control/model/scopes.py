"""Scopes of atomic writers: the drivers that may stage and commit, and committed epochs before their publish.

A scope's epochs ascend. Its commit (or its expiry) decides an epoch and every earlier one, so a scope is a
few numbers, independent of a stream's length.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from ringfence.control.model.base import CommandBase
from ringfence.control.model.cohorts import CohortId, Incarnation, MemberSession
from ringfence.control.model.ids import Epoch, Index, PartitionId, ScopeId, TopicId


class StagedPart(msgspec.Struct, frozen=True, array_like=True):
    """The number of a commit's rows in one partition, as their writers counted them.

    The rows are in records below `upto`, as the owner counted them before the commit; 0: in any record.
    """

    topic: TopicId
    partition: PartitionId
    rows: int
    upto: int = 0


class ConsumedRange(NamedTuple):
    """Rows of one partition that a member read under a hold of its gate: from `first` up to `through`.

    `epoch` is the owner epoch of the log that has the gate, as the claim was seen there: the partition's own
    log, or its heir's.
    """

    partition: PartitionId
    hold: int
    first: int
    through: int
    epoch: Epoch


class Consumed(msgspec.Struct, frozen=True, array_like=True):
    """What a commit settles for a cohort besides its rows. Ranges ascend by their partitions.

    `token` is one of the commit's tokens: the one under which the gates were claimed.
    """

    topic: TopicId
    cohort: CohortId
    incarnation: Incarnation
    session: MemberSession
    token: bytes
    ranges: tuple[ConsumedRange, ...]


class PendingCommit(msgspec.Struct, frozen=True):
    """A committed epoch whose rows may not have their offsets yet, or whose positions may not be written.

    From level 3 on: `consumed`, with the ranges that are not confirmed.
    """

    epoch: int
    tokens: tuple[bytes, ...]
    parts: tuple[StagedPart, ...]
    consumed: Consumed | msgspec.UnsetType = msgspec.UNSET


class Scope(msgspec.Struct, frozen=True):
    """`driver` is the index of the BEGIN that fenced older drivers; `instance` names the process that sent
    it.

    `one_off`: the scope is not begun again, so its epochs are not asked for once they are published.
    `kept`: for each of its last commits the epoch (u64, big-endian) and 16 bytes that identify the
    commit's tokens, the oldest first. Commits of `unkept` and earlier epochs are not recorded any more.
    From level 1 on: `prefix` of the token that began it; `idle_s` of its newest BEGIN, and then `used_ms`,
    the cluster's time at its last use.
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

    Compare-and-set on `after`, the driver that it fences. Older clients give None, which fences any
    driver. From level 1 on: `prefix` of the token; `idle_s`, seconds without use after which the scope may
    be forgotten.
    """

    name: str
    instance: bytes = b""
    one_off: bool = False
    after: Index | None = None
    prefix: str = ""
    idle_s: int | msgspec.UnsetType = msgspec.UNSET


class CommitScope(CommandBase, frozen=True, kw_only=True, tag="commit_scope"):
    """Publish all rows that were staged with these tokens in this epoch.

    `keep`: the scope records the commit's identity. Entries of older programs lack the field: replayed,
    they give the same state as the conversion of such a program's snapshot.
    From level 3 on: `consumed`, positions of a cohort that take effect together with the rows.
    """

    scope: ScopeId
    driver: Index
    epoch: int
    tokens: tuple[bytes, ...]
    parts: tuple[StagedPart, ...]
    keep: bool = False
    consumed: Consumed | msgspec.UnsetType = msgspec.UNSET


class ExpireScope(CommandBase, frozen=True, kw_only=True, tag="expire_scope"):
    """Discard rows that are staged in this epoch and before it, and are not committed.

    `driver` is the driver that asks; 0: an operator or an older client, which any driver accepts.
    """

    scope: ScopeId
    epoch: int
    driver: Index = Index(0)


class ConfirmPublished(CommandBase, frozen=True, kw_only=True, tag="confirm_published"):
    """The rows of a committed epoch have their offsets in these partitions.

    From level 3 on: `consumed`, partitions whose positions are written, or will never be.
    """

    scope: ScopeId
    epoch: int
    parts: tuple[tuple[TopicId, PartitionId], ...]
    consumed: tuple[PartitionId, ...] | msgspec.UnsetType = msgspec.UNSET


class ForgetScope(CommandBase, frozen=True, kw_only=True, tag="forget_scope"):
    """Forget a scope's name, from level 1 on. Compare-and-set on `driver`, the newest one."""

    scope: ScopeId
    driver: Index


ScopeCommand = BeginScope | CommitScope | ExpireScope | ConfirmPublished | ForgetScope
