"""Filters that say which offsets can hold a match: on `_partition`, `_offset`, `_time` and whole keys.

They only narrow what is read; Spark applies every filter to the rows again, so a bound that is too wide is no
error.
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

VALUES_MAX = 1000  # of an IN on a key column; more are left to Spark


class Pushed(NamedTuple):
    """What the filters demand.

    `metadata`: `_partition`, `_offset` and `_time` are the log's; False: columns of the topic, if any.
    `values`: column -> the values that it must have one of; null is none of them.
    """

    metadata: bool = True
    values: dict[str, frozenset[Any]] = {}  # noqa: RUF012 - a tuple's default, never changed
    offset_first: int = 0
    offset_last: int = 2**63 - 1  # inclusive
    time_first: dt.datetime | None = None

    @classmethod
    def of(cls, filters: Sequence[Filter], *, metadata: bool) -> Pushed:
        """The conjunction of Spark's filters, as far as it narrows anything."""
        found = cls(metadata, {})
        for one in filters:
            found = found._and(type(one).__name__, one)
        return found

    def _and(self, kind: str, one: Any) -> Pushed:
        path: tuple[str, ...] = getattr(one, "attribute", ())
        if len(path) != 1:
            return self
        column, value = path[0], getattr(one, "value", None)
        if kind in {"EqualTo", "In"} and value is not None:
            try:
                wanted = frozenset(value if kind == "In" else (value,)) - {None}
            except TypeError:
                return self  # a list, a map: nothing that could be looked up
            known = self.values.get(column)
            kept = wanted if known is None else wanted & known
            return self._replace(values={**self.values, column: kept})
        if self.metadata and column == "_offset" and isinstance(value, int):
            return self._offset(kind, value)
        since = self.metadata and column == "_time" and kind in {"GreaterThan", "GreaterThanOrEqual"}
        if since and isinstance(value, dt.datetime) and value.tzinfo is not None:
            return self._replace(time_first=max(self.time_first or value, value))
        return self

    def _offset(self, kind: str, value: int) -> Pushed:
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

    def narrowed(self, client: Client, topic: str, spans: Iterable[Range]) -> list[Range]:
        """The spans without what cannot match."""
        first, last = self.offset_first, self.offset_last
        offsets = self.values.get("_offset") if self.metadata else None
        if offsets and all(isinstance(offset, int) for offset in offsets):
            first, last = max(first, min(offsets)), min(last, max(offsets))
        wanted = self._partitions(client, topic)
        since = {} if self.time_first is None else client.offsets_at(topic, self.time_first)
        return [
            span.within(max(first, since.get(span.partition, 0)), last + 1)
            for span in spans
            if wanted is None or span.partition in wanted
        ]

    def _partitions(self, client: Client, topic: str) -> frozenset[int] | None:
        """Partitions that can hold a match; None = any."""
        wanted = self.values.get("_partition") if self.metadata else None
        info = client.topic(topic)
        if not info.key or any(column not in self.values for column in info.key):
            return wanted
        rows: list[tuple[Any, ...]] = [()]
        for column in info.key:
            rows = [(*row, value) for row in rows for value in self.values[column]]
            if len(rows) > VALUES_MAX:
                return wanted
        schema = info.schemas[0]
        key_schema = pa.schema([schema.field(column) for column in info.key])
        try:
            keys = pa.RecordBatch.from_pylist(
                [dict(zip(info.key, row, strict=True)) for row in rows], key_schema
            )
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
            return wanted  # a value that the column cannot hold matches nothing; Spark will say so
        hit = slots(keys, info.key).tolist() if rows else []
        held = frozenset(
            part.partition for part in info.partitions if any(part.lo <= slot <= part.hi for slot in hit)
        )
        return held if wanted is None else held & wanted
