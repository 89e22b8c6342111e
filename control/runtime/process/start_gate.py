"""Refuse requests while the node starts."""

from __future__ import annotations

from ringfence.control.runtime.process.errors import RequestRefused
from ringfence.native.wire import Code


class StartGate:
    """Open once the start of this node is committed and its orders are executed; it never closes again."""

    def __init__(self) -> None:
        self.is_open = False

    def open(self) -> None:
        self.is_open = True

    def check(self) -> None:
        """Raise RequestRefused while the node starts."""
        if not self.is_open:
            raise starting()


def starting(*, retry_after_ms: int = 500) -> RequestRefused:
    """The refusal of a request that comes too early."""
    return RequestRefused(Code.STOPPING, "the node is starting", retry_after_ms=retry_after_ms)
