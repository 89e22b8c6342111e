"""What changes left for this store to do is done: the log hears of it, so that it forgets it.

A confirmation that is lost or refused is tried again; a start finds what is still listed by its own log.
"""

from __future__ import annotations

import asyncio
from typing import Final

import structlog

from ringfence.control.model.reassignment_commands import ConfirmLeft
from ringfence.control.runtime.process.errors import RequestRefused
from ringfence.control.runtime.raft.proposer_interface import Proposer
from ringfence.control.state_machines.metadata.state_machine import validate
from ringfence.control.state_machines.reassignment.cleanup import Adopt, Discard, Release

_LOG = structlog.get_logger("ringfence.changes")
AGAIN_S: Final = 1.0
TRIES_MAX: Final = 60
"""A minute without a majority; the next start confirms."""


class CleanupConfirmations:
    """Runs beside everything else: nobody waits for it."""

    def __init__(self, proposer: Proposer, store: bytes) -> None:
        self._proposer, self._store = proposer, store
        self._under_way: set[asyncio.Task[None]] = set()

    def done(self, step: Adopt | Discard | Release) -> None:
        """The native node has carried out what the log lists."""
        command = ConfirmLeft(partition=step.partition, change=step.change, store=self._store)
        task = asyncio.get_running_loop().create_task(self._confirm(command))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    def close(self) -> None:
        for task in self._under_way:
            task.cancel()

    async def _confirm(self, command: ConfirmLeft) -> None:
        for _ in range(TRIES_MAX):
            if validate(self._proposer.state, command) is not None:
                return  # somebody, an earlier life of this node, has confirmed it
            try:
                await self._proposer.propose(command)
            except RequestRefused as refusal:
                _LOG.info("not confirmed yet", command=repr(command), why=refusal.message)
                await asyncio.sleep(AGAIN_S)
            else:
                return
