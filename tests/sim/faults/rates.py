"""How often what goes wrong in one run: drawn from its seed, so that runs differ in kind too."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Self


@dataclass(frozen=True, slots=True)
class Rates:
    """Mean times between faults in ms, 0 = never; the others are shares of one."""

    crash_ms: int  # the process dies
    power: float  # share of crashes that take the power with them
    mid_job: float  # share of crashes in the middle of what writers do
    cut_ms: int  # a connection is cut
    late: float  # share of requests on a cut connection that still reach the node
    epoch_ms: int  # a partition gets a new owner epoch
    truncate_ms: int  # the log start moves up
    sync_error_ms: int  # syncs fail until the node is restarted
    read_error_ms: int  # reads fail for a while
    full_ms: int  # the disk is full for a while
    rot_ms: int  # a byte rots
    slow: float  # share of disk jobs that take twenty times as long

    @classmethod
    def drawn(cls, random: Random) -> Self:
        """Some faults are off in most runs: what only shows without the others must have its chance."""

        def sometimes(share: float, low: int, high: int) -> int:
            return random.randrange(low, high) if random.random() < share else 0

        return cls(
            crash_ms=random.randrange(1200, 3000),
            power=random.choice([0.3, 0.7, 1.0]),
            mid_job=random.choice([0.2, 0.6]),
            cut_ms=sometimes(0.7, 400, 3000),
            late=random.random(),
            epoch_ms=sometimes(0.6, 500, 3000),
            truncate_ms=sometimes(0.7, 60, 1000),
            sync_error_ms=sometimes(0.4, 2000, 6000),
            read_error_ms=sometimes(0.3, 1000, 4000),
            full_ms=sometimes(0.3, 1500, 6000),
            rot_ms=sometimes(0.3, 1500, 6000),
            slow=random.choice([0.0, 0.02, 0.2]),
        )
