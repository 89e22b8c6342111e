"""Short ways to refuse a command."""

from __future__ import annotations

from ringfence.control.model.results import Refused
from ringfence.native.wire import Code


def invalid(message: str) -> Refused:
    return Refused(code=Code.INVALID_ARGUMENT, message=message)


def stale(message: str) -> Refused:
    """A compare-and-set that came too late: look again, decide again."""
    return Refused(code=Code.TOO_OLD, message=message)


def conflict(message: str) -> Refused:
    """Something else is under way already: wait for its end, or stop it. CONFLICT is for content."""
    return Refused(code=Code.ALREADY_EXISTS, message=message)


def unknown_topic(topic: int) -> Refused:
    return Refused(
        code=Code.UNKNOWN_TOPIC, message=f"no topic has the id {topic}; it was deleted or never was"
    )
