"""Restrict the ranges of a read by filters on `_partition`, `_offset`, `_time` and on all key columns.

Filters only reduce the rows that are read. Spark applies every filter to the rows again, so bounds may be too
wide.
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from ringfence.native.slots import slots

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyspark.sql.datasource import Filter

    from ringfence.client import Client
    from ringfence.spark.ranges import Range

# Keys whose partitions are computed: the product of the values of all key columns. More are left to Spark.
VALUES_MAX = 1000


class PushedFilters(NamedTuple):
    """The conjunction of the filters that Spark pushed down.

    `metadata`: `_partition`, `_offset` and `_time` are metadata columns; False: columns of the topic, if any.
    `values`: column -> the values of which it must have one; null is never one of them.
    """

    metadata: bool = True
    values: dict[str, frozenset[Any]] = {}  # noqa: RUF012 - a tuple's default, never changed
    offset_first: int = 0
    offset_last: int = 2**63 - 1  # inclusive
    time_first: dt.datetime | None = None

    @classmethod
    def of(cls, filters: Sequence[Filter], *, metadata: bool) -> PushedFilters:
        """The conjunction of Spark's filters, without the ones that restrict no range."""
        conjunction = cls(metadata, {})
        for one in filters:
            conjunction = conjunction._and(type(one).__name__, one)
        return conjunction

    def _and(self, kind: str, one: Any) -> PushedFilters:
        path: tuple[str, ...] = getattr(one, "attribute", ())
        if len(path) != 1:
            return self
        column, value = path[0], getattr(one, "value", None)
        if kind in {"EqualTo", "In"} and value is not None:
            try:
                values = frozenset(value if kind == "In" else (value,)) - {None}
            except TypeError:
                return self  # a list or a map is not hashable; Spark alone applies the filter
            earlier = self.values.get(column)
            both = values if earlier is None else values & earlier
            return self._replace(values={**self.values, column: both})
        if self.metadata and column == "_offset" and isinstance(value, int):
            return self._and_offset(kind, value)
        since = self.metadata and column == "_time" and kind in {"GreaterThan", "GreaterThanOrEqual"}
        if since and isinstance(value, dt.datetime) and value.tzinfo is not None:
            return self._replace(time_first=max(self.time_first or value, value))
        return self

    def _and_offset(self, kind: str, value: int) -> PushedFilters:
        match kind:
            case "GreaterThan":
                return self._replace(offset_first=max(self.offset_first, value + 1))
            case "GreaterThanOrEqual":
                return self._replace(offset_first=max(self.offset_first, value))
            case "LessThan":
                return self._replace(offset_last=min(self.offset_last, value - 1))
            case "LessThanOrEqual":
                return self._replace(offset_last=min(self.offset_last, value))
        return self

    def restrict(self, client: Client, topic: str, spans: Iterable[Range]) -> list[Range]:
        """The spans without the offsets that cannot match."""
        first, last = self.offset_first, self.offset_last
        offsets = self.values.get("_offset") if self.metadata else None
        if offsets and all(isinstance(offset, int) for offset in offsets):
            first, last = max(first, min(offsets)), min(last, max(offsets))
        by_name = self.values.get("_partition") if self.metadata else None
        excluded = self._without_key(client, topic)
        since = {} if self.time_first is None else client.offsets_at(topic, self.time_first)
        return [
            span.within(max(first, since.get(span.partition, 0)), last + 1)
            for span in spans
            if span.partition not in excluded and (by_name is None or span.partition in by_name)
        ]

    def _without_key(self, client: Client, topic: str) -> frozenset[int]:
        """Partitions of the topic that cannot hold a match.

        One that the topic does not have any more, or that the node does not know yet, is none of these: its
        task finds the rows, or fails because they were removed.
        """
        info = client.topic(topic)
        if not info.key or any(column not in self.values for column in info.key):
            return frozenset()
        rows: list[tuple[Any, ...]] = [()]
        for column in info.key:
            rows = [(*row, value) for row in rows for value in self.values[column]]
            if len(rows) > VALUES_MAX:
                return frozenset()
        schema = info.schemas[0]
        key_schema = pa.schema([schema.field(column) for column in info.key])
        try:
            keys = pa.RecordBatch.from_pylist(
                [dict(zip(info.key, row, strict=True)) for row in rows], key_schema
            )
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
            # The column cannot hold the value, so no row matches; Spark's filter finds none.
            return frozenset()
        key_slots = slots(keys, info.key).tolist() if rows else []
        return frozenset(
            part.partition
            for part in info.partitions
            if not any(part.lo <= slot <= part.hi for slot in key_slots)
        )
