"""Wait for a committed epoch to be published; if it is late, ask the owners which rows are missing.

One task per epoch asks for all waiting requests, and ends with the last of them. So a commit that is repeated
for days causes no more requests to owners than one that is sent once.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ringfence.control.model.ids import ScopeId
from ringfence.control.model.scopes import PendingCommit
from ringfence.control.runtime.process.errors import RequestRefused
from ringfence.control.runtime.rpc.dispatch import ANSWER_DUE_S
from ringfence.control.runtime.transactions.staged_row_counts import StagedRowCounts
from ringfence.native.wire import Code

# Pause before the owners are asked, in seconds, doubled up to the maximum. A publish takes a group commit.
CHECK_S: Final = 2.0
CHECK_S_MAX: Final = 60.0


@dataclass(eq=False, slots=True)
class _Watch:
    task: asyncio.Task[None]
    waiting: int = 0


class PublishWatch:
    """`pending` returns an epoch's unpublished commit; `changed` is notified when this may have changed."""

    def __init__(
        self,
        pending: Callable[[ScopeId, int], PendingCommit | None],
        changed: asyncio.Condition,
        staged_row_counts: StagedRowCounts,
    ) -> None:
        self._pending, self._changed, self._staged_row_counts = pending, changed, staged_row_counts
        self._watches: dict[tuple[ScopeId, int], _Watch] = {}

    def __len__(self) -> int:
        return len(self._watches)

    async def until_published(self, scope: ScopeId, epoch: int) -> None:
        """Wait until the epoch is published, or the request's time ends.

        Raises:
            RequestRefused: UNKNOWN_OUTCOME: an owner lacks committed rows, so that the wait would be endless;
                or the request's time ended.
        """
        if self._pending(scope, epoch) is None:
            return
        key = (scope, epoch)
        watch = self._watches.get(key)
        if watch is None:
            task = asyncio.get_running_loop().create_task(self._watch(scope, epoch), name="publish watch")
            watch = self._watches[key] = _Watch(task)
        watch.waiting += 1
        try:
            async with asyncio.timeout_at(ANSWER_DUE_S.get()):
                await asyncio.shield(watch.task)
        except TimeoutError:
            raise RequestRefused(
                Code.UNKNOWN_OUTCOME,
                "the commit is decided, and not published in all of its partitions yet; ask again",
                scope=scope,
                epoch=epoch,
            ) from None
        finally:
            watch.waiting -= 1
            if not watch.waiting:
                del self._watches[key]
                watch.task.cancel()

    async def _watch(self, scope: ScopeId, epoch: int) -> None:
        pause_s = CHECK_S
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s), self._changed:
                    await self._changed.wait_for(lambda: self._pending(scope, epoch) is None)
                return
            pause_s = min(CHECK_S_MAX, pause_s * 2)
            pending = self._pending(scope, epoch)
            missing = "" if pending is None else await self._staged_row_counts.missing_rows(scope, pending)
            if missing and self._pending(scope, epoch) == pending:
                raise RequestRefused(
                    Code.UNKNOWN_OUTCOME,
                    f"the commit is decided and cannot be published in all of its partitions: {missing}; the "
                    "other rows are lost there: bring back the store that had them, or give them up "
                    "(`ringfence partition give-up`)",
                    scope=scope,
                    epoch=epoch,
                )
