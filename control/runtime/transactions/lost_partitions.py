"""Parts of decided epochs that can never be published: what was staged is lost, and an operator gives it up.

After an owner by force, say. Until then the epoch's commit ends as unknown, later epochs of the scope wait in
that partition, and the scope is never forgotten.
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
    """Decided epochs with rows in a partition that are not known to be published there, in their order."""
    return [
        {"scope": scope.scope, "name": scope.name, "epoch": commit.epoch, "rows": part.rows}
        for scope, commit, part in _waiting(state, partition)
    ]


class LostPartitions:
    """Handlers; they raise RequestRefused."""

    def __init__(self, proposer: RaftProposer, stages: StagedRowCounts) -> None:
        self._proposer, self._stages = proposer, stages

    async def give_up(self, partition: PartitionId, scope: int, epoch: int) -> ConfirmPublished:
        """The entry after which nothing of the epoch is waited for there; its owner drops what is left of it.

        Raises:
            RequestRefused: INVALID_ARGUMENT, it does not wait there. ALREADY_EXISTS, its owner has all of
                it, or cannot be heard: what may still be published is not given up.
        """
        await self._proposer.read_barrier()
        waiting = _waiting(self._proposer.state, partition)
        found = next((one for one in waiting if (one[0].scope, one[1].epoch) == (scope, epoch)), None)
        if found is None:
            listed = (
                ", ".join(f"{commit.epoch} of {known.scope}" for known, commit, _ in waiting[:8]) or "none"
            )
            raise RequestRefused(
                Code.INVALID_ARGUMENT,
                f"epoch {epoch} of scope {scope} does not wait in partition {partition}; "
                f"there wait: {listed}",
            )
        known, commit, part = found
        why = await self._stages.why_kept(known.scope, commit, part)
        if why:
            raise RequestRefused(
                Code.ALREADY_EXISTS,
                f"epoch {epoch} of scope {scope} is not given up in partition {partition}: {why}",
            )
        return ConfirmPublished(scope=known.scope, epoch=epoch, parts=((part.topic, part.partition),))


def _waiting(state: MetadataState, partition: PartitionId) -> list[tuple[Scope, PendingCommit, StagedPart]]:
    return [
        (scope, commit, part)
        for _, scope in sorted(state.scopes.items())
        for commit in scope.pending
        for part in commit.parts
        if part.partition == partition
    ]
