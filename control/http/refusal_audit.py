"""Audit changes that are refused for lack of rights, up to a limited rate.

Such requests need no right, so their number is unlimited. Beyond an allowance they are counted instead of
written: a flood neither rotates the lines of changes out of the log nor keeps the disk busy.
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

# Allowance of one token, and of all callers without a valid token together: enough to show a whole mistake.
LINES_MAX: Final = 30
# The allowance grows by one line in this time: an endless flood writes 1,440 lines a day, and the log has
# room for 80,000.
LINE_AGAIN_S: Final = 60.0
# Tokens with an allowance. Only an administrator creates tokens; above the limit all allowances are reset.
NAMES_MAX: Final = 1_024
READS: Final = frozenset({"GET", "HEAD"})


@dataclass(slots=True)
class _Allowance:
    """The allowance of one token.

    `lines` may be written now, as of monotonic time `at_s`. `left_out` requests were refused without a line
    since the last one.
    """

    lines: float
    at_s: float
    left_out: int = 0

    def earn(self, now_s: float) -> None:
        self.lines = min(LINES_MAX, self.lines + (now_s - self.at_s) / LINE_AGAIN_S)
        self.at_s = now_s


class RefusalAudit:
    """The audit of refusals of one node, since its start."""

    def __init__(self, audit: Audit, now_s: Callable[[], float] = time.monotonic) -> None:
        self._audit, self._now_s = audit, now_s
        self._allowances: dict[str, _Allowance] = {}

    async def add(self, request: Request, problem: Problem, token: Token | None) -> None:
        """Audit a refused request; return once the line is durable.

        `token` is that of the request if the cluster has it; it may be expired, or have too few rights.
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
        # The body was not read, so the line names the operation only.
        line = line_of(request, name, role, getattr(request.scope["route"], "operation_id", None) or "")
        await self._audit.add(line.ended(problem.status, problem.detail[:200] + more))

    def _allowance(self, name: str) -> _Allowance:
        now_s = self._now_s()
        allowance = self._allowances.get(name)
        if allowance is None:
            if len(self._allowances) >= NAMES_MAX:
                self._allowances.clear()
            allowance = self._allowances[name] = _Allowance(LINES_MAX, now_s)
        allowance.earn(now_s)
        return allowance
