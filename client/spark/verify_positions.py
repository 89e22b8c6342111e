"""Prove by the owner epochs of a log's rows that positions belong to the log that the topic has now.

Epochs never descend within a log, and each epoch has one owner, which appended its rows in one order. So all
rows between two rows of one epoch have this epoch, too. A log whose last row has the epoch of a position also
has the row before the position. The owner is queried for a row only if that proves nothing.
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

# Appended to errors: the two causes of another history.
CAUSE = "an owner was chosen by force, or a node was restored from an older copy"


class History:
    """The epochs of a topic's rows, fetched when needed. `ends` come from the owners."""

    def __init__(self, client: Client, topic: str, ends: Mapping[int, Ends]) -> None:
        self._client, self._topic, self._ends = client, topic, ends
        # By partition: (offset, epoch of the row before it), ascending. Only grows.
        self._epochs: dict[int, list[tuple[int, int]]] = {}
        for end in ends.values():
            self._cache(end.partition, end.end, end.epoch)

    def prove(self, positions: Iterable[Position], *, whose: str, way_out: str) -> None:
        """Check that the log has the row before each position.

        Positions without an epoch and positions at the log start cannot be checked, and pass.

        Args:
            positions: positions below the log start pass, too: retention has removed their rows.
            whose: the source of the positions, for the error.
            way_out: advice for the user, for the error.

        Raises:
            TruncatedError: the log has another history.
        """
        unproven = {}
        for position in positions:
            end = self._ends.get(position.partition)
            if end is None:
                continue
            if position.offset > end.end:
                why = f"{whose} is at row {position.offset}, the log ends at {end.end}"
                raise self._other_history(position, why, way_out)
            if position.epoch == end.epoch:
                self._cache(position.partition, position.offset, position.epoch)
            elif position.epoch and position.offset > end.start:
                unproven[position.partition] = position
        epochs = self.epochs({position.partition: position.offset for position in unproven.values()})
        for position in unproven.values():
            epoch = epochs[position.partition]
            if epoch != position.epoch:
                row = position.offset - 1
                why = f"{whose} has read row {row} of epoch {position.epoch}, it is of epoch {epoch} now"
                raise self._other_history(position, why, way_out)

    def epochs(self, offsets: Mapping[int, int]) -> dict[int, int]:
        """Epoch of the row before each offset, by partition; 0 at the log start: that row was removed.

        Raises:
            TruncatedError: the log no longer has the row.
        """
        epochs = {partition: self._cached(partition, offset) for partition, offset in offsets.items()}
        missing = {partition: offsets[partition] for partition, epoch in epochs.items() if epoch is None}
        if missing:
            for point in self._client.log_points(self._topic, missing):
                self._cache(point.partition, point.offset, point.epoch)
                epochs[point.partition] = point.epoch
        return {partition: epoch or 0 for partition, epoch in epochs.items()}

    def with_epochs(self, ranges: list[Range]) -> list[Range]:
        """The ranges, each with the epoch of the row before it and the epoch of its last row.

        A binary search over the bounds, with one request for each step, for all partitions together.
        """
        missing: dict[int, set[int]] = {}
        for span in ranges:
            self._cache(span.partition, span.first, span.epoch)
            self._cache(span.partition, span.last, span.last_epoch)
            bounds = missing.setdefault(span.partition, set())
            bounds |= {offset for offset, epoch in span.bounds if not epoch}
        left = {partition: [sorted(bounds)] for partition, bounds in missing.items() if bounds}
        for parts in left.values():
            if len(parts[0]) > 2:
                # The row after the first bound comes first. If it has the epoch of the log's last row, all
                # rows between them have it, too, and one request is enough.
                parts.append([parts[0][0] + 1])
        while left:
            self.epochs({partition: _middle(parts) for partition, parts in left.items()})
            left = {partition: parts for partition, parts in left.items() if parts}
        return [
            span._replace(
                epoch=self._cached(span.partition, span.first) or 0,
                last_epoch=self._cached(span.partition, span.last) or 0,
            )
            for span in ranges
        ]

    def _cached(self, partition: int, offset: int) -> int | None:
        """Epoch of the row before `offset`, from the rows fetched so far; None: it must be fetched."""
        epochs = self._epochs.get(partition, [])
        index = bisect_left(epochs, (offset, 0))
        above = epochs[index] if index < len(epochs) else None
        if above is not None and above[0] == offset:
            return above[1]
        if above is not None and index > 0 and epochs[index - 1][1] == above[1]:
            return above[1]
        end = self._ends.get(partition)
        return 0 if end is None or offset <= end.start else None

    def _cache(self, partition: int, offset: int, epoch: int) -> None:
        epochs = self._epochs.setdefault(partition, [])
        if epoch and (offset, epoch) not in epochs:
            insort(epochs, (offset, epoch))

    def _other_history(self, position: Position, why: str, way_out: str) -> TruncatedError:
        return TruncatedError(
            f"partition {position.partition} has another history now: {why} ({CAUSE}); {way_out}",
            topic=self._topic,
            partition=position.partition,
            offset=position.offset,
            epoch=position.epoch,
        )


def _middle(parts: list[list[int]]) -> int:
    """Remove the middle offset of the last part, and split the part there."""
    part = parts.pop()
    middle = len(part) // 2
    parts += [rest for rest in (part[:middle], part[middle + 1 :]) if rest]
    return part[middle]
