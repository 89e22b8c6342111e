"""How much must have happened before a run proves anything."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from tests.chaos.cohort_record import Part

MAIN = ("kill", "pause", "partition", "power_cut")
OTHER = ("slow_disk", "failing_disk", "full_disk", "clock_jump")


@dataclass(frozen=True)
class Counts:
    """What happened so far."""

    faults: Counter[str]
    while_moving: int
    moves: int
    rows: int


@dataclass(frozen=True)
class Goals:
    """Least counts. Of five minutes: issue and CI ask for these; other times have their share of them."""

    faults: int = 60
    each_main: int = 10
    each_other: int = 4
    while_moving: int = 20
    moves: int = 20
    rows: int = 2_000_000

    @classmethod
    def of(cls, seconds: float) -> Goals:
        """For so long a run; each kind of fault at least once, however short it is."""
        five, share = cls(), seconds / 300
        return cls(*(max(1, int(getattr(five, name) * share)) for name in cls.__dataclass_fields__))

    def missing(self, counts: Counts) -> list[str]:
        """A line for each count that is too low."""
        done = counts.faults
        wanted = {
            "faults": (done.total(), self.faults),
            **{f"faults of kind {kind}": (done[kind], self.each_main) for kind in MAIN},
            **{f"faults of kind {kind}": (done[kind], self.each_other) for kind in OTHER},
            "faults while partitions moved": (counts.while_moving, self.while_moving),
            "committed moves": (counts.moves, self.moves),
            "rows": (counts.rows, self.rows),
        }
        return [
            f"{what}: {count:,}, wanted {least:,}" for what, (count, least) in wanted.items() if count < least
        ]


@dataclass(frozen=True)
class CohortCounts:
    """What happened in one cohort so far."""

    acknowledged: int
    handovers: int
    deaths: int


@dataclass(frozen=True)
class CohortGoals:
    """Least counts of one cohort, of five minutes. A QUEUE has no hand-overs."""

    acknowledged: int = 10_000
    handovers: int = 10
    deaths: int = 4

    @classmethod
    def of(cls, seconds: float) -> CohortGoals:
        """For so long a run; each at least once."""
        five, share = cls(), seconds / 300
        return cls(*(max(1, int(getattr(five, name) * share)) for name in cls.__dataclass_fields__))

    def missing(self, cohort: str, counts: CohortCounts) -> list[str]:
        """A line for each count that is too low."""
        wanted = {
            "rows acknowledged": (counts.acknowledged, self.acknowledged),
            "hand-overs": (counts.handovers, self.handovers),
            "deaths of members": (counts.deaths, self.deaths),
        }
        return [
            f"{what} in {cohort}: {count:,}, wanted {least:,}"
            for what, (count, least) in wanted.items()
            if count < least
        ]


def missing_in_lineage(parts: Sequence[Part], given: Collection[int], owner_changes: int) -> list[str]:
    """What a cohort did not see of a topic. `given`: partitions of which its members had rows."""
    children = Counter(parent for part in parts for parent in part.parents)
    pairs = [(part, parent) for part in parts for parent in part.parents]
    seen = [(part, parent) for part, parent in pairs if part.partition in given and parent in given]
    has_seen = {
        "rows of a partition that was split, and of its child": any(children[one] > 1 for _, one in seen),
        "rows of partitions that were merged, and of their child": any(
            len(part.parents) > 1 for part, _ in seen
        ),
        "another owner of a gate": owner_changes > 0,
    }
    return [f"no member saw {what}" for what, is_there in has_seen.items() if not is_there]
