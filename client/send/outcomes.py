"""Outcomes of a producer's sends: the number of pending ones and the list of failures."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, NamedTuple

from ringfence.common.locks import OwnedLock
from ringfence.native.errors import RingfenceError
from ringfence.send.failures import noted

if TYPE_CHECKING:
    from ringfence.send.sender import Sink

FAILURES_MAX = 1000  # kept; further ones are only counted


class Failure(NamedTuple):
    """A send whose outcome was not "stored"."""

    send: int
    error: RingfenceError


class SendOutcomes:
    """Thread-safe. Every failure is kept until `raise_failures` has raised it."""

    def __init__(self) -> None:
        owned = OwnedLock()
        self._lock, self.is_mine = owned.lock, owned.is_mine
        self._changed = threading.Condition(self._lock)
        self._open = 0
        self._kept: list[Failure] = []
        self._failed = 0
        self._shown = 0

    @property
    def failures(self) -> tuple[Failure, ...]:
        """The first FAILURES_MAX failures, in the order in which they occurred."""
        return tuple(self._kept)

    @property
    def pending(self) -> int:
        """Number of sends without an outcome."""
        return self._open

    @property
    def has_pending(self) -> bool:
        """Whether a send has no outcome yet, or a failure was not raised."""
        return self._open > 0 or self._failed > self._shown

    def began(self, sends: int = 1) -> None:
        """Add pending sends; negative: sends that did not begin after all."""
        with self._lock:
            self._open += sends
            if not self._open:
                self._changed.notify_all()

    def ended(self, send: int, error: RingfenceError | None) -> None:
        """Record the outcome of a send; None: stored."""
        with self._lock:
            self._open -= 1
            if error is not None:
                self._failed += 1
                if len(self._kept) < FAILURES_MAX:
                    self._kept.append(Failure(send, error))
            if not self._open:
                self._changed.notify_all()

    def settled(self, sink: Sink) -> None:
        """Record the outcomes of the sends of a sink that have one now."""
        for future in sink.take_settled():
            self.ended(future.number, future.error)

    def wait(self, timeout_s: float | None) -> int:
        """Wait until no send is pending. Returns the number that is pending after `timeout_s` seconds."""
        end = None if timeout_s is None else time.monotonic() + timeout_s
        with self._changed:
            while self._open:
                left = None if end is None else end - time.monotonic()
                if left is not None and left <= 0:
                    return self._open
                self._changed.wait(left)
        return 0

    def raise_failures(self) -> None:
        """Raise the first failure that was not raised before, with notes on the others."""
        with self._lock:
            shown, self._shown = self._shown, self._failed
            count, new = self._failed - shown, self._kept[shown:]
        if count:
            first = new[0].error if new else self._kept[-1].error
            raise noted(first, [failure.error for failure in new[1:]], count)
