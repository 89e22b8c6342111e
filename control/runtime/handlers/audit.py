"""Write the audit log: one JSON line for each change and each refusal, in the data directory.

A line names the caller, the action and the result, and is durable before the answer leaves. Files are
rotated by size and their count is limited, so a flood of requests overwrites old lines and never fills the
disk.
"""

from __future__ import annotations

import asyncio
import errno
import os
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

import msgspec
import structlog

from ringfence.control.runtime.process.health import Health

_LOG = structlog.get_logger("ringfence.audit")
FOLDER: Final = "audit"
FILE: Final = "audit.log"
# Some ten thousand lines.
FILE_BYTES_MAX: Final = 4 << 20
FILES_MAX: Final = 8
TEXT_MAX: Final = 300
# Lines that wait for the disk, a few MB in all. The limit bounds memory while a disk is stalled.
WAITING_MAX: Final = 10_000
# The key of the health reason "the audit log cannot be written".
UNWRITABLE: Final = "audit"
# A line's method if the change came through the control address, which asks for no token.
CONTROL: Final = "CONTROL"
# A line's method if the change came through a data address.
DATA: Final = "DATA"


@dataclass(frozen=True, slots=True)
class Line:
    """One change.

    `who` is the name of the caller's token; empty without a valid token. `status` is the HTTP status of the
    answer; 0: the request ended without an answer, and the change may still happen. `index` is the entry's;
    0: no entry was committed.
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
    """The audit log of one node. One thread writes the lines in order."""

    def __init__(self, root: Path, node: int, health: Health) -> None:
        self._path, self._node, self._health = root / FOLDER / FILE, node, health
        # A separate thread keeps the lines in order, and no other work of the process delays them.
        self._writer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="ringfence-audit")
        self._pending: set[asyncio.Task[None]] = set()

    async def add(self, line: Line) -> None:
        """Write a line, and return once it is durable. Cancelling the caller does not cancel the write."""
        await asyncio.shield(self.add_soon(line))

    def add_soon(self, line: Line) -> asyncio.Task[None]:
        """Write a line in a task, for callers that cannot wait until it is durable."""
        task = asyncio.get_running_loop().create_task(self._write_line(line))
        self._pending.add(task)
        task.add_done_callback(self._pending.discard)
        return task

    async def _write_line(self, line: Line) -> None:
        """Write a line. If the disk refuses, log the line instead and make the node degraded."""
        values = {"time_ms": time.time_ns() // 1_000_000, "node": self._node, **asdict(line)}
        values["path"] = line.path[:TEXT_MAX]
        data = msgspec.json.encode(values) + b"\n"
        try:
            await self._queue_write(data)
        except OSError as error:
            self._health.set_reason(UNWRITABLE, f"the audit log cannot be written: {error}; check the disk")
            _LOG.error("not audited", error=str(error), **values)
        else:
            self._health.clear_reason(UNWRITABLE)

    async def _queue_write(self, data: bytes) -> None:
        if len(self._pending) > WAITING_MAX:
            raise OSError(errno.EBUSY, f"{WAITING_MAX} lines wait for the disk")
        await asyncio.get_running_loop().run_in_executor(self._writer, self._write, data)

    async def close(self) -> None:
        if self._pending:
            await asyncio.wait(self._pending, timeout=1.0)
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
        """Rename audit.log -> audit.log.1 -> audit.log.2 ...; the oldest file is overwritten."""
        for number in range(FILES_MAX - 1, 0, -1):
            older = self._path.with_name(f"{FILE}.{number}")
            newer = self._path if number == 1 else self._path.with_name(f"{FILE}.{number - 1}")
            if newer.exists():
                newer.replace(older)


def _append(descriptor: int, data: bytes) -> None:
    """Append all of `data` durably, or nothing."""
    before = os.fstat(descriptor).st_size
    if before and os.pread(descriptor, 1, before - 1) != b"\n":
        data = b"\n" + data  # A crash tore the last line. Without a newline, this one would be torn as well.
    written = 0
    try:
        written = os.write(descriptor, data)
        os.fdatasync(descriptor)
    finally:
        if written < len(data):
            os.ftruncate(descriptor, before)
    if written < len(data):
        raise OSError(errno.ENOSPC, f"{written} of {len(data)} bytes were written")
