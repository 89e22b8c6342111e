"""What a wait without an end says in the log: each reason at once, then once in half a minute."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

import structlog

_LOG = structlog.get_logger("ringfence.cluster")
AGAIN_S: Final = 30.0
"""Who looks at the log sees soon enough that the wait goes on; a day of it is 3,000 lines."""
REASONS_MAX: Final = 64
"""Kept; a wait has a reason for each address that it asks."""


class WaitLog:
    """Of one process."""

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s = clock_s
        self._told_s: dict[tuple[str, str], float] = {}

    def log(self, event: str, why: str) -> None:
        """The wait goes on for this reason."""
        now_s, last_s = self._clock_s(), self._told_s.get((event, why))
        if last_s is None or now_s - last_s >= AGAIN_S:
            if len(self._told_s) >= REASONS_MAX:
                self._told_s.clear()
            self._told_s[event, why] = now_s
            _LOG.warning(event, why=why)
