"""Limit the bytes of a producer that are encoded and have no outcome yet."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from ringfence.common.locks import OwnedLock
from ringfence.send.wait_reasons import full_error

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringfence.send.wait_reasons import PendingSends


class Budget:
    """A counter with a limit.

    A body above the whole limit is allowed alone, so that nothing waits forever.
    """

    def __init__(self, bytes_max: int, blocked: Callable[[float], PendingSends]) -> None:
        """`blocked`: the topic and the reasons of the pending sends, given the seconds of a wait."""
        self.bytes_max, self._blocked = bytes_max, blocked
        self._used = 0
        self._closed = False
        owned = OwnedLock()
        self._lock, self.is_mine = owned.lock, owned.is_mine
        self._changed = threading.Condition(self._lock)
        self._waiting = 0  # threads that wait in `take`; without any no notification is needed

    @property
    def used(self) -> int:
        return self._used

    def take(self, size: int, *, timeout_s: float) -> None:
        """Wait until `size` bytes fit, and take them.

        Args:
            size: bytes.
            timeout_s: seconds; 0 does not wait.

        Raises:
            OverloadedError: they did not fit in time; nothing was taken. It names why the sends are pending.
        """
        with self._lock:
            if self._fits(size) or self._wait(size, time.monotonic() + timeout_s):
                self._used += size
                return
            held = self._used
        # Without the lock: the I/O thread, which gives the reasons, also takes the lock to give bytes back.
        topic, waits = self._blocked(timeout_s)
        raise full_error(topic, waits, bytes_held=held, bytes_wanted=size, bytes_in_flight_max=self.bytes_max)

    def _wait(self, size: int, end: float) -> bool:
        self._waiting += 1
        try:
            while not self._fits(size):
                left = end - time.monotonic()
                if left <= 0:
                    return False
                self._changed.wait(left)
            return True
        finally:
            self._waiting -= 1

    def give(self, size: int) -> None:
        """Give bytes back (a negative size takes more, without waiting: an estimate was too low)."""
        with self._lock:
            self._used -= size
            if self._waiting:
                self._changed.notify_all()

    def close(self) -> None:
        """Lift the limit: waiting callers then see that the producer is closed."""
        with self._lock:
            self._closed = True
            self._changed.notify_all()

    def _fits(self, size: int) -> bool:
        return self._closed or self._used == 0 or self._used + size <= self.bytes_max
