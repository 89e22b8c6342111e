"""How many bytes a producer may hold: what is encoded and has no outcome yet."""

from __future__ import annotations

import threading
import time

from ringfence.locks import Owned
from ringfence.native.errors import OverloadedError


class Budget:
    """A counter with a limit. One body above the whole limit may be alone, so that nothing waits for ever."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self._used = 0
        self._closed = False
        owned = Owned()
        self._lock, self.is_mine = owned.lock, owned.is_mine
        self._changed = threading.Condition(self._lock)
        self._waiting = 0  # threads in `take`: nobody is told of a change where nobody waits

    @property
    def used(self) -> int:
        return self._used

    def take(self, size: int, *, timeout_s: float) -> None:
        """Wait until `size` bytes fit, and take them.

        Args:
            size: bytes.
            timeout_s: seconds; 0 does not wait.

        Raises:
            OverloadedError: they did not fit in time; nothing was taken.
        """
        with self._lock:
            if not self._fits(size):
                self._wait(size, time.monotonic() + timeout_s)
            self._used += size

    def _wait(self, size: int, end: float) -> None:
        self._waiting += 1
        try:
            while not self._fits(size):
                left = end - time.monotonic()
                if left <= 0:
                    raise OverloadedError(
                        "the producer holds as many bytes without an outcome as it may; wait for "
                        "answers, or raise bytes_in_flight_max",
                        bytes_held=self._used,
                        bytes_wanted=size,
                        bytes_in_flight_max=self.bytes_max,
                    )
                self._changed.wait(left)
        finally:
            self._waiting -= 1

    def give(self, size: int) -> None:
        """Give bytes back (a negative size takes more, without waiting: an estimate was too low)."""
        with self._lock:
            self._used -= size
            if self._waiting:
                self._changed.notify_all()

    def close(self) -> None:
        """Let everybody through: whoever waits will find the producer closed."""
        with self._lock:
            self._closed = True
            self._changed.notify_all()

    def _fits(self, size: int) -> bool:
        return self._closed or self._used == 0 or self._used + size <= self.bytes_max
