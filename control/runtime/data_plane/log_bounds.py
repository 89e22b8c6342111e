"""Save the log bounds of this node's partitions, and find replicas whose log ends before its saved bound.

A bound is an offset below which all rows are durable here and acknowledged (the partition's mark), with the
epoch of the row before it. The file with the bounds lies beside the metadata. So a log directory that is
restored from an older copy does not bring older bounds with it.
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
    """The bounds of one node. Call `short_logs` before `save`."""

    def __init__(self, native: Any, root: Path, store: bytes) -> None:
        self._native, self._file = native, LogEnds(root, store)
        self._written = b""

    def short_logs(self, replicas: Iterable[Key]) -> list[Key]:
        """Return those of `replicas` whose log ends before its bound; the native node gets the bounds.

        Bounds of other partitions are ignored: they were dropped, or have no replica on this store.
        """
        try:
            entries = self._file.read()
        except OSError as error:
            _LOG.warning("no log ends", why=str(error))
            return []
        keys = {(int(topic), int(partition)) for topic, partition in replicas}
        short: list[tuple[int, int]] = self._native.lacking(entries)
        return sorted((TopicId(topic), PartitionId(part)) for topic, part in short if (topic, part) in keys)

    async def save(self) -> None:
        """Write the current bounds if they have changed."""
        await asyncio.get_running_loop().run_in_executor(None, self._save)

    def _save(self) -> None:
        try:
            entries: bytes = self._native.log_ends()
            if entries != self._written:
                self._file.write(entries)
                self._written = entries
        except OSError as error:
            _LOG.warning("no log ends", why=str(error))
        except ClosedError:
            pass  # the engine has ended: the bounds on disk stay
