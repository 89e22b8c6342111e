"""From a tombstone to nothing: this store confirms what it dropped, and the last one to confirm purges."""

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
    """Runs beside everything else: nobody waits for it, and the next start takes up what a crash left."""

    def __init__(self, proposer: Proposer, store: bytes) -> None:
        self._proposer, self._store = proposer, store
        self._under_way: set[asyncio.Task[None]] = set()

    def begin(self, topic: TopicId) -> None:
        """The store holds nothing more of a deleted topic."""
        task = asyncio.get_running_loop().create_task(self._bury(topic))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    def take_up(self) -> None:
        """Tombstones whose last holder confirmed just before a crash."""
        for topic, tombstone in self._proposer.state.tombstones.items():
            if not tombstone.holders:
                self.begin(topic)

    def close(self) -> None:
        for task in self._under_way:
            task.cancel()

    async def _bury(self, topic: TopicId) -> None:
        try:
            for command in (ConfirmDropped(topic=topic, store=self._store), PurgeTopic(topic=topic)):
                if validate(self._proposer.state, command) is None:
                    await self._proposer.propose(command)
        except RequestRefused as refusal:
            # The tombstone stays; the next start tries again.
            _LOG.warning("tombstone stays", topic=topic, why=refusal.message)
