"""Loads of partitions in the tables of topics without key, for producers that choose one.

Soft state: a late or lost one costs only balance, none is ever an entry of the log, and no table is pushed
for its sake (F34, F35).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec
import structlog

from ringfence.control.model.ids import NodeId
from ringfence.control.model.topics import Topic
from ringfence.control.runtime.data_plane.native_node import NativeNode, OrderError
from ringfence.control.state_machines.rebalance.loads import Told, advertised
from ringfence.native import messages

_LOG = structlog.get_logger("ringfence.hints")
Install = Callable[[bytes], int]
"""The order that installed a table, given again with another body."""
TOPICS_MAX: Final = 1_024
"""Topics whose loads are told: each costs a table that is encoded anew, every two seconds at most."""


@dataclass(slots=True)
class _Installed:
    topic: Topic
    table: messages.Table
    install: Install
    loads: dict[int, int] = field(default_factory=dict)


class LoadHints:
    """Everything runs on the loop's thread."""

    def __init__(self, driver: NativeNode) -> None:
        self._native_node = driver
        self._tables: dict[int, _Installed] = {}
        self._task: asyncio.Task[None] | None = None

    def installed(self, topic: Topic, table: messages.Table, install: Install) -> None:
        """A table is on its way to the native node."""
        if topic.key:
            return
        if topic.topic in self._tables or len(self._tables) < TOPICS_MAX:
            self._tables[topic.topic] = _Installed(topic, table, install)

    def removed(self, topic: int) -> None:
        self._tables.pop(topic, None)

    @property
    def told(self) -> dict[str, dict[int, int]]:
        """By a topic's name: what its table tells, bytes a second by partition."""
        return {known.topic.name: known.loads for known in self._tables.values()}

    def look(self, told: Mapping[NodeId, Told]) -> None:
        """What nodes take now. While the last look is being carried out, this one is left out."""
        if self._task is None or self._task.done():
            news = [(known, advertised(known.topic, told)) for known in self._tables.values()]
            changed = [(known, loads) for known, loads in news if loads != known.loads]
            if changed:
                self._task = asyncio.get_running_loop().create_task(self._advertise(changed), name="hints")

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _advertise(self, changed: list[tuple[_Installed, dict[int, int]]]) -> None:
        for known, loads in changed:
            body = messages.encode(msgspec.structs.replace(known.table, loads=loads))
            try:
                # The same generation again: the node takes the loads, or nothing where it has a newer table.
                await self._native_node.order(lambda known=known, body=body: known.install(body))  # type: ignore[misc]
            except OrderError as error:
                _LOG.debug("loads not told", topic=known.topic.name, why=str(error))
            else:
                known.loads = loads
