"""`ringfence.aio`'s twin of `ringfence.scopes`: several tasks stage, one of them commits."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

from ringfence.common.process_local import Local
from ringfence.common.serial_executor import Turns

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ringfence.common.scope_values import Begun, StagedRows
    from ringfence.scopes import Scopes as SyncScopes
    from ringfence.send.stager import Stager as SyncStager


class Scopes(Local):
    """As `ringfence.scopes.Scopes`; made by `Client.scopes`."""

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
        """Begin a scope: older drivers of it are fenced."""
        return await asyncio.to_thread(
            self._scopes.begin, scope, instance, topic=topic, one_off=one_off, idle_s=idle_s
        )

    def attempt(self, begun: Begun, epoch: int, **options: Any) -> Stager:
        """Stage rows under a token of its own; nothing is sent yet, so there is nothing to await."""
        return Stager(self._scopes.attempt(begun, epoch, **options))

    async def commit(self, begun: Begun, epoch: int, staged: Iterable[StagedRows]) -> bool:
        """Put an epoch into the log; False if it was committed with other attempts, or given up."""
        return await asyncio.to_thread(self._scopes.commit, begun, epoch, list(staged))

    async def commit_told(self, begun: Begun, epoch: int, staged: Iterable[StagedRows]) -> bool | None:
        """As `commit`; None: the epoch is committed, and whether with these attempts is not known."""
        return await asyncio.to_thread(self._scopes.commit_told, begun, epoch, list(staged))

    async def expire(self, begun: Begun, epoch: int) -> None:
        """Give up what is staged in the epoch, and before it."""
        await asyncio.to_thread(self._scopes.expire, begun, epoch)


class Stager(Local):
    """As `ringfence.send.stager.Stager`; calls of several tasks are served one after the other.

    An `await` that is cancelled goes on in its thread, and what comes next waits for it.
    """

    def __init__(self, stager: SyncStager) -> None:
        self._stager = stager
        self._turns = Turns()

    async def send(self, topic: str, batch: Any) -> None:
        """Stage rows; waits only for room."""
        await self._turns.run(partial(self._stager.send, topic, batch))

    async def flush(self) -> None:
        """Wait until everything that was sent is on disk."""
        await self._turns.run(self._stager.flush)

    async def finish(self) -> StagedRows:
        """Wait until everything is on disk; what a commit names."""
        return await self._turns.run(self._stager.finish)
