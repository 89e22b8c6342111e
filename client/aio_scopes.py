"""`ringfence.scopes` for asyncio: several tasks stage rows, one of them commits."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

from ringfence.common.process_local import ProcessLocal
from ringfence.common.serial_executor import SerialExecutor

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ringfence.common.scope_values import Begun, StagedRows
    from ringfence.scopes import Scopes as SyncScopes
    from ringfence.send.stager import Stager as SyncStager


class Scopes(ProcessLocal):
    """Like `ringfence.scopes.Scopes`; created by `Client.scopes`."""

    def __init__(self, scopes: SyncScopes) -> None:
        self._scopes = scopes

    async def begin(
        self,
        scope: str,
        instance: bytes = b"",
        *,
        topic: str | None = None,
        one_off: bool = False,
        idle_s: int | None = None,
    ) -> Begun:
        """Begin a scope; this fences its older drivers."""
        return await asyncio.to_thread(
            self._scopes.begin, scope, instance, topic=topic, one_off=one_off, idle_s=idle_s
        )

    def attempt(self, begun: Begun, epoch: int, **options: Any) -> Stager:
        """Stage rows under a new token. Sends nothing yet, so there is nothing to await."""
        return Stager(self._scopes.attempt(begun, epoch, **options))

    async def commit(self, begun: Begun, epoch: int, staged: Iterable[StagedRows]) -> bool:
        """Commit an epoch; False if it was committed with other attempts, or skipped."""
        return await asyncio.to_thread(self._scopes.commit, begun, epoch, list(staged))

    async def commit_told(self, begun: Begun, epoch: int, staged: Iterable[StagedRows]) -> bool | None:
        """Like `commit`; None: the epoch is committed, but it is unknown whether with these attempts."""
        return await asyncio.to_thread(self._scopes.commit_told, begun, epoch, list(staged))

    async def expire(self, begun: Begun, epoch: int) -> None:
        """Discard the rows that are staged in this and earlier epochs."""
        await asyncio.to_thread(self._scopes.expire, begun, epoch)


class Stager(ProcessLocal):
    """Like `ringfence.send.stager.Stager`; calls of several tasks are executed one after the other.

    A cancelled `await` continues in its thread, and the next call waits for it.
    """

    def __init__(self, stager: SyncStager) -> None:
        self._stager = stager
        self._executor = SerialExecutor()

    async def send(self, topic: str, batch: Any) -> None:
        """Stage rows; waits only until there is room."""
        await self._executor.run(partial(self._stager.send, topic, batch))

    async def flush(self) -> None:
        """Wait until all rows are on disk."""
        await self._executor.run(self._stager.flush)

    async def finish(self) -> StagedRows:
        """Wait until all rows are on disk; returns the argument for `commit`."""
        return await self._executor.run(self._stager.finish)
