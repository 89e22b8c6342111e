"""Log the reasons of a long wait: each immediately, then every half minute."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

import structlog

_LOG = structlog.get_logger("ringfence.cluster")
# Interval of lines for the same reason, in seconds; a day of waiting is 3,000 lines.
REPEAT_S: Final = 30.0
# Reasons in memory; a wait has one for each address that it asks.
REASONS_MAX: Final = 64


class WaitLog:
    """The wait log of one process."""

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s = clock_s
        self._logged_s: dict[tuple[str, str], float] = {}

    def log(self, event: str, why: str) -> None:
        """Log the reason `why`, unless it was logged less than REPEAT_S ago."""
        now_s, last_s = self._clock_s(), self._logged_s.get((event, why))
        if last_s is None or now_s - last_s >= REPEAT_S:
            if len(self._logged_s) >= REASONS_MAX:
                self._logged_s.clear()
            self._logged_s[event, why] = now_s
            _LOG.warning(event, why=why)
