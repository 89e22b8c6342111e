"""How a background task ended."""

from __future__ import annotations

import asyncio


def failure_of(task: asyncio.Task[None]) -> Exception | None:
    """The error that ended a task; None if it returned or was cancelled.

    Raises:
        BaseException: what ends a process is no failure of the task. In a callback of the task it reaches the
            loop's exception handler.
    """
    if task.cancelled() or (error := task.exception()) is None:
        return None
    if not isinstance(error, Exception):
        raise error
    return error
