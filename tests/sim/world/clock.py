"""The clocks of one machine: a monotonic one that may run fast or slow, and a wall clock that may jump."""

from __future__ import annotations

from typing import Final

from tests.sim.world.agenda import Agenda

UNIX_MS: Final = 1_700_000_000_000


class Clock:
    """Driven by the agenda. `rate` is local seconds for each second that really passes."""

    def __init__(self, agenda: Agenda) -> None:
        self._agenda = agenda
        self.rate = 1.0
        self.wall_ahead_ms = 0
        self._since_us, self._reached_s = agenda.now_us, 1_000.0

    def mono_s(self) -> float:
        return self._reached_s + (self._agenda.now_us - self._since_us) * self.rate / 1e6

    def unix_ms(self) -> int:
        return UNIX_MS + self._agenda.now_us // 1000 + self.wall_ahead_ms

    def both_ms(self) -> tuple[int, int]:
        """Wall clock and monotonic clock."""
        now_us = self._agenda.now_us
        mono_s = self._reached_s + (now_us - self._since_us) * self.rate / 1e6
        return UNIX_MS + now_us // 1000 + self.wall_ahead_ms, int(mono_s * 1000)

    def us_until(self, when_s: float) -> int:
        """Virtual time until the monotonic clock shows `when_s`, rounded up: no timer comes early."""
        mono_s = self._reached_s + (self._agenda.now_us - self._since_us) * self.rate / 1e6
        return int((when_s - mono_s) * 1e6 / self.rate) + 1

    def set_rate(self, rate: float) -> None:
        self._reached_s, self._since_us = self.mono_s(), self._agenda.now_us
        self.rate = rate
