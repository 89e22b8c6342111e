"""Why the node is not all well.

One sentence a reason; operators read them in STATUS, /health/ready and the log.
"""

from __future__ import annotations

import structlog

_LOG = structlog.get_logger("ringfence.health")
REASONS_MAX = 1_000
"""Reasons kept: a damaged disk may quarantine ten thousand partitions, and STATUS must still fit its body."""
REASONS_SHOWN = 50


class Health:
    """The phase of the process and the reasons that hold now. Keyed, so that a reason can end."""

    def __init__(self) -> None:
        self.phase = "starting"  # starting | serving | stopping
        self._reasons: dict[str, str] = {}

    @property
    def state(self) -> str:
        """One of starting, serving, degraded, stopping."""
        return "degraded" if self.phase == "serving" and self._reasons else self.phase

    @property
    def reasons(self) -> list[str]:
        """The first REASONS_SHOWN, oldest first, and how many more there are."""
        shown = list(self._reasons.values())[:REASONS_SHOWN]
        more = len(self._reasons) - len(shown)
        return [*shown, f"and {more} more; see the log"] if more > 0 else shown

    def set_reason(self, key: str, reason: str) -> None:
        """A reason holds from now on; the same one again is told once."""
        if self._reasons.get(key) == reason:
            return
        _LOG.error("degraded", reason=reason)
        if key in self._reasons or len(self._reasons) < REASONS_MAX:
            self._reasons[key] = reason

    def clear_reason(self, key: str) -> None:
        """The reason holds no longer."""
        ended = self._reasons.pop(key, None)
        if ended is not None:
            _LOG.info("mended", reason=ended)
