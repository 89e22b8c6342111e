"""Write recordings of consensus into the data directory, for `ringfence debug replay`."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Final

import structlog

from ringfence.control.consensus.step_recording import Recording, encode

_LOG = structlog.get_logger("ringfence.debug")
FOLDER: Final = "debug"
# Recordings on disk; the oldest is deleted. Each has at most two segments: 100 KB to some MB.
FILES_MAX: Final = 8


class Recordings:
    """Writes recordings. A disk error is logged, not raised: it must not hide the reason of the recording."""

    def __init__(self, root: Path) -> None:
        self._folder = root / FOLDER

    def save(self, recording: Recording) -> Path:
        """Write `recording`; return its path. After a disk error the file is missing or partial."""
        path = self._folder / f"consensus-{time.time_ns() // 1_000_000}.events"
        try:
            self._folder.mkdir(0o700, exist_ok=True)
            # A recording has commands of administrators: only the file's owner may read it.
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
