"""Owner epochs of a log's rows: by them a position is known to be one of the log that the topic has now.

Epochs never descend within a log, and each is of one owner, which appended its rows in one order. So rows
between two rows of one epoch have it, too, and a log whose last row has the epoch of a position has the row
before the position. Only where that does not settle it, the owner is asked for a row.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import TYPE_CHECKING

from ringfence.native.errors import TruncatedError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ringfence.client import Client
    from ringfence.cluster.offsets import Ends, Position
    from ringfence.spark.ranges import Range

CAUSE = "an owner was chosen by force, or a node was restored from an older copy"


class History:
    """The epochs of a topic's rows below the `ends` that its owners told."""

    def __init__(self, client: Client, topic: str, ends: Mapping[int, Ends]) -> None:
        self._client, self._topic, self._ends = client, topic, ends
        self._known: dict[int, list[tuple[int, int]]] = {}  # (offset, epoch of the row before), ascending
        for end in ends.values():
            self._learn(end.partition, end.end, end.epoch)

    def prove(self, positions: Iterable[Position], *, whose: str, way_out: str) -> None:
        """The log has the row before each position. One without an epoch, or at the log start, has no proof.

        Args:
            positions: at or above the log start; those below it are left out, retention has passed them.
            whose: what has the position, as the error names it.
            way_out: what the error tells a user to do.

        Raises:
            TruncatedError: the log has another history.
        """
        doubtful = {}
        for at in positions:
            end = self._ends.get(at.partition)
            if end is None:
                continue
            if at.offset > end.end:
                why = f"{whose} is at row {at.offset}, the log ends at {end.end}"
                raise self._other_history(at, why, way_out)
            if at.epoch == end.epoch:
                self._learn(at.partition, at.offset, at.epoch)
            elif at.epoch and at.offset > end.start:
                doubtful[at.partition] = at
        epochs = self.epochs({at.partition: at.offset for at in doubtful.values()})
        for at in doubtful.values():
            found = epochs[at.partition]
            if found != at.epoch:
                why = f"{whose} has read row {at.offset - 1} of epoch {at.epoch}, it is of epoch {found} now"
                raise self._other_history(at, why, way_out)

    def epochs(self, offsets: Mapping[int, int]) -> dict[int, int]:
        """Epoch of the row before each offset, by partition; 0 at the log start, whose row before is gone.

        Raises:
            TruncatedError: the log does not have the row any more.
        """
        found = {partition: self._told(partition, offset) for partition, offset in offsets.items()}
        asked = {partition: offsets[partition] for partition, epoch in found.items() if epoch is None}
        if asked:
            for point in self._client.log_points(self._topic, asked):
                self._learn(point.partition, point.offset, point.epoch)
                found[point.partition] = point.epoch
        return {partition: epoch or 0 for partition, epoch in found.items()}

    def with_epochs(self, ranges: list[Range]) -> list[Range]:
        """The ranges, each with the epoch of the row before it and of its last one."""
        unknown: dict[int, set[int]] = {}
        for span in ranges:
            self._learn(span.partition, span.first, span.epoch)
            self._learn(span.partition, span.last, span.last_epoch)
            bounds = unknown.setdefault(span.partition, set())
            bounds |= {at for at, epoch in span.bounds if not epoch}
        left = {partition: [sorted(bounds)] for partition, bounds in unknown.items() if bounds}
        for parts in left.values():
            if len(parts[0]) > 2:  # the row behind the first bound: with the last one's epoch, all have it
                parts.append([parts[0][0] + 1])
        while left:
            self.epochs({partition: _middle(parts) for partition, parts in left.items()})
            left = {partition: parts for partition, parts in left.items() if parts}
        return [
            span._replace(
                epoch=self._told(span.partition, span.first) or 0,
                last_epoch=self._told(span.partition, span.last) or 0,
            )
            for span in ranges
        ]

    def _told(self, partition: int, offset: int) -> int | None:
        """What is known of the row before `offset`; None: it must be asked for."""
        known = self._known.get(partition, [])
        at = bisect_left(known, (offset, 0))
        above = known[at] if at < len(known) else None
        if above is not None and above[0] == offset:
            return above[1]
        if above is not None and at > 0 and known[at - 1][1] == above[1]:
            return above[1]
        end = self._ends.get(partition)
        return 0 if end is None or offset <= end.start else None

    def _learn(self, partition: int, offset: int, epoch: int) -> None:
        known = self._known.setdefault(partition, [])
        if epoch and (offset, epoch) not in known:
            insort(known, (offset, epoch))

    def _other_history(self, at: Position, why: str, way_out: str) -> TruncatedError:
        return TruncatedError(
            f"partition {at.partition} has another history now: {why} ({CAUSE}); {way_out}",
            topic=self._topic,
            partition=at.partition,
            offset=at.offset,
            epoch=at.epoch,
        )


def _middle(parts: list[list[int]]) -> int:
    """Takes the middle of the last part out, which leaves what is below and what is above it."""
    part = parts.pop()
    middle = len(part) // 2
    parts += [rest for rest in (part[:middle], part[middle + 1 :]) if rest]
    return part[middle]
