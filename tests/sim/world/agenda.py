"""What happens next, in virtual time. Equal calls give equal orders: ties go to what was asked for first."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush


class Agenda:
    """Times are whole microseconds since the beginning."""

    def __init__(self) -> None:
        self.now_us = 0
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._asked = 0
        self._stopped = False

    @property
    def events(self) -> int:
        """How many have happened."""
        return self._asked - len(self._heap)

    def after(self, delay_us: int, call: Callable[[], None]) -> None:
        self._asked = asked = self._asked + 1
        heappush(self._heap, (self.now_us + delay_us, asked, call))

    def run(self, until_us: int) -> None:
        """Everything that is due up to `until_us`, which is the time then."""
        heap = self._heap
        while heap and not self._stopped:
            event = heappop(heap)
            if event[0] > until_us:
                heappush(heap, event)
                break
            self.now_us = event[0]
            event[2]()
        if not self._stopped:
            self.now_us = until_us

    def stop(self) -> None:
        """Nothing happens any more."""
        self._stopped = True
