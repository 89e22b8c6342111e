"""Give up parts of committed epochs whose staged rows are lost, for example after a forced owner.

Until an operator gives up such a part, the outcome of the epoch's commit is unknown. Later epochs of the
scope wait in that partition, and the scope is never forgotten.
"""

from __future__ import annotations

from typing import Any

from ringfence.control.model.ids import PartitionId
from ringfence.control.model.scopes import ConfirmPublished, PendingCommit, Scope, StagedPart
from ringfence.control.model.state import MetadataState
from ringfence.control.runtime.process.errors import RequestRefused
from ringfence.control.runtime.raft.proposer import RaftProposer
from ringfence.control.runtime.transactions.staged_row_counts import StagedRowCounts
from ringfence.native.wire import Code


def unpublished(state: MetadataState, partition: PartitionId) -> list[dict[str, Any]]:
    """Committed epochs with rows in `partition` that are not confirmed as published there, in order."""
    return [
        {"scope": scope.scope, "name": scope.name, "epoch": commit.epoch, "rows": part.rows}
        for scope, commit, part in _pending_parts(state, partition)
    ]


class LostPartitions:
    """Handlers for parts of committed epochs with lost rows."""

    def __init__(self, proposer: RaftProposer, staged_row_counts: StagedRowCounts) -> None:
        self._proposer, self._staged_row_counts = proposer, staged_row_counts

    async def give_up(self, partition: PartitionId, scope: int, epoch: int) -> ConfirmPublished:
        """Build the command that gives up the epoch in the partition; the owner drops its remaining rows.

        Raises:
            RequestRefused: INVALID_ARGUMENT, the epoch is not pending there. ALREADY_EXISTS, the owner has
                all rows, or does not answer: rows that may still be published are not given up.
        """
        await self._proposer.read_barrier()
        pending = _pending_parts(self._proposer.state, partition)
        match = next((one for one in pending if (one[0].scope, one[1].epoch) == (scope, epoch)), None)
        if match is None:
            listed = (
                ", ".join(f"{commit.epoch} of {other.scope}" for other, commit, _ in pending[:8]) or "none"
            )
            raise RequestRefused(
                Code.INVALID_ARGUMENT,
                f"epoch {epoch} of scope {scope} is not pending in partition {partition}; "
                f"pending there: {listed}",
            )
        pending_scope, commit, part = match
        why = await self._staged_row_counts.refusal_to_give_up(pending_scope.scope, commit, part)
        if why:
            raise RequestRefused(
                Code.ALREADY_EXISTS,
                f"epoch {epoch} of scope {scope} is not given up in partition {partition}: {why}",
            )
        return ConfirmPublished(scope=pending_scope.scope, epoch=epoch, parts=((part.topic, part.partition),))


def _pending_parts(
    state: MetadataState, partition: PartitionId
) -> list[tuple[Scope, PendingCommit, StagedPart]]:
    return [
        (scope, commit, part)
        for _, scope in sorted(state.scopes.items())
        for commit in scope.pending
        for part in commit.parts
        if part.partition == partition
    ]
