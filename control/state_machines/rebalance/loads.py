"""Measure loads of partitions: rates from counters at owners, and all nodes' rates at the leader. Pure.

    Meter             at an owner: counters in, a bounded report out, which a heartbeat carries
    LoadBoard         the reports of all nodes, complete only at the leader
    advertised_loads  loads of a topic's partitions for producers of topics without a key
    known_loads       bytes and rows of partitions, as far as the reports tell them

Loads are soft state: they inform the policy and operators, and losing them breaks nothing (F25). Bytes are
those of stored records, requests are appended batches; reads are not counted by partition.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Final, NamedTuple, Protocol

import msgspec
from msgspec import Meta

from ringfence.control.model.ids import NodeId, PartitionId
from ringfence.control.model.topics import Topic

# Partitions in one node's report, the busiest ones: 5 KB at most. The report has the sum of the others.
PARTS_MAX: Final = 256
# Time between two readings of the counters: shorter than a policy's interval, much longer than a group
# commit.
READ_MS: Final = 2_000
# A reading costs 2 us for each partition on the node's loop: with this interval 0.2 % of it.
READ_MS_PER_PARTITION: Final = 1
# Age at which a report does not count any more: three readings of a node with 10,000 partitions.
STALE_MS: Final = 30_000

# Used share of a disk from which on other nodes are preferred: a tenth is left for what is being copied.
FULL_PERCENT: Final = 90

Number = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]


class Load(msgspec.Struct, frozen=True, array_like=True):
    """One partition at its owner: bytes and batches appended per second."""

    partition: Number
    bytes_s: Number
    requests_s: Number


class LoadReport(msgspec.Struct, frozen=True, array_like=True):
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


class RowReport(msgspec.Struct, frozen=True, array_like=True):
    """Rows per second beside a `LoadReport`: of the entries in its `parts`, in their order, and of others.

    `disk_percent` is the used share of the data directory's file system. From the level of layout changes on.
    """

    parts: Annotated[tuple[Number, ...], Meta(max_length=PARTS_MAX)] = ()
    others: Number = 0
    disk_percent: Number = 0


class PartitionLoad(NamedTuple):
    """Bytes and rows appended per second. Not `is_exact`: an upper bound of a partition that its owner's
    report does not list.
    """

    bytes_s: float
    rows_s: float
    is_exact: bool = True


class Pressure(NamedTuple):
    """What breaks ties between nodes with as many partitions; the lower one is preferred.

    `is_full`: the disk is nearly full. `lags`: the node lacks metadata entries. `bytes_s`: of its partitions.
    """

    is_full: bool = False
    lags: bool = False
    bytes_s: int = 0


NO_PRESSURE: Final = Pressure()


class _Rates(NamedTuple):
    """Per second."""

    bytes: float
    requests: float
    rows: float


class _Counters(NamedTuple):
    """Counters of one partition at one time, by the meter's clock."""

    records: int
    start: int
    end: int
    bytes: int
    at_ms: int


class Meter:
    """Rates of one node's own partitions, smoothed: the mean of the last rate and the smoothed one before."""

    def __init__(self) -> None:
        self._before: dict[int, _Counters] = {}
        self._rates: dict[int, _Rates] = {}
        self._next_ms = 0
        # Of the newest report.
        self.rows = RowReport()

    def is_due(self, now_ms: int) -> bool:
        return now_ms >= self._next_ms

    def read(self, figures: Iterable[Mapping[str, Any]], now_ms: int) -> LoadReport:
        """Read the counters and return the report.

        Args:
            figures: of partitions, as the native node gives them: partition, open, records, start_offset,
                end_offset, bytes. Partitions that are not open are left out: their owner reports them.
            now_ms: of a monotonic clock.
        """
        now: dict[int, _Counters] = {}
        rates: dict[int, _Rates] = {}
        for figure in figures:
            if not figure.get("open"):
                continue
            number = int(figure["partition"])
            counters = now[number] = _Counters(
                int(figure["records"]),
                int(figure["start_offset"]),
                int(figure["end_offset"]),
                int(figure["bytes"]),
                now_ms,
            )
            before = self._before.get(number)
            if before is not None and now_ms > before.at_ms:
                rates[number] = _mean(self._rates.get(number), _rate(before, counters))
        self._before, self._rates = now, rates
        self._next_ms = now_ms + max(READ_MS, READ_MS_PER_PARTITION * len(now))
        report = _report(rates)
        listed = tuple(round(rates[load.partition].rows) for load in report.parts)
        others = sum(rate.rows for rate in rates.values()) - sum(listed)
        self.rows = RowReport(listed, max(0, round(others)))
        return report


def _rate(before: _Counters, now: _Counters) -> _Rates:
    seconds = (now.at_ms - before.at_ms) / 1_000
    size = now.bytes - before.bytes
    rows = max(0, now.end - before.end)
    if now.start != before.start or size < 0:
        # Retention has removed bytes in between: estimate the new bytes by the number of rows and their mean
        # size.
        size = round(rows * now.bytes / (now.end - now.start)) if now.end > now.start else 0
    return _Rates(max(0, size) / seconds, max(0, now.records - before.records) / seconds, rows / seconds)


def _mean(one: _Rates | None, other: _Rates) -> _Rates:
    return other if one is None else _Rates(*((old + new) / 2 for old, new in zip(one, other, strict=True)))


