"""Recordings of consensus as files of the data directory, a few of them, for `ringfence debug replay`."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Final

import structlog

from ringfence.control.consensus.recording import Recording, encode

_LOG = structlog.get_logger("ringfence.debug")
FOLDER: Final = "debug"
FILES_MAX: Final = 8
"""Files that are kept; the oldest goes. Each has at most two segments: some MB, mostly some hundred KB."""


class Recordings:
    """Writes recordings. A disk that fails here must not hide why something was to be written."""

    def __init__(self, root: Path) -> None:
        self._folder = root / FOLDER

    def keep(self, recording: Recording) -> Path:
        """Write one; the path, which holds nothing if the disk refused (the log says so)."""
        path = self._folder / f"consensus-{time.time_ns() // 1_000_000}.events"
        try:
            self._folder.mkdir(0o700, exist_ok=True)
            # Commands of administrators are in it: for the owner's eyes.
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(encode(recording))
                file.flush()
                os.fsync(descriptor)
            for old in sorted(self._folder.glob("consensus-*.events"))[:-FILES_MAX]:
                old.unlink(missing_ok=True)
        except OSError as error:
            _LOG.error("recording not written", path=str(path), error=str(error))
        return path
