"""What members of one cohort, and owners of its gates, did: events in the order of time. Values only.

A row is (partition, offset). A hold is the right of one member to read one partition; its numbers ascend. An
incarnation is the time between two seeks. The recorder sees what members hear and send, so what an owner did
lies between the event that asked for it and the one that heard of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple


class Key(NamedTuple):
    """Rows with equal `key` must be read in the order of `place`."""

    key: tuple[int, int]
    place: tuple[int, int]


class Held(NamedTuple):
    """A member hears that it has a hold; `position` is where the cohort stands, None: it was not asked."""

    member: str
    partition: int
    incarnation: int
    hold: int
    position: int | None = None


class Given(NamedTuple):
    """The application of a member gets rows `first` .. `end - 1`."""

    member: str
    partition: int
    incarnation: int
    hold: int
    first: int
    end: int


class Returned(NamedTuple):
    """A transaction was aborted: rows that were given under the hold from `first` on come again under it."""

    partition: int
    incarnation: int
    hold: int
    first: int


class Told(NamedTuple):
    """An acknowledgement of the rows before `through` leaves a member; `number` is its own."""

    member: str
    partition: int
    incarnation: int
    hold: int
    through: int
    number: int


class Taken(NamedTuple):
    """A member hears that the acknowledgement with this number was taken."""

    number: int


class Position(NamedTuple):
    """The owner of a gate tells how far the cohort is, by its log."""

    partition: int
    incarnation: int
    offset: int


class Sought(NamedTuple):
    """An incarnation begins, in each partition at this offset; 0 where none is named."""

    incarnation: int
    begins: Mapping[int, int]


class Made(NamedTuple):
    """A partition was made; `parents` have ended for good."""

    partition: int
    parents: tuple[int, ...]


class Sealed(NamedTuple):
    """A partition takes no more rows; `end` is the offset after its last one."""

    partition: int
    end: int


class Gone(NamedTuple):
    """Rows below an offset were removed, or are skipped because the cohort was told that they are gone."""

    partition: int
    below: int


class Leased(NamedTuple):
    """QUEUE: rows go to a member until `until`; it is their `deliveries`th delivery at least."""

    member: str
    partition: int
    lease: int
    first: int
    end: int
    deliveries: int
    at: float
    until: float


class Ended(NamedTuple):
    """QUEUE: a lease is over: it was given back, or refused."""

    lease: int


class Done(NamedTuple):
    """QUEUE: an acknowledgement of rows under a lease was taken."""

    lease: int
    first: int
    end: int


Event = (
    Held | Given | Returned | Told | Taken | Position | Sought | Made | Sealed | Gone | Leased | Ended | Done
)


@dataclass
class History:
    """Of one cohort.

    Attributes:
        events: in the order of time.
        key_of: what the order of a row is held against; None: no order is promised.
        ends: by partition, the rows that were readable in the end; empty if the run was cut off.
        repeats: whether rows may be given again after they were acknowledged (CHECKPOINT).
        deliveries_max: QUEUE: limit of deliveries of a row; 0: none.
        tells_gone: `Gone` stands before all rows that the cohort was given without the removed ones.
    """

    events: list[Event] = field(default_factory=list)
    key_of: Callable[[int, int], Key | None] = lambda *_: None
    ends: Mapping[int, int] = field(default_factory=dict)
    repeats: bool = False
    deliveries_max: int = 0
    tells_gone: bool = False


class Spans:
    """A set of offsets as ascending, disjoint ranges."""

    def __init__(self) -> None:
        self.ranges: list[tuple[int, int]] = []

    def add(self, first: int, end: int) -> None:
        """Take `first` .. `end - 1`. Most ranges come at the end."""
        if first >= end:
            return
        at = len(self.ranges)
        while at and self.ranges[at - 1][0] > end:
            at -= 1
        to = at
        while at and self.ranges[at - 1][1] >= first:
            at -= 1
            first, end = min(first, self.ranges[at][0]), max(end, self.ranges[at][1])
        self.ranges[at:to] = [(first, end)]

    def cut(self, first: int) -> None:
        """Take out all from `first` on."""
        self.ranges = [(low, min(high, first)) for low, high in self.ranges if low < first]

    def within(self, first: int, end: int) -> tuple[int, int] | None:
        """The first range of `first` .. `end - 1` that is in the set."""
        for low, high in self.ranges:
            if low < end and high > first:
                return max(low, first), min(high, end)
        return None

    def missing(self, first: int, end: int) -> tuple[int, int] | None:
        """The first range of `first` .. `end - 1` that is not in the set."""
        for low, high in self.ranges:
            if high <= first:
                continue
            if low > first:
                return (first, min(low, end)) if first < end else None
            first = high
        return (first, end) if first < end else None
