"""Judge leases of rows of a QUEUE. A part of `cohorts.py`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

from tests.checker.cohort_history import Done, Ended, Event, Leased, Spans


class QueueJudge:
    """Takes events in their order. `find` is called with the kind of an anomaly and a text."""

    def __init__(self, deliveries_max: int, find: Callable[[str, str], None]) -> None:
        self._max, self._find = deliveries_max, find
        self._leases: dict[int, Leased] = {}
        self._live = defaultdict[int, dict[int, Leased]](dict)  # by partition
        self._done = defaultdict[int, Spans](Spans)

    def take(self, event: Event) -> None:
        match event:
            case Leased():
                self._leased(event)
            case Ended(lease):
                self._over(lease)
            case Done():
                self._took(event)

    def _over(self, number: int) -> None:
        lease = self._leases.get(number)
        if lease is not None:
            self._live[lease.partition].pop(number, None)

    def _leased(self, event: Leased) -> None:
        find = self._find
        live = self._live[event.partition]
        for number in [number for number, lease in live.items() if lease.until <= event.at]:
            del live[number]
        for lease in live.values():
            if lease.first < event.end and event.first < lease.end:
                find("two leases", f"{event}, and {lease} lasts")
        if self._max and event.deliveries > self._max:
            find("over the limit", f"{event}, the limit is {self._max}")
        if (span := self._done[event.partition].within(event.first, event.end)) is not None:
            find("again", f"{event}, and rows {span} were acknowledged")
        self._leases[event.lease] = live[event.lease] = event

    def _took(self, event: Done) -> None:
        find = self._find
        lease = self._leases[event.lease]
        done = self._done[lease.partition]
        if (span := done.within(event.first, event.end)) is not None:
            find("acknowledged twice", f"{event}: rows {span} of partition {lease.partition}")
        done.add(event.first, event.end)
