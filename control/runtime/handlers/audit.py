"""Who changed what or was not let to, and what came of it: a line of JSON for each, in the data directory.

A line is on disk before its answer leaves. Files are rotated by size and few, so a flood of requests costs
old lines, never the disk.
"""

from __future__ import annotations

import asyncio
import errno
import os
import time
from collections.abc import Awaitable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final, TypeVar

import msgspec
import structlog

from ringfence.control.runtime.process.errors import RequestRefused
from ringfence.control.runtime.process.health import Health
from ringfence.control.runtime.process.statuses import status_of

T = TypeVar("T")
_LOG = structlog.get_logger("ringfence.audit")
FOLDER: Final = "audit"
FILE: Final = "audit.log"
FILE_BYTES_MAX: Final = 4 << 20
"""Some ten thousand lines."""
FILES_MAX: Final = 8
TEXT_MAX: Final = 300
WAITING_MAX: Final = 10_000
"""Lines that wait for the disk, a few MB: who asked is answered or gone by then, a stalled disk stays."""
UNWRITABLE: Final = "audit"
CONTROL: Final = "CONTROL"
"""A line's method where a change was asked for at the control address, by whoever reaches that."""
DATA: Final = "DATA"
"""As above, at a data address."""


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


class Audit:
    """The log of one node. Lines are written one after the other, in a thread."""

    def __init__(self, root: Path, node: int, health: Health) -> None:
        self._path, self._node, self._health = root / FOLDER / FILE, node, health
        # A thread of its own: lines keep their order, and wait for nobody else's work.
        self._writer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="ringfence-audit")
        self._soon: set[asyncio.Task[None]] = set()

    async def add(self, line: Line) -> None:
        """Write a line; returns when it is durable. It is written, too, if who waits is cancelled."""
        await asyncio.shield(self.add_soon(line))

    def add_soon(self, line: Line) -> asyncio.Task[None]:
        """Write a line when nobody can wait for it any more."""
        task = asyncio.get_running_loop().create_task(self._written(line))
        self._soon.add(task)
        task.add_done_callback(self._soon.discard)
        return task

    async def _written(self, line: Line) -> None:
        """A disk that refuses makes the node degraded, and its log has the line then."""
        values = {"time_ms": time.time_ns() // 1_000_000, "node": self._node, **asdict(line)}
        values["path"] = line.path[:TEXT_MAX]
        data = msgspec.json.encode(values) + b"\n"
        try:
            await self._in_turn(data)
        except OSError as error:
            self._health.worsen(UNWRITABLE, f"the audit log cannot be written: {error}; check the disk")
            _LOG.error("not audited", error=str(error), **values)
        else:
            self._health.mend(UNWRITABLE)

    async def _in_turn(self, data: bytes) -> None:
        if len(self._soon) > WAITING_MAX:
            raise OSError(errno.EBUSY, f"{WAITING_MAX} lines wait for the disk")
        await asyncio.get_running_loop().run_in_executor(self._writer, self._write, data)

    async def kept(self, line: Line, work: Awaitable[tuple[T, int]]) -> T:
        """Do a change, which gives its answer and its entry's index; 0: nothing was to be changed."""
        try:
            reply, index = await work
        except RequestRefused as refusal:
            await self.add(line.ended(status_of(refusal), refusal.message, refusal.index))
            raise
        except BaseException as error:
            self.add_soon(line.ended(0, f"no answer was given: {type(error).__name__}"))
            raise
        if index:
            await self.add(line.ended(200, "", index))
        return reply

    async def close(self) -> None:
        if self._soon:
            await asyncio.wait(self._soon, timeout=1.0)
        await asyncio.to_thread(self._writer.shutdown)

    def _write(self, data: bytes) -> None:
        self._path.parent.mkdir(0o700, exist_ok=True)
        if self._path.exists() and self._path.stat().st_size + len(data) > FILE_BYTES_MAX:
            self._rotate()
        descriptor = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            _append(descriptor, data)
        finally:
            os.close(descriptor)

    def _rotate(self) -> None:
        """audit.log -> audit.log.1 -> audit.log.2 ... the last one goes."""
        for number in range(FILES_MAX - 1, 0, -1):
            older = self._path.with_name(f"{FILE}.{number}")
            newer = self._path if number == 1 else self._path.with_name(f"{FILE}.{number - 1}")
            if newer.exists():
                newer.replace(older)


def _append(descriptor: int, data: bytes) -> None:
    """All of it, durably, or nothing."""
    before = os.fstat(descriptor).st_size
    if before and os.pread(descriptor, 1, before - 1) != b"\n":
        data = b"\n" + data  # a crash tore the last line: it must not spoil this one
    written = 0
    try:
        written = os.write(descriptor, data)
        os.fdatasync(descriptor)
    finally:
        if written < len(data):
            os.ftruncate(descriptor, before)
    if written < len(data):
        raise OSError(errno.ENOSPC, f"{written} of {len(data)} bytes were taken")
