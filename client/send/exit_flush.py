"""The interpreter ends, and a producer was not closed: what it holds is sent, and what is not stored is said.

The link's thread is a daemon and dies with the interpreter. Without this, sends that nobody waited for would
be lost without a word.
"""

from __future__ import annotations

import atexit
import logging
import time
import weakref
from typing import Protocol

from ringfence.native.errors import RingfenceError

EXIT_S_MAX = 10.0
"""How long all of them together may hold up the end of a program: two round trips to a node that is busy."""
logger = logging.getLogger("ringfence")


class Closable(Protocol):
    """A producer."""

    @property
    def topic(self) -> str:
        """Its topic's full name."""

    @property
    def owes(self) -> bool:
        """Whether this process made it, and an outcome is not known or was never shown."""

    def close(self, timeout_s: float | None = None) -> None:
        """End it within about `timeout_s` seconds; raises the first outcome that is not "stored"."""


_OPEN: weakref.WeakSet[Closable] = weakref.WeakSet()


def remember(producer: Closable) -> None:
    """Close it at the interpreter's end, if nobody did."""
    _OPEN.add(producer)


def _close_all() -> None:
    end = time.monotonic() + EXIT_S_MAX
    for producer in list(_OPEN):
        if not producer.owes:
            continue
        try:
            producer.close(max(0.0, end - time.monotonic()))
        except RingfenceError as error:
            notes = "".join(f"\n  {note}" for note in getattr(error, "__notes__", ()))
            logger.error(  # noqa: TRY400 - a traceback of this close would help nobody
                "a producer of topic %s was not closed, and not all that it sent is stored: %s%s",
                producer.topic,
                error,
                notes,
            )


atexit.register(_close_all)
