"""A clock that runs while the machine sleeps: leases end on a machine that was suspended."""

from __future__ import annotations

import time

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def now_s() -> float:
    """Seconds since some moment in the past."""
    return time.clock_gettime(_CLOCK)
