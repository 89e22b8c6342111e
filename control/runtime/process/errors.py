"""Errors of the runtime that a client is answered with."""

from __future__ import annotations

from typing import Any

from ringfence.native.wire import Code


class RequestRefused(Exception):  # noqa: N818 - it is an answer, not a fault
    """A control request is refused; nothing was changed, unless `index` names the entry that did it."""

    def __init__(
        self, code: Code, message: str, *, retry_after_ms: int = 0, index: int = 0, **details: Any
    ) -> None:
        super().__init__(message)
        self.code, self.message, self.details = code, message, details
        self.retry_after_ms, self.index = retry_after_ms, index


class NoMajorityError(RequestRefused):
    """No majority of the voters answered in time; another node, or a moment later, may do."""
