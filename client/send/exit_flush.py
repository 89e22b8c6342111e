"""Flush producers that were never closed when the interpreter exits, and log rows that could not be stored.

The I/O thread is a daemon and ends with the interpreter. Without this flush, sends that no caller waited for
would be lost silently.
"""

from __future__ import annotations

import atexit
import logging
import time
import weakref
from typing import Protocol

from ringfence.native.errors import RingfenceError

EXIT_S_MAX = 10.0
"""Longest delay of a program's exit, for all producers together: two round trips to a busy node."""
logger = logging.getLogger("ringfence")


class Closable(Protocol):
    """A producer."""

    @property
    def topic(self) -> str:
        """Its topic's full name."""

    @property
    def has_pending(self) -> bool:
        """Whether this process made it, and an outcome is pending or was never raised."""

    def close(self, timeout_s: float | None = None) -> None:
        """Close it within about `timeout_s` seconds; raises the first outcome that is not "stored"."""


_OPEN: weakref.WeakSet[Closable] = weakref.WeakSet()


def remember(producer: Closable) -> None:
    """Close the producer when the interpreter exits, unless it was closed before."""
    _OPEN.add(producer)


def _close_all() -> None:
    end = time.monotonic() + EXIT_S_MAX
    for producer in list(_OPEN):
        if not producer.has_pending:
            continue
        try:
            producer.close(max(0.0, end - time.monotonic()))
        except RingfenceError as error:
            notes = "".join(f"\n  {note}" for note in getattr(error, "__notes__", ()))
            logger.error(  # noqa: TRY400 - the traceback of this close has no use
                "a producer of topic %s was not closed, and not all of its rows are stored: %s%s",
                producer.topic,
                error,
                notes,
            )


atexit.register(_close_all)
