"""Propose at most one BEGIN per scope at a time; queue the others.

Concurrent BEGINs of a scope name the same driver to fence, so the log accepts at most one of them. Proposed
together, every other one would be a useless entry, and all of them would be repeated. Queued, they are
checked after the first is decided, and refused without an entry. So one entry decides all of them, plus at
most one for each other node that serves BEGINs of the scope then.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

from ringfence.control.model.scopes import BeginScope
from ringfence.control.runtime.process.errors import RequestRefused
from ringfence.control.runtime.rpc.dispatch import ANSWER_DUE_S
from ringfence.native.wire import Code

# Advice after a timeout, in ms: the metadata has no majority, and usually finds one within seconds.
RETRY_MS: Final = 1_000


@dataclass(eq=False, slots=True)
class _Running:
    command: BeginScope
    decided: asyncio.Event = field(default_factory=asyncio.Event)

    def is_rival(self, command: BeginScope) -> bool:
        """Whether `command` is of another job. Processes of one job are one driver and begin concurrently."""
        return not command.instance or command.instance != self.command.instance


class BeginQueue:
    """One queue per scope. `is_outdated`: the applied state has another driver than the command names."""

    def __init__(self, is_outdated: Callable[[BeginScope], bool]) -> None:
        self._is_outdated = is_outdated
        self._running: dict[str, _Running] = {}

    def __len__(self) -> int:
        return len(self._running)

    @asynccontextmanager
    async def turn(self, command: BeginScope) -> AsyncIterator[None]:
        """Wait for the command's turn: inside, the command may be proposed, or is certain to be refused.

        A command without a condition (of an older client) fences the current driver in any case, and does not
        wait.

        Raises:
            RequestRefused: DEADLINE, the request's time ended before its turn; nothing was begun.
        """
        if command.after is not None:
            await self._wait(command)
        own = _Running(command)
        is_running = command.after is not None and self._running.setdefault(command.name, own) is own
        try:
            yield
        finally:
            if is_running:
                del self._running[command.name]
                own.decided.set()

    async def _wait(self, command: BeginScope) -> None:
        try:
            async with asyncio.timeout_at(ANSWER_DUE_S.get()):
                while (other := self._running.get(command.name)) is not None and other.is_rival(command):
                    if self._is_outdated(command):
                        return
                    await other.decided.wait()
        except TimeoutError:
            message = (
                f"nothing was begun: another BEGIN of scope {command.name!r} is not decided yet; ask again"
            )
            raise RequestRefused(Code.DEADLINE, message, retry_after_ms=RETRY_MS) from None
