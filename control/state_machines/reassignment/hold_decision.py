"""Decide when a move holds the old owner: each target lacks so little that the hold will be short.

A HOLD stops appends until the last records are copied. So the leader proposes it only once every target
lacks few records, or as few as the load itself keeps on their way.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from ringfence.control.model.topics import Replica
from ringfence.control.state_machines.reassignment.messages import Synced, SyncState

# Records that a target may lack when the leader proposes the HOLD: the size of a group commit, a few ms.
HOLD_GAP: Final = 64
# Answers in a row (half a second) without a smaller lag. The lag is then the load's own: one producer
# alone keeps 64 batches on their way. It disappears when the HOLD stops the load.
STEADY_ANSWERS: Final = 10

# Targets that lack more than HOLD_GAP: (target, its smallest lag in records, answers since the lag shrank).
Lags = tuple[tuple[Replica, int, int], ...]


def may_hold(targets: Iterable[Replica], syncs: Mapping[Replica, Synced], lags: Lags) -> bool:
    """Whether all targets would have all records soon after a HOLD."""
    return all(_is_nearly_synced(target, syncs.get(target), lags) for target in targets)


def _is_nearly_synced(target: Replica, sync: Synced | None, lags: Lags) -> bool:
    if sync is None or sync.state is not SyncState.CONTIGUOUS:
        return False
    is_steady = any(
        lagging == target and answers >= STEADY_ANSWERS and sync.gap <= 2 * least
        for lagging, least, answers in lags
    )
    return sync.gap <= HOLD_GAP or is_steady


def with_lag(lags: Lags, target: Replica, sync: Synced) -> Lags:
    """The lags after an answer about one target."""
    if sync.state is not SyncState.CONTIGUOUS or sync.gap <= HOLD_GAP:
        return lags
    others = tuple(other for other in lags if other[0] != target)
    least, answers = next(
        ((least, answers) for other, least, answers in lags if other == target), (sync.gap, -1)
    )
    shrank = sync.gap < least * 3 // 4
    return (*others, (target, min(least, sync.gap), 0 if shrank else answers + 1))