def _report(rates: Mapping[int, _Rates]) -> LoadReport:
    busiest = sorted(
        (Load(number, round(rate.bytes), round(rate.requests)) for number, rate in rates.items()),
        key=lambda load: (-load.bytes_s, -load.requests_s, load.partition),
    )
    listed = tuple(load for load in busiest[:PARTS_MAX] if load.bytes_s or load.requests_s)
    unlisted = busiest[len(listed) :]
    return LoadReport(
        listed, sum(load.bytes_s for load in unlisted), sum(load.requests_s for load in unlisted)
    )


def advertised_loads(topic: Topic, reports: Mapping[NodeId, LoadReport]) -> dict[int, int]:
    """Bytes a second of each ACTIVE partition whose load is known: the owner's report lists it, or has no
    unlisted load.
    """
    loads: dict[int, int] = {}
    listed = {
        node: {load.partition: load.bytes_s for load in report.parts} for node, report in reports.items()
    }
    for partition in topic.layout.active():
        number = partition.partition
        owner = topic.assignments[number].owner.node
        if owner not in listed:
            continue
        if number in listed[owner]:
            loads[number] = listed[owner][number]
        elif not reports[owner].others_bytes_s:
            loads[number] = 0
    return loads


def known_loads(
    topic: Topic, reports: Mapping[NodeId, LoadReport], rows: Mapping[NodeId, RowReport]
) -> dict[PartitionId, PartitionLoad]:
    """Loads of the ACTIVE partitions whose owner has sent a report.

    A partition that the report does not list has at most the sum of all that it does not list, and at most
    the bytes of the least busy one that it lists.
    """
    listed = {
        (node, load.partition): PartitionLoad(load.bytes_s, row)
        for node, report in reports.items()
        if node in rows
        for load, row in zip(report.parts, rows[node].parts, strict=False)
    }
    loads: dict[PartitionId, PartitionLoad] = {}
    for part in topic.layout.active():
        owner = topic.assignments[part.partition].owner.node
        if owner not in reports or owner not in rows:
            continue
        report = reports[owner]
        most = min(report.others_bytes_s, report.parts[-1].bytes_s if report.parts else 0)
        bound = PartitionLoad(most, rows[owner].others, is_exact=False)
        loads[part.partition] = listed.get((owner, part.partition), bound)
    return loads


class LoadSource(Protocol):
    """Where the policy of rebalances gets loads: the heartbeats (`LoadBoard`), or anything else."""

    def by_partition(self, now_ms: int) -> Mapping[PartitionId, float]:
        """Load of each partition that is known."""
        ...

    def unlisted(self, now_ms: int) -> Mapping[NodeId, float]:
        """Load of nodes in partitions that `by_partition` does not have."""
        ...


class LoadBoard:
    """The newest report of each node; reports older than `STALE_MS` are dropped."""

    def __init__(self) -> None:
        self._reports: dict[NodeId, tuple[int, LoadReport]] = {}
        self._rows: dict[NodeId, RowReport] = {}
        self._lagging: set[NodeId] = set()

    def record(
        self,
        node: NodeId,
        report: LoadReport,
        now_ms: int,
        rows: RowReport | None = None,
        *,
        lags: bool = False,
    ) -> None:
        """Store a node's report, which replaces all that the node has said before."""
        self._reports[node] = (now_ms, report)
        self._lagging.discard(node)
        if lags:
            self._lagging.add(node)
        if rows is None:
            self._rows.pop(node, None)
        else:
            self._rows[node] = rows

    def pressures(self, now_ms: int) -> dict[NodeId, Pressure]:
        """Ties between nodes: of those that tell their disks, which programs of lower levels do not."""
        return {
            node: Pressure(
                self._rows[node].disk_percent >= FULL_PERCENT, node in self._lagging, report.bytes_s
            )
            for node, report in self.by_node(now_ms).items()
            if node in self._rows
        }

    def rows_by_node(self, now_ms: int) -> dict[NodeId, RowReport]:
        """Rows per second beside the reports that count."""
        return {node: self._rows[node] for node in self.by_node(now_ms) if node in self._rows}

    def by_node(self, now_ms: int) -> dict[NodeId, LoadReport]:
        """The report of each node, by number."""
        self._reports = {node: entry for node, entry in self._reports.items() if now_ms - entry[0] < STALE_MS}
        return {node: report for node, (_, report) in sorted(self._reports.items())}

    def by_partition(self, now_ms: int) -> dict[PartitionId, float]:
        """Bytes per second of each listed partition. A partition that has just moved has two reports: the
        newer one counts.
        """
        loads: dict[PartitionId, tuple[int, float]] = {}
        self.by_node(now_ms)
        for at_ms, report in self._reports.values():
            for load in report.parts:
                newest = loads.get(PartitionId(load.partition))
                if newest is None or newest[0] < at_ms:
                    loads[PartitionId(load.partition)] = (at_ms, float(load.bytes_s))
        return {number: value for number, (_, value) in loads.items()}

    def unlisted(self, now_ms: int) -> dict[NodeId, float]:
        """Bytes per second of each node in partitions that its report does not list."""
        return {
            node: float(report.others_bytes_s)
            for node, report in self.by_node(now_ms).items()
            if report.others_bytes_s
        }
