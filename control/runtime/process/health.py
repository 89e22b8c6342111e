"""Track the reasons for which the node is degraded.

Each reason is one sentence; operators read the reasons in STATUS, /health/ready and the log.
"""

from __future__ import annotations

import structlog

_LOG = structlog.get_logger("ringfence.health")
# Reasons in memory: a damaged disk may quarantine ten thousand partitions, and STATUS must fit its body.
REASONS_MAX = 1_000
REASONS_SHOWN = 50


class Health:
    """The phase of the process, and the current reasons by key; a key lets its owner clear the reason."""

    def __init__(self) -> None:
        self.phase = "starting"  # starting | serving | stopping
        self._reasons: dict[str, str] = {}

    @property
    def state(self) -> str:
        """One of starting, serving, degraded, stopping."""
        return "degraded" if self.phase == "serving" and self._reasons else self.phase

    @property
    def reasons(self) -> list[str]:
        """The first REASONS_SHOWN reasons, oldest first, and a line with the number of the others."""
        shown = list(self._reasons.values())[:REASONS_SHOWN]
        more = len(self._reasons) - len(shown)
        return [*shown, f"and {more} more; see the log"] if more > 0 else shown

    def set_reason(self, key: str, reason: str) -> None:
        """Set the reason of `key`; an unchanged reason is not logged again."""
        if self._reasons.get(key) == reason:
            return
        _LOG.error("degraded", reason=reason)
        if key in self._reasons or len(self._reasons) < REASONS_MAX:
            self._reasons[key] = reason

    def clear_reason(self, key: str) -> None:
        """Clear the reason of `key`, if there is one."""
        reason = self._reasons.pop(key, None)
        if reason is not None:
            _LOG.info("reason cleared", reason=reason)
