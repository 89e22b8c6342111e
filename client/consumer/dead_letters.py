"""What a consumer with `dead_letter=` exports, and when. Pure; `dead_letter_thread.py` carries it out.

A member exports what it has parked itself immediately. What others have left, because they ended or have no
`dead_letter=`, each member looks for: at its start and every minute.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ringfence.common.retry import Backoff

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringfence.consumer.parked import Item, Parked

LOOK_S: Final = 60.0
SPREAD: Final = 0.25  # looks of members that began together are spread by so much
AGE_MS: Final = 60_000  # what has been parked for so long is exported by each member that sees it
RETRY: Final = Backoff(first_s=1.0, cap_s=300.0)
# Failures in a row that end a look: the target takes nothing, or no node answers. Only first failures of
# ranges count. Others have a time of their own, and would keep looks from the ranges behind them.
FAILURES_MAX: Final = 3
# Ranges that this member has parked since the last look; what is above it is old enough a minute later.
OWN_MAX: Final = 1024
# Ranges whose failures are counted; others are tried with each look.
COUNTED_MAX: Final = 4096


class DeadLetters:
    """Decides for one consumer.

    `jitter` draws 0.0 <= x < 1.0. `look_at` is the time of the next look; the first one is at the start.
    """

    def __init__(self, jitter: Callable[[], float]) -> None:
        self._jitter = jitter
        self.look_at = 0.0
        self._own: list[tuple[int, int, int]] = []  # partition, first row, end
        self._of_look: list[tuple[int, int, int]] = []  # those known when the look began
        self._failures: dict[Item, tuple[int, float]] = {}  # count, and when it is tried again
        self._seen: set[Item] = set()
        self._in_a_row = self._failed_looks = 0

    def parked(self, partition: int, first: int, end: int, now: float) -> None:
        """What this member said has parked rows."""
        if len(self._own) < OWN_MAX:
            self._own.append((partition, first, end))
        # While looks fail, another range does not make them follow each other.
        if not self._failed_looks:
            self.look_at = min(self.look_at, now)

    # ---- a look at the list ------------------------------------------------------------------------------

    def begin(self) -> None:
        """The list is read now."""
        self._of_look, self._seen, self._in_a_row = list(self._own), set(), 0

    def wants(self, parked: Parked, now: float, wall_ms: int) -> bool:
        """Whether a range of the list is exported now."""
        self._seen.add(parked.item)
        known = self._failures.get(parked.item)
        if known is not None:
            return now >= known[1]
        is_own = any(
            partition == parked.partition and first < parked.end_offset and parked.first_offset < end
            for partition, first, end in self._of_look
        )
        return is_own or wall_ms - parked.time_ms >= AGE_MS

    def exported(self, item: Item) -> None:
        """It is not parked any more, or another exporter has it."""
        self._failures.pop(item, None)
        self._in_a_row = 0

    def failed(self, item: Item, now: float) -> bool:
        """It could not be exported. Returns whether the look goes on."""
        count = self._failures.get(item, (0, 0.0))[0] + 1
        if count > 1 or len(self._failures) < COUNTED_MAX:
            self._failures[item] = count, now + RETRY.delay_s(count, self._jitter())
        if count > 1:
            return True
        self._in_a_row += 1
        return self._in_a_row < FAILURES_MAX

    def looked(self, now: float, *, is_whole: bool) -> None:
        """The look has ended: through the whole list, or by failures in a row."""
        if not is_whole:
            self.look_failed(now)
            return
        self._failed_looks = 0
        # Its export was begun, or a failure of it is counted.
        self._own = [one for one in self._own if one not in self._of_look]
        self._failures = {item: known for item, known in self._failures.items() if item in self._seen}
        next_s = LOOK_S * (1 - SPREAD + 2 * SPREAD * self._jitter())
        again = [at for _, at in self._failures.values()]
        self.look_at = now if self._own else min([now + next_s, *again])

    def look_failed(self, now: float) -> None:
        """The list could not be read, or nothing of it exported."""
        self._failed_looks += 1
        self.look_at = now + RETRY.delay_s(self._failed_looks, self._jitter())
