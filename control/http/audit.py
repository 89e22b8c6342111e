"""Who changed what or was not let to, and what came of it: a line of JSON for each, in the data directory.

A line is on disk before its answer leaves. Files are rotated by size and few, so a flood of requests costs
old lines, never the disk.
"""

from __future__ import annotations

import asyncio
import os
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

import msgspec
import structlog
from fastapi import Request

from ringfence.control.runtime.health import Health

_LOG = structlog.get_logger("ringfence.audit")
FOLDER: Final = "audit"
FILE: Final = "audit.log"
FILE_BYTES_MAX: Final = 4 << 20
"""Some ten thousand lines."""
FILES_MAX: Final = 8
TEXT_MAX: Final = 300
UNWRITABLE: Final = "audit"


@dataclass(frozen=True, slots=True)
class Line:
    """One change. `status` 0: no answer was given, and it may go on. `index` 0: nothing was committed.

    `who` is the token's name; empty for whoever showed none that the cluster has.
    """

    who: str
    role: str
    peer: str
    method: str
    path: str
    action: str
    status: int = 0
    index: int = 0
    detail: str = ""

    def ended(self, status: int, detail: str, index: int = 0) -> Line:
        return replace(self, status=status, detail=detail[:TEXT_MAX], index=index)


def line_of(request: Request, who: str, role: str, action: str) -> Line:
    """The beginning of a request's line."""
    peer = "" if request.client is None else f"{request.client.host}:{request.client.port}"
    return Line(who, role, peer, request.method, request.url.path, action)


class Audit:
    """The log of one node. Lines are written one after the other, in a thread."""

    def __init__(self, root: Path, node: int, health: Health) -> None:
        self._path, self._node, self._health = root / FOLDER / FILE, node, health
        # A thread of its own: lines keep their order, and wait for nobody else's work.
        self._writer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="ringfence-audit")
        self._soon: set[asyncio.Task[None]] = set()

    async def add(self, line: Line) -> None:
        """Write a line; returns when it is durable. A disk that refuses makes the node degraded."""
        values = {"time_ms": time.time_ns() // 1_000_000, "node": self._node, **asdict(line)}
        values["path"] = line.path[:TEXT_MAX]
        data = msgspec.json.encode(values) + b"\n"
        try:
            await asyncio.get_running_loop().run_in_executor(self._writer, self._write, data)
        except OSError as error:
            self._health.worsen(UNWRITABLE, f"the audit log cannot be written: {error}; check the disk")
            _LOG.error("not audited", error=str(error), **values)
        else:
            self._health.mend(UNWRITABLE)

    def add_soon(self, line: Line) -> None:
        """Write a line when nobody can wait for it any more."""
        task = asyncio.get_running_loop().create_task(self.add(line))
        self._soon.add(task)
        task.add_done_callback(self._soon.discard)

    async def close(self) -> None:
        if self._soon:
            await asyncio.wait(self._soon, timeout=1.0)
        await asyncio.to_thread(self._writer.shutdown)

    def _write(self, data: bytes) -> None:
        self._path.parent.mkdir(exist_ok=True)
        if self._path.exists() and self._path.stat().st_size + len(data) > FILE_BYTES_MAX:
            self._rotate()
        descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(descriptor, data)
            os.fdatasync(descriptor)
        finally:
            os.close(descriptor)

    def _rotate(self) -> None:
        """audit.log -> audit.log.1 -> audit.log.2 ... the last one goes."""
        for number in range(FILES_MAX - 1, 0, -1):
            older = self._path.with_name(f"{FILE}.{number}")
            newer = self._path if number == 1 else self._path.with_name(f"{FILE}.{number - 1}")
            if newer.exists():
                newer.replace(older)
