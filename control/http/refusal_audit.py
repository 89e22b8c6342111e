"""Changes that were refused for want of rights: a line each in the audit log, but only so many.

Asking once more needs no right: lines beyond an allowance are counted and not written, so a flood neither
pushes the lines of changes out of the log nor keeps its disk busy.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from fastapi import Request

from ringfence.control.http.audit_lines import line_of
from ringfence.control.http.problems import Problem
from ringfence.control.model.tokens import Token
from ringfence.control.runtime.handlers.audit import Audit

LINES_MAX: Final = 30
"""At once for one token, and for all who show none that is known together: a mistake shows whole."""
LINE_AGAIN_S: Final = 60.0
"""One more after this: a flood without an end writes 1,440 lines a day; the log has room for 80,000."""
NAMES_MAX: Final = 1_024
"""Names that are kept; only an administrator makes new ones, and beyond this all begin anew."""
READS: Final = frozenset({"GET", "HEAD"})


@dataclass(slots=True)
class _Allowance:
    """Of one name. `left_out`: refused since its last line."""

    lines: float
    at_s: float
    left_out: int = 0

    def earn(self, now_s: float) -> None:
        self.lines = min(LINES_MAX, self.lines + (now_s - self.at_s) / LINE_AGAIN_S)
        self.at_s = now_s


class RefusalAudit:
    """Of one node, since its start."""

    def __init__(self, audit: Audit, now_s: Callable[[], float] = time.monotonic) -> None:
        self._audit, self._now_s = audit, now_s
        self._allowances: dict[str, _Allowance] = {}

    async def add(self, request: Request, problem: Problem, token: Token | None) -> None:
        """A request was refused. `token`: the one that it showed, if the cluster has it; it may be too weak
        or expired. Returns when the line is durable.
        """
        if request.method in READS:
            return
        name, role = ("", "") if token is None else (token.name, str(token.role))
        allowance = self._allowance(name)
        if allowance.lines < 1:
            allowance.left_out += 1
            return
        allowance.lines -= 1
        more = f"; {allowance.left_out} more since the line before" if allowance.left_out else ""
        allowance.left_out = 0
        # Nobody has looked at the body, so what was wanted is known by its operation only.
        line = line_of(request, name, role, getattr(request.scope["route"], "operation_id", None) or "")
        await self._audit.add(line.ended(problem.status, problem.detail[:200] + more))

    def _allowance(self, name: str) -> _Allowance:
        now_s = self._now_s()
        known = self._allowances.get(name)
        if known is None:
            if len(self._allowances) >= NAMES_MAX:
                self._allowances.clear()
            known = self._allowances[name] = _Allowance(LINES_MAX, now_s)
        known.earn(now_s)
        return known
