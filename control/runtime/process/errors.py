"""Refusals of the runtime in answers to clients."""

from __future__ import annotations

from typing import Any

from ringfence.native.wire import Code


class RequestRefused(Exception):  # noqa: N818 - an answer, not a fault
    """A control request is refused. Nothing was changed, unless `index` names the entry of a change."""

    def __init__(
        self, code: Code, message: str, *, retry_after_ms: int = 0, index: int = 0, **details: Any
    ) -> None:
        super().__init__(message)
        self.code, self.message, self.details = code, message, details
        self.retry_after_ms, self.index = retry_after_ms, index


class NoMajorityError(RequestRefused):
    """No majority of the voters answered in time. Ask another node, or try again later."""
