"""CHECKPOINT: is the application's store behind the cohort? The owner of a partition asks, the store answers.

A store that has nothing of a partition may be new, or older than the cohort: restored from a backup, emptied,
or another one. Then rows would be missing in it without a word. So what the cohort was told is compared.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ringfence.consumer.values import Point
from ringfence.native.errors import PositionError, TruncatedError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ringfence.consumer.settings import Settings

READ: Final = 1  # how the cohort was through with a parent: a member read it to its end
PRUNED_UNREAD: Final = 2


def begin_of(partition: int, question: Mapping[str, Any], settings: Settings) -> tuple[Point, bool]:
    """Where to begin, and whether that is to be settled: the store has it, or something before was missed.

    The store is asked once more. When it was asked first, another member had the partition: what that one has
    saved since then is there by now, for the owner answers when its hold is over.

    Args:
        partition: the store had nothing of it.
        question: what the owner has: `settled`, `begin`, and `parents` as (partition, end, how).
        settings: with the store.

    Raises:
        PositionError: the store has less than the cohort was told of.
        TruncatedError: a parent was removed unread, and the store does not have its end.
    """
    position = settings.position(partition)
    if position is not None:
        return position, settings.report
    settled, begin = question.get("settled"), int(question["begin"])
    if settled is not None and settled > begin:
        raise PositionError(
            f"the cohort is at {settled} in partition {partition}, and the store has nothing of it: restore "
            "the store, or seek the cohort to its positions",
            topic=settings.topic,
            partition=partition,
            settled=settled,
        )
    missed = False
    for parent, end, how in question.get("parents", ()):
        position = settings.position(parent)
        if (0 if position is None else position.offset) >= end:
            continue  # without rows it is in no store
        if how == READ:
            raise PositionError(
                f"the store is behind the cohort in partition {parent}, which ended at {end} and was read to "
                "its end: seek the cohort to the store's position",
                topic=settings.topic,
                partition=parent,
                end=end,
                stored=None if position is None else position.offset,
            )
        if settings.on_truncated != "skip":
            raise TruncatedError(
                f"partition {parent} was removed before the cohort had read it to its end, {end}; "
                "on_truncated='skip' goes on",
                topic=settings.topic,
                partition=partition,
                pruned=[(parent, end)],
                begin=begin,
            )
        missed = True
    has_pruned = any(how == PRUNED_UNREAD for _, _, how in question.get("parents", ()))
    return Point(begin, 0), missed or has_pruned
