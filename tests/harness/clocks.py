"""The wall clock of one process, which the test moves while the process runs (libfaketime).

The monotonic clock is left alone: no machine's ever jumps.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

# How often a process reads its clock's file, in seconds.
CLOCK_READ_S: Final = 1
# Debian's libfaketime.
CLOCK_LIBRARY: Final = "faketime/libfaketimeMT.so.1"


class ProcessClock:
    """A clock file, and the environment of a process that follows it."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.set(0)

    @property
    def environment(self) -> dict[str, str]:
        library = next(Path("/usr/lib").glob(f"*/{CLOCK_LIBRARY}"), None)
        assert library is not None, f"{CLOCK_LIBRARY} is not under /usr/lib: install the package libfaketime"
        return {
            "LD_PRELOAD": str(library),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_CACHE_DURATION": str(CLOCK_READ_S),
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }

    @property
    def ahead_s(self) -> int:
        """How far the clock is ahead of the true time; negative if it is behind."""
        return int(self._file.read_text())

    def set(self, ahead_s: int) -> None:
        """Move the clock; the process follows within CLOCK_READ_S."""
        new = self._file.with_suffix(".new")
        new.write_text(f"{ahead_s:+d}\n")
        new.rename(self._file)
