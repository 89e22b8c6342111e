"""Confirm cleanup orders that this store has executed, so that the metadata removes them.

A lost or refused confirmation is repeated. Each start confirms what the metadata still lists.
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
RETRY_S: Final = 1.0
# Attempts per confirmation: a minute without a majority. After it the next start confirms.
ATTEMPTS_MAX: Final = 60


class CleanupConfirmations:
    """Proposes confirmations in tasks of their own; no caller waits for them."""

    def __init__(self, proposer: Proposer, store: bytes) -> None:
        self._proposer, self._store = proposer, store
        self._tasks: set[asyncio.Task[None]] = set()

    def confirm(self, order: Adopt | Discard | Release) -> None:
        """Confirm `order`, which the native node has executed."""
        command = ConfirmLeft(partition=order.partition, change=order.change, store=self._store)
        task = asyncio.get_running_loop().create_task(self._propose(command))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def _propose(self, command: ConfirmLeft) -> None:
        for _ in range(ATTEMPTS_MAX):
            if validate(self._proposer.state, command) is not None:
                return  # an earlier process of this node has confirmed it
            try:
                await self._proposer.propose(command)
            except RequestRefused as refusal:
                _LOG.info("not confirmed yet", command=repr(command), why=refusal.message)
                await asyncio.sleep(RETRY_S)
            else:
                return
