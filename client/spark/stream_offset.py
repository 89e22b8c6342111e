"""Encode and decode the offset of a stream, which Spark stores in a checkpoint: JSON, format 2.

    {"format": 2, "topic": 7, "version": 0, "partitions": {"9": {"offset": 1200, "epoch": 31}, ...}}

`offset` is the offset of the next row, `epoch` the owner epoch of the row before it (0 = unknown). Together
they are a position, which proves that the log is still the one that the query read. Format 1 had no epochs;
it is read, and no longer written.

Each partition has a map of its own, so that later formats can add fields to it: a split partition, for
example, will be marked as sealed and stand beside its children, whose rows come after its last row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ringfence.cluster.offsets import Position
from ringfence.common.arguments import NUMBER_MAX
from ringfence.native.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ringfence.native.messages import TopicInfo

FORMAT: Final = 2
WITHOUT_EPOCHS: Final = 1


def encode(info: TopicInfo, positions: Iterable[Position]) -> dict[str, Any]:
    """The offset of these positions for Spark; equal positions give equal JSON."""
    places = {
        str(position.partition): {"offset": position.offset, "epoch": position.epoch}
        for position in sorted(positions)
    }
    return {"format": FORMAT, "topic": info.topic, "version": info.version, "partitions": places}


def decode(info: TopicInfo, offset: object) -> dict[int, Position]:
    """The positions by partition.

    Raises:
        InvalidArgumentError: the offset has a newer format, is of another topic, or is damaged.
    """
    if not isinstance(offset, dict) or "format" not in offset:
        raise damaged(info.name, offset, "it has no format")
    form = offset["format"]
    if type(form) is not int or form not in (WITHOUT_EPOCHS, FORMAT):
        raise InvalidArgumentError(
            "the checkpoint's offset has a format that this version cannot read; use a newer ringfence",
            format=form,
            known=[WITHOUT_EPOCHS, FORMAT],
        )
    if offset.get("topic") != info.topic:
        raise InvalidArgumentError(
            "the checkpoint is of another topic (or of a deleted topic of this name); "
            "give the query a checkpointLocation of its own",
            topic=info.name,
            topic_id=info.topic,
            checkpoint_topic_id=offset.get("topic"),
        )
    try:
        entries = [
            (int(partition), place["offset"], place["epoch"] if form == FORMAT else 0)
            for partition, place in offset["partitions"].items()
        ]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        fields = "offsets and epochs" if form == FORMAT else "offsets"
        raise damaged(info.name, offset, f"its partitions are no map of {fields}: {error!r}") from error
    partitions = {part.partition for part in info.partitions}
    for partition, next_row, epoch in entries:
        if partition not in partitions:
            raise damaged(info.name, offset, f"the topic has no partition {partition}")
        for name, number in (("offset", next_row), ("epoch", epoch)):
            if type(number) is not int or not 0 <= number <= NUMBER_MAX:
                raise damaged(info.name, offset, f"partition {partition} has no {name} {number!r}")
    positions = {partition: Position(partition, next_row, epoch) for partition, next_row, epoch in entries}
    if len(positions) < len(entries):
        raise damaged(info.name, offset, "it has a partition twice")
    return positions


def damaged(topic: str, offset: object, reason: str) -> InvalidArgumentError:
    """The error for an offset that this source cannot have written."""
    return InvalidArgumentError(
        f"an offset of the checkpoint was edited or is damaged: {reason}; restore the checkpoint, or give "
        "the query a checkpointLocation of its own and a start",
        topic=topic,
        given=offset,
    )
