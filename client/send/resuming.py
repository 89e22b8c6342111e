"""What a named producer leaves out of its sends, because its predecessor has stored it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from ringfence.arrow.keys import in_types_of
from ringfence.native.errors import ConflictError, InvalidArgumentError
from ringfence.native.slots import slots
from ringfence.send.resume import ResumeFrom, ResumePoints, Rule, name_slot, slot_of_send
from ringfence.send.send_numbers import SendNumbers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ringfence.arrow.encode import Body
    from ringfence.common.routing import Layout
    from ringfence.native.messages import ResumePoint


class Resuming:
    """Of one open of a name, or of a producer without a name."""

    def __init__(self, layout: Layout, name: str | None, rule: Rule, points: Sequence[ResumePoint]) -> None:
        def slots_of(partition: int) -> tuple[int, int]:
            entry = layout.partitions.get(partition)
            return (0, -1) if entry is None else (entry.lo, entry.hi)

        self.rule, self._topic, self._key = rule, layout.name, list(layout.key)
        self.points = ResumePoints(points, slots_of)
        self.by_partition = dict(self.points.by_partition)
        self.slot_of_send = slot_of_send(rule, name)
        self.resume_from: ResumeFrom | None = self.points.resume_from(rule, name, has_key=bool(layout.key))
        before = self.points.greatest
        if rule is Rule.LINE and name is not None:
            before = int(self.points.sends[name_slot(name)])
        self.numbers = SendNumbers(before)

    def check_number(self, number: int | None) -> None:
        """Raises InvalidArgumentError for a send of a spread name without a number."""
        if self.rule is Rule.SPREAD and number is None:
            raise InvalidArgumentError(
                "a producer with spread=True needs number= in every send: the number chooses the partition, "
                "and a successor of the name recognizes stored sends by it",
                topic=self._topic,
            )

    def without_stored(
        self, batches: list[pa.RecordBatch], number: int | None, schema: pa.Schema
    ) -> list[pa.RecordBatch]:
        """The rows of a send that are not stored yet, in the order of the rows.

        Raises:
            ConflictError: K10, the number is stored with another number of rows.
        """
        if not isinstance(number, int) or number > self.points.greatest:
            return batches
        if self.slot_of_send is not None:
            return [] if self._is_stored(number, sum(batch.num_rows for batch in batches)) else batches
        if not self._key:
            return batches
        left = []
        for batch in batches:
            hashed = slots(in_types_of(schema, batch, self._key), self._key)
            is_new = self.points.sends[hashed] < np.uint64(number)
            left.append(batch if is_new.all() else batch.filter(pa.array(is_new)))
        return [batch for batch in left if batch.num_rows]

    def _is_stored(self, number: int, rows: int) -> bool:
        assert self.slot_of_send is not None
        slot = self.slot_of_send(number)
        if not self.points.has_stored(number, slot):
            return False
        point = self.points.point_of(slot)
        # Joined sends of a line name are one batch: its rows are those of several sends.
        if self.rule is Rule.SPREAD and point is not None and point.send == number and point.rows != rows:
            raise ConflictError(
                f"send {number} is stored with {point.rows} rows, and this call has {rows}: a program that "
                "numbers its sends must put the same rows into each of them",
                topic=self._topic,
                send=number,
                rows=rows,
                stored=point.rows,
            )
        return True

    def unstored(self, bodies: list[Body], number: int) -> list[Body]:
        """Of a name that chooses partitions as producers without a name do: bodies without stored ones.

        A send is one body. It is stored if it is the last one of any point, or if every slot has a point that
        is not below it, whatever partition has these slots now.
        """
        if self._key or self.slot_of_send is not None:
            return bodies
        if self.points.has_everywhere(number) or any(point.send == number for _, point in self.points.points):
            return []
        points = self.by_partition
        return [
            body for body in bodies if body.partition not in points or number > points[body.partition].send
        ]
