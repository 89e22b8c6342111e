"""Commits of one driver of a scope are decided in the order in which they came to this node, one at a time.

A commit decides every epoch up to its own. One that waits for its owners, and is overtaken by its successor,
would hear "already committed" while its rows are given up.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

from ringfence.control.model.ids import Index, ScopeId
from ringfence.control.model.scopes import CommitScope
from ringfence.control.runtime.process.errors import RequestRefused
from ringfence.control.state_machines.metadata.scopes import PENDING_MAX
from ringfence.native.wire import Code

WAITING_MAX: Final = PENDING_MAX
"""In one line: as many as may be decided and wait to be published."""
RETRY_MS: Final = 1_000
"""For who came behind a commit that was refused: that one is asked for again sooner (`stage_checks`)."""


@dataclass(eq=False, slots=True)
class _Place:
    """One commit in its line; `behind`: an earlier epoch, ahead of it in the line, that was not decided."""

    epoch: int
    behind: int = 0

    def check(self, scope: ScopeId) -> None:
        if self.behind:
            raise RequestRefused(
                Code.DEADLINE,
                f"nothing was committed: the commit of epoch {self.behind}, which came before, failed; "
                f"repeat it first, then this one of epoch {self.epoch}",
                retry_after_ms=RETRY_MS,
                scope=scope,
                epoch=self.epoch,
            )


@dataclass(eq=False, slots=True)
class _Line:
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    places: list[_Place] = field(default_factory=list)


class CommitQueue:
    """The lines of this node. A line is there while somebody stands in it."""

    def __init__(self) -> None:
        self._lines: dict[tuple[ScopeId, Index], _Line] = {}

    def __len__(self) -> int:
        return len(self._lines)

    @asynccontextmanager
    async def turn(self, command: CommitScope) -> AsyncIterator[None]:
        """Held from here until the commit is decided; who came before has ended when it begins.

        Raises:
            RequestRefused: OVERLOADED, the line is too long. DEADLINE, a commit of an earlier epoch came
                before this one and failed: decided now, this one would give that one's rows up.
        """
        key = (command.scope, command.driver)
        line = self._lines.setdefault(key, _Line())
        if len(line.places) >= WAITING_MAX:
            message = (
                f"nothing was committed: {WAITING_MAX} commits of scope {command.scope} wait here already"
            )
            raise RequestRefused(Code.OVERLOADED, message, retry_after_ms=RETRY_MS)
        place = _Place(command.epoch)
        line.places.append(place)
        try:
            async with line.turn:
                place.check(command.scope)
                yield
        except BaseException:
            for other in line.places[line.places.index(place) + 1 :]:
                if other.epoch > place.epoch:
                    other.behind = other.behind or place.behind or place.epoch
            raise
        finally:
            line.places.remove(place)
            if not line.places:
                del self._lines[key]
