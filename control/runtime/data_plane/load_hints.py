"""Put partition loads into the routing tables of topics without key, so that producers can avoid busy ones.

The loads are soft state. A late or lost load costs only balance; loads are never log entries, and no table
is pushed only for new loads (F34, F35).
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
from ringfence.control.state_machines.rebalance.loads import LoadReport, advertised_loads
from ringfence.native import messages
from ringfence.native._node import Order

_LOG = structlog.get_logger("ringfence.hints")
# The order that installs a table with this body.
Install = Callable[[bytes], Order]
# Topics with load hints: each costs encoding its table again, every two seconds at most.
TOPICS_MAX: Final = 1_024


@dataclass(slots=True)
class _InstalledTable:
    topic: Topic
    table: messages.Table
    install: Install
    loads: dict[int, int] = field(default_factory=dict)


class LoadHints:
    """The load hints of one node. All methods run on the loop's thread."""

    def __init__(self, native_node: NativeNode) -> None:
        self._native_node = native_node
        self._tables: dict[int, _InstalledTable] = {}
        self._task: asyncio.Task[None] | None = None

    def set_table(self, topic: Topic, table: messages.Table, install: Install) -> None:
        """Use `table`, which an order is about to install; `install` makes it for another body."""
        if topic.key:
            return
        if topic.topic in self._tables or len(self._tables) < TOPICS_MAX:
            self._tables[topic.topic] = _InstalledTable(topic, table, install)

    def remove_table(self, topic: int) -> None:
        self._tables.pop(topic, None)

    @property
    def advertised(self) -> dict[str, dict[int, int]]:
        """By topic name, the loads in its table: bytes per second by partition."""
        return {entry.topic.name: entry.loads for entry in self._tables.values()}

    def update(self, loads_of: Mapping[NodeId, LoadReport]) -> None:
        """Advertise the current loads of nodes. Skipped while the previous update is still running."""
        if self._task is None or self._task.done():
            current = [(entry, advertised_loads(entry.topic, loads_of)) for entry in self._tables.values()]
            changed = [(entry, loads) for entry, loads in current if loads != entry.loads]
            if changed:
                self._task = asyncio.get_running_loop().create_task(self._advertise(changed), name="hints")

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _advertise(self, changed: list[tuple[_InstalledTable, dict[int, int]]]) -> None:
        for entry, loads in changed:
            body = messages.encode(msgspec.structs.replace(entry.table, loads=loads))
            try:
                # The generation is unchanged: a node with a newer table ignores the loads.
                await self._native_node.order(entry.install(body))
            except OrderError as error:
                _LOG.debug("loads not advertised", topic=entry.topic.name, why=str(error))
            else:
                entry.loads = loads
