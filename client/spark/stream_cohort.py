"""The option `cohort` of a stream: the query is the one member of a cohort, so that its lag is seen.

The member's name is `spark-<id>`, with the id that the offsets of the checkpoint carry (`stream_offset`).
So a query that was killed and started again goes on under its name, and a second query on the cohort is
refused. Reports are best effort: Spark's checkpoint stays the truth, and no task reads through the cohort.
"""

from __future__ import annotations

import logging
import uuid
from typing import TYPE_CHECKING, Any

from ringfence.cluster.offsets import Position
from ringfence.consumer.reporting import Reports, settings_of
from ringfence.consumer.values import Point
from ringfence.native.errors import RingfenceError
from ringfence.spark.stream_offset import query_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ringfence.cluster.offsets import Ends
    from ringfence.spark.options import SourceOptions
    from ringfence.spark.stream_lineage import Beginning

_LOG = logging.getLogger("ringfence.spark")


class QueryMember:
    """On the driver. It joins with the first offset that it hears of."""

    def __init__(self, options: SourceOptions, cohort: str) -> None:
        self._options, self._cohort = options, cohort
        self.query = ""  # its id
        self._reports: Reports | None = None
        self._reached: dict[int, Point] = {}

    def join(self, *offsets: object) -> None:
        """Be a member, under the id in one of these offsets; of a new query none has it.

        Raises:
            MemberExistsError: the cohort has another member. ConflictError: it has another mode.
        """
        if self.query:
            return
        query = next(filter(None, map(query_of, offsets)), "") or str(uuid.uuid4())
        options = self._options
        settings = settings_of(options.topic, self._cohort, f"spark-{query}")
        reports = Reports(options.address, options.token_file, settings)
        reports.begin()
        self.query, self._reports = query, reports

    def report(self, positions: Iterable[Position]) -> None:
        """The query is done with the rows before these positions. Does not wait, and does not fail."""
        reached = {one.partition: Point(one.offset, one.epoch) for one in positions}
        news = {one: point for one, point in reached.items() if self._reached.get(one) != point}
        if not news or self._reports is None:
            return
        self._reached |= news
        try:
            self._reports.report(news)
        except RingfenceError as error:
            _LOG.warning(
                "%s: the query is no member of the cohort %s any more, and goes on; started "
                "again, it joins again: %s",
                self._options.topic,
                self._cohort,
                error,
            )
            self.leave()

    def leave(self) -> None:
        """The query ends."""
        reports, self._reports = self._reports, None
        if reports is not None:
            reports.close()


def done_before(
    positions: Mapping[int, Position], begin: Beginning, ends: Mapping[int, Ends]
) -> Iterable[Position]:
    """Where a query is whose next batch begins there, in all partitions of the layout.

    `positions`: of its offset, which leaves out partitions that it is through with; children of these wait
    until the cohort knows it.
    """
    through = [ends[one] for one in (begin.finished | begin.ended) if one in ends and ends[one].ended]
    found = {end.partition: Position(end.partition, end.end, end.epoch) for end in through}
    return (found | dict(positions)).values()


def positions_of_offset(offset: dict[str, Any]) -> list[Position]:
    """Positions of an offset that this source has made."""
    places = offset["partitions"].items()
    return [Position(int(one), place["offset"], place.get("epoch", 0)) for one, place in places]
