"""Of the BEGINs of one scope at this node one at a time is proposed; the others come behind it.

All of a crowd name the same driver that they fence, so one of them at most is what the log takes: each other
one that is proposed beside it is an entry for nothing, and the whole crowd comes again. Judged once the first
is decided, they are refused without an entry. A crowd costs an entry each, at most one more for each other
node that is asked for the scope at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

from ringfence.control.model.scopes import BeginScope
from ringfence.control.runtime.process.errors import RequestRefused
from ringfence.control.runtime.rpc.dispatch import TOLD_AT
from ringfence.native.wire import Code

RETRY_MS: Final = 1_000
"""For who waited in vain: the metadata have no majority, and find one within seconds if at all."""


@dataclass(eq=False, slots=True)
class _First:
    command: BeginScope
    decided: asyncio.Event = field(default_factory=asyncio.Event)

    def is_rival(self, command: BeginScope) -> bool:
        """Processes of one job are one driver: they begin side by side."""
        return not command.instance or command.instance != self.command.instance


class BeginQueue:
    """`is_outdated`: the applied state has another driver than the command knows of."""

    def __init__(self, is_outdated: Callable[[BeginScope], bool]) -> None:
        self._is_outdated = is_outdated
        self._first: dict[str, _First] = {}

    def __len__(self) -> int:
        return len(self._first)

    @asynccontextmanager
    async def turn(self, command: BeginScope) -> AsyncIterator[None]:
        """From here the command may be proposed, or is sure to be refused. They wait as requests do.

        One that is compared with nothing (an older client's) fences whoever it finds: it waits for nobody.

        Raises:
            RequestRefused: DEADLINE, its time was over before its turn; nothing was begun.
        """
        if command.after is not None:
            await self._wait(command)
        first = _First(command)
        is_first = command.after is not None and self._first.setdefault(command.name, first) is first
        try:
            yield
        finally:
            if is_first:
                del self._first[command.name]
                first.decided.set()

    async def _wait(self, command: BeginScope) -> None:
        try:
            async with asyncio.timeout_at(TOLD_AT.get()):
                while (first := self._first.get(command.name)) is not None and first.is_rival(command):
                    if self._is_outdated(command):
                        return
                    await first.decided.wait()
        except TimeoutError:
            message = (
                f"nothing was begun: another BEGIN of scope {command.name!r} is not decided here; ask again"
            )
            raise RequestRefused(Code.DEADLINE, message, retry_after_ms=RETRY_MS) from None
