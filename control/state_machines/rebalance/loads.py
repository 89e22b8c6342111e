"""Measure loads of partitions: rates from counters at owners, and all nodes' rates at the leader. Pure.

    Meter       at an owner: counters in, a bounded report out, which a heartbeat carries
    Board       the reports of all nodes, complete only at the leader
    advertised  loads of a topic's partitions for producers of topics without a key

Loads are soft state: they inform the policy and operators, and losing them breaks nothing (F25). Bytes are
those of stored records, requests are appended batches; reads are not counted by partition.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Final, NamedTuple

import msgspec
from msgspec import Meta

from ringfence.control.model.ids import NodeId, PartitionId
from ringfence.control.model.topics import Topic

# Partitions in one node's report, the busiest ones: 5 KB at most. The report has the sum of the others.
PARTS_MAX: Final = 256
# Time between two readings of the counters: shorter than a policy's interval, much longer than a group
# commit.
LOOK_MS: Final = 2_000
# A reading costs 2 us for each partition on the node's loop: with this interval 0.2 % of it.
LOOK_MS_PER_PARTITION: Final = 1
# Age at which a report does not count any more: three readings of a node with 10,000 partitions.
STALE_MS: Final = 30_000

Number = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]


class Load(msgspec.Struct, frozen=True, array_like=True):
    """One partition at its owner: bytes and batches appended per second."""

    partition: Number
    bytes_s: Number
    requests_s: Number


class Told(msgspec.Struct, frozen=True, array_like=True):
    """A node's report. `others_*` are sums over the partitions without an entry in `parts`.

    `level` is the newest level that the node's program knows. Programs without levels neither send nor
    read it.
    """

    parts: Annotated[tuple[Load, ...], Meta(max_length=PARTS_MAX)] = ()
    others_bytes_s: Number = 0
    others_requests_s: Number = 0
    level: Number = 0

    @property
    def bytes_s(self) -> int:
        return self.others_bytes_s + sum(load.bytes_s for load in self.parts)

    @property
    def requests_s(self) -> int:
        return self.others_requests_s + sum(load.requests_s for load in self.parts)


class _Counted(NamedTuple):
    """Counters of one partition at one time, by the meter's clock."""

    records: int
    start: int
    end: int
    bytes: int
    at_ms: int


class Meter:
    """Rates of one node's own partitions, smoothed: the mean of the last rate and the smoothed one before."""

    def __init__(self) -> None:
        self._before: dict[int, _Counted] = {}
        self._rates: dict[int, tuple[float, float]] = {}
        self._next_ms = 0

    def is_due(self, now_ms: int) -> bool:
        return now_ms >= self._next_ms

    def look(self, figures: Iterable[Mapping[str, Any]], now_ms: int) -> Told:
        """Read the counters and return the report.

        Args:
            figures: of partitions, as the native node gives them: partition, open, records, start_offset,
                end_offset, bytes. Partitions that are not open are left out: their owner reports them.
            now_ms: of a monotonic clock.
        """
        now: dict[int, _Counted] = {}
        rates: dict[int, tuple[float, float]] = {}
        for known in figures:
            if not known.get("open"):
                continue
            number = int(known["partition"])
            counted = now[number] = _Counted(
                int(known["records"]),
                int(known["start_offset"]),
                int(known["end_offset"]),
                int(known["bytes"]),
                now_ms,
            )
            before = self._before.get(number)
            if before is not None and now_ms > before.at_ms:
                rates[number] = _mean(self._rates.get(number), _rate(before, counted))
        self._before, self._rates = now, rates
        self._next_ms = now_ms + max(LOOK_MS, LOOK_MS_PER_PARTITION * len(now))
        return _told(rates)


def _rate(before: _Counted, now: _Counted) -> tuple[float, float]:
    seconds = (now.at_ms - before.at_ms) / 1_000
    size = now.bytes - before.bytes
    rows = max(0, now.end - before.end)
    if now.start != before.start or size < 0:
        # Retention has removed bytes in between: estimate the new bytes by the number of rows and their mean
        # size.
        size = round(rows * now.bytes / (now.end - now.start)) if now.end > now.start else 0
    return max(0, size) / seconds, max(0, now.records - before.records) / seconds


def _mean(one: tuple[float, float] | None, other: tuple[float, float]) -> tuple[float, float]:
    return other if one is None else ((one[0] + other[0]) / 2, (one[1] + other[1]) / 2)


def _told(rates: Mapping[int, tuple[float, float]]) -> Told:
    busy = sorted(
        (Load(number, round(size), round(count)) for number, (size, count) in rates.items()),
        key=lambda load: (-load.bytes_s, -load.requests_s, load.partition),
    )
    named = tuple(load for load in busy[:PARTS_MAX] if load.bytes_s or load.requests_s)
    rest = busy[len(named) :]
    return Told(named, sum(load.bytes_s for load in rest), sum(load.requests_s for load in rest))


def advertised(topic: Topic, told: Mapping[NodeId, Told]) -> dict[int, int]:
    """Bytes a second of each ACTIVE partition whose load is known: the owner's report lists it, or has no
    unlisted load.
    """
    loads: dict[int, int] = {}
    named = {node: {load.partition: load.bytes_s for load in one.parts} for node, one in told.items()}
    for partition in topic.layout.active():
        number = partition.partition
        owner = topic.assignments[number].owner.node
        if owner not in named:
            continue
        if number in named[owner]:
            loads[number] = named[owner][number]
        elif not told[owner].others_bytes_s:
            loads[number] = 0
    return loads


class Board:
    """The newest report of each node; reports older than `STALE_MS` are dropped."""

    def __init__(self) -> None:
        self._told: dict[NodeId, tuple[int, Told]] = {}

    def hear(self, node: NodeId, told: Told, now_ms: int) -> None:
        """Store a node's report."""
        self._told[node] = (now_ms, told)

    def by_node(self, now_ms: int) -> dict[NodeId, Told]:
        """The report of each node, by number."""
        self._told = {node: one for node, one in self._told.items() if now_ms - one[0] < STALE_MS}
        return {node: told for node, (_, told) in sorted(self._told.items())}

    def by_partition(self, now_ms: int) -> dict[PartitionId, float]:
        """Bytes per second of each listed partition. A partition that has just moved has two reports: the
        newer one counts.
        """
        loads: dict[PartitionId, tuple[int, float]] = {}
        self.by_node(now_ms)
        for at_ms, told in self._told.values():
            for load in told.parts:
                known = loads.get(PartitionId(load.partition))
                if known is None or known[0] < at_ms:
                    loads[PartitionId(load.partition)] = (at_ms, float(load.bytes_s))
        return {number: value for number, (_, value) in loads.items()}

    def unnamed(self, now_ms: int) -> dict[NodeId, float]:
        """Bytes per second of each node in partitions that its report does not list."""
        return {
            node: float(told.others_bytes_s)
            for node, told in self.by_node(now_ms).items()
            if told.others_bytes_s
        }
