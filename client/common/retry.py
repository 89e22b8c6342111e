"""Delays between retries, and deadlines. Pure: the caller passes time and randomness.

A delay doubles from `first_s` to `cap_s` and is then spread over its upper half. So clients that lost a node
at the same moment do not return at the same moment, and a retry never follows immediately.
"""

from __future__ import annotations

from dataclasses import dataclass

from ringfence.native.wire import DEADLINE_MS_MAX

DOUBLINGS_MAX = 30  # 2**30 times any first delay is above every cap


@dataclass(frozen=True, slots=True)
class Backoff:
    """Delays in seconds: `first_s`, doubled with each try, never above `cap_s`."""

    first_s: float = 0.02
    cap_s: float = 2.0

    def delay_s(self, tries: int, jitter: float, at_least_s: float = 0.0) -> float:
        """Delay after the `tries`-th failure (1, 2, ...).

        Args:
            tries: failures so far, this one included.
            jitter: 0.0 <= jitter < 1.0, drawn by the caller.
            at_least_s: minimum that the node requests; it takes precedence over the cap.
        """
        whole = min(self.cap_s, self.first_s * 2.0 ** min(tries - 1, DOUBLINGS_MAX))
        return max(at_least_s, whole * (0.5 + jitter / 2))


def deadline_ms(deadline: float, now: float, cap_ms: int = DEADLINE_MS_MAX) -> int:
    """Milliseconds until `deadline` for a header: 1 .. `cap_ms`; `deadline` may be infinite."""
    left_s = deadline - now
    return max(1, cap_ms if left_s * 1000 >= cap_ms else int(left_s * 1000))
