"""Who waits until a decided epoch is published; of one that is late its owners are asked what they lack.

One task asks for all that wait for an epoch, and it ends with the last of them: a commit that is repeated for
days, because a store that had a part of it is lost, asks no more than one that is sent once.
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
from ringfence.control.runtime.rpc.dispatch import TOLD_AT
from ringfence.control.runtime.transactions.staged_row_counts import StagedRowCounts
from ringfence.native.wire import Code

LOOK_S: Final = 2.0
"""A publish takes a group commit; after this its owners are asked what they lack, later less often."""
LOOK_S_MAX: Final = 60.0


@dataclass(eq=False, slots=True)
class _Watch:
    task: asyncio.Task[None]
    waiting: int = 0


class PublishWatch:
    """`pending` gives what is not published of an epoch; `changed` is notified when it may have changed."""

    def __init__(
        self,
        pending: Callable[[ScopeId, int], PendingCommit | None],
        changed: asyncio.Condition,
        stages: StagedRowCounts,
    ) -> None:
        self._pending, self._changed, self._stages = pending, changed, stages
        self._watches: dict[tuple[ScopeId, int], _Watch] = {}

    def __len__(self) -> int:
        return len(self._watches)

    async def published(self, scope: ScopeId, epoch: int) -> None:
        """Wait for it, as long as somebody waits for the answer.

        Raises:
            RequestRefused: UNKNOWN_OUTCOME: an owner lacks rows that are decided, and it would be waited for
                in vain; or the time of who asked is over.
        """
        if self._pending(scope, epoch) is None:
            return
        key = (scope, epoch)
        watch = self._watches.get(key)
        if watch is None:
            task = asyncio.get_running_loop().create_task(
                self._watch(scope, epoch), name="watch of a publish"
            )
            watch = self._watches[key] = _Watch(task)
        watch.waiting += 1
        try:
            async with asyncio.timeout_at(TOLD_AT.get()):
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
        look_s = LOOK_S
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(look_s), self._changed:
                    await self._changed.wait_for(lambda: self._pending(scope, epoch) is None)
                return
            look_s = min(LOOK_S_MAX, look_s * 2)
            pending = self._pending(scope, epoch)
            lacking = "" if pending is None else await self._stages.lacking(scope, pending)
            if lacking and self._pending(scope, epoch) == pending:
                raise RequestRefused(
                    Code.UNKNOWN_OUTCOME,
                    f"the commit is decided and cannot be published in all of its partitions: {lacking}; the "
                    "rest was lost there: bring the store that had it back, or give it up (`ringfence "
                    "partition give-up`)",
                    scope=scope,
                    epoch=epoch,
                )
