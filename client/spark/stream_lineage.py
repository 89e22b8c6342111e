"""Choose what a micro-batch may read of a topic whose partitions are split and merged.

A partition is admitted if every ancestor was finished when the batch began. So no batch has rows of a parent
and of its child, and the order between batches is that of the lineage.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ringfence.cluster.offsets import Position
from ringfence.common.lineage import Lineage, Lost, restore

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ringfence.cluster.offsets import Ends
    from ringfence.common.lineage import View
    from ringfence.spark.stream_offset import StreamOffset


class Beginning(NamedTuple):
    """Where a micro-batch begins.

    `positions`: of each partition that the next offset lists. Of these `admitted` may be read in this batch,
    and `ended` have no more rows. `finished` are not listed any more. `lost`: partitions that were pruned
    before all of their rows were read.
    """

    positions: dict[int, Position]
    admitted: frozenset[int]
    ended: frozenset[int]
    finished: frozenset[int]
    lost: tuple[Lost, ...]


def beginning(view: View, offset: StreamOffset, ends: Mapping[int, Ends]) -> Beginning:
    """Where the batch after `offset` begins. `ends` are those of the partitions of `view`."""
    restored, ended = restore(view, offset.positions), offset.ended
    restored = restored._replace(
        listed=tuple(one for one in restored.listed if one not in ended),
        pruned=tuple(one for one in restored.pruned if one not in ended),
        finished=restored.finished | ended,
    )
    positions = {one: offset.positions[one] for one in restored.listed}
    positions |= {one: Position(one, 0) for one in restored.new}
    positions |= {one: Position(one, ends[one].start) for one in restored.others}
    lineage = Lineage(view, restored, grows=True)
    lost = []
    for effect in lineage.begin({one: position.offset for one, position in offset.positions.items()}):
        if isinstance(effect, Lost):
            lost.append(effect)
            lineage.skip(effect.partition)
    left = list(lineage.admitted)
    while left:
        partition = left.pop()
        end = ends[partition]
        if end.ended and positions[partition].offset >= end.end:
            before = set(lineage.admitted)
            lineage.ended(partition)
            left += set(lineage.admitted) - before
    at_end = frozenset(one for one in positions if one not in lineage.open)
    return Beginning(positions, frozenset(lineage.admitted), at_end, restored.finished, tuple(lost))
