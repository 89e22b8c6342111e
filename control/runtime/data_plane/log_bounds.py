"""Keep on disk how far this node's logs reach, and name the replicas whose log lacks what was known of it.

The native node tells, for each partition, an offset below which all rows are durable here and acknowledged
(its mark), with the epoch of the row before it. The file with that lies beside the metadata, so that it does
not become older with the log's directory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import structlog

from ringfence.control.model.ids import PartitionId, TopicId
from ringfence.control.store.log_ends import LogEnds
from ringfence.native.errors import ClosedError

_LOG = structlog.get_logger("ringfence.witness")

Key = tuple[TopicId, PartitionId]


class LogBounds:
    """One for a node; `lacking` first."""

    def __init__(self, native: Any, root: Path, store: bytes) -> None:
        self._native, self._file = native, LogEnds(root, store)
        self._written = b""

    def lacking(self, held: Iterable[Key]) -> list[Key]:
        """Those of `held` whose log does not reach as far as it did. The native node knows the bounds then.

        What is not held is forgotten: it was dropped, or belongs to no replica of this store.
        """
        try:
            entries = self._file.read()
        except OSError as error:
            _LOG.warning("no log ends", why=str(error))
            return []
        wanted = {(int(topic), int(partition)) for topic, partition in held}
        found: list[tuple[int, int]] = self._native.lacking(entries)
        return sorted((TopicId(topic), PartitionId(part)) for topic, part in found if (topic, part) in wanted)

    async def keep(self) -> None:
        """Write the bounds of now, where they have changed."""
        await asyncio.get_running_loop().run_in_executor(None, self._keep)

    def _keep(self) -> None:
        try:
            entries: bytes = self._native.log_ends()
            if entries != self._written:
                self._file.write(entries)
                self._written = entries
        except OSError as error:
            _LOG.warning("no log ends", why=str(error))
        except ClosedError:
            pass  # the engine ended and has told nothing: what is on disk stays
