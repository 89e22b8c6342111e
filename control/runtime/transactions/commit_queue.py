"""Decide commits of one driver one at a time, in the order in which they arrived at this node.

A commit decides every epoch up to its own. If the next commit overtook one that still waits for its owners,
the earlier one would be answered "already committed", although its rows are discarded.
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

# Commits in one queue: as many as may be decided and not published.
WAITING_MAX: Final = PENDING_MAX
# Advice for commits after a refused one, in ms; that one is repeated sooner (`staged_row_counts`).
RETRY_MS: Final = 1_000


@dataclass(eq=False, slots=True)
class _QueuedCommit:
    """A queued commit. `failed_epoch`: an earlier epoch that was queued before it and failed; 0: none."""

    epoch: int
    failed_epoch: int = 0

    def check(self, scope: ScopeId) -> None:
        if self.failed_epoch:
            raise RequestRefused(
                Code.DEADLINE,
                f"nothing was committed: the commit of epoch {self.failed_epoch}, which came before, failed; "
                f"repeat it first, then this one of epoch {self.epoch}",
                retry_after_ms=RETRY_MS,
                scope=scope,
                epoch=self.epoch,
            )


@dataclass(eq=False, slots=True)
class _DriverQueue:
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    commits: list[_QueuedCommit] = field(default_factory=list)


class CommitQueue:
    """The queues of this node, one per driver; an empty queue is removed."""

    def __init__(self) -> None:
        self._queues: dict[tuple[ScopeId, Index], _DriverQueue] = {}

    def __len__(self) -> int:
        return len(self._queues)

    @asynccontextmanager
    async def turn(self, command: CommitScope) -> AsyncIterator[None]:
        """Wait for the command's turn: inside, all earlier commits have ended, and the later ones wait.

        Raises:
            RequestRefused: OVERLOADED, the queue is full. DEADLINE, a commit of an earlier epoch was queued
                before this one and failed: deciding this one would discard the other's rows.
        """
        key = (command.scope, command.driver)
        queue = self._queues.setdefault(key, _DriverQueue())
        if len(queue.commits) >= WAITING_MAX:
            message = (
                f"nothing was committed: too many commits of scope {command.scope} are queued "
                f"(limit {WAITING_MAX})"
            )
            raise RequestRefused(Code.OVERLOADED, message, retry_after_ms=RETRY_MS)
        own = _QueuedCommit(command.epoch)
        queue.commits.append(own)
        try:
            async with queue.turn:
                own.check(command.scope)
                yield
        except BaseException:
            for other in queue.commits[queue.commits.index(own) + 1 :]:
                if other.epoch > own.epoch:
                    other.failed_epoch = other.failed_epoch or own.failed_epoch or own.epoch
            raise
        finally:
            queue.commits.remove(own)
            if not queue.commits:
                del self._queues[key]
