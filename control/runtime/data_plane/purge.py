"""Purge deleted topics: each store confirms its drop, and the last confirmation removes the tombstone."""

from __future__ import annotations

import asyncio

import structlog

from ringfence.control.model.commands import ConfirmDropped, PurgeTopic
from ringfence.control.model.ids import TopicId
from ringfence.control.runtime.process.errors import RequestRefused
from ringfence.control.runtime.raft.proposer_interface import Proposer
from ringfence.control.state_machines.metadata.state_machine import validate

_LOG = structlog.get_logger("ringfence.metadata")


class TopicPurge:
    """Confirms drops in tasks of their own; no caller waits for them, and the next start resumes them."""

    def __init__(self, proposer: Proposer, store: bytes) -> None:
        self._proposer, self._store = proposer, store
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, topic: TopicId) -> None:
        """Confirm that this store has dropped all partitions of a deleted topic."""
        task = asyncio.get_running_loop().create_task(self._purge(topic))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def resume(self) -> None:
        """Purge tombstones without holders: the last holder's node crashed between confirmation and purge."""
        for topic, tombstone in self._proposer.state.tombstones.items():
            if not tombstone.holders:
                self.begin(topic)

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def _purge(self, topic: TopicId) -> None:
        try:
            for command in (ConfirmDropped(topic=topic, store=self._store), PurgeTopic(topic=topic)):
                if validate(self._proposer.state, command) is None:
                    await self._proposer.propose(command)
        except RequestRefused as refusal:
            # The tombstone stays until the next start tries again.
            _LOG.warning("tombstone stays", topic=topic, why=refusal.message)
