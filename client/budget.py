"""How many bytes a producer may hold: what is encoded and has no outcome yet."""

from __future__ import annotations

import threading
import time

from ringfence.native.errors import OverloadedError


class Budget:
    """A counter with a limit. One body above the whole limit may be alone, so that nothing waits for ever."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self._used = 0
        self._closed = False
        self._changed = threading.Condition(threading.Lock())

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
        with self._changed:
            if not self._fits(size):
                end = time.monotonic() + timeout_s
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
            self._used += size

    def give(self, size: int) -> None:
        """Give bytes back (a negative size takes more, without waiting: an estimate was too low)."""
        with self._changed:
            self._used -= size
            self._changed.notify_all()

    def close(self) -> None:
        """Let everybody through: whoever waits will find the producer closed."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _fits(self, size: int) -> bool:
        return self._closed or self._used == 0 or self._used + size <= self.bytes_max
