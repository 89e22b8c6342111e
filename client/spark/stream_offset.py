"""The offset of a stream, as Spark keeps it in a checkpoint: JSON, format 2.

    {"format": 2, "topic": 7, "version": 0, "partitions": {"9": {"offset": 1200, "epoch": 31}, ...}}

`offset` is that of the next row, `epoch` the owner epoch of the row before it (0 = not known): together they
are a position, which proves that the log is still the one that the query read. Format 1 had no epochs; it is
read, and no longer written.

Each partition has a map of its own, so that later formats can say more of it: a partition that was split
stands there as sealed beside its children, whose rows come after its last one.
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
    """What Spark keeps of these positions; equal positions give equal JSON."""
    places = {str(at.partition): {"offset": at.offset, "epoch": at.epoch} for at in sorted(positions)}
    return {"format": FORMAT, "topic": info.topic, "version": info.version, "partitions": places}


def decode(info: TopicInfo, offset: object) -> dict[int, Position]:
    """The positions by partition.

    Raises:
        InvalidArgumentError: it has a newer format, is of another topic, or is damaged.
    """
    if not isinstance(offset, dict) or "format" not in offset:
        raise damaged(info.name, offset, "it has no format")
    form = offset["format"]
    if type(form) is not int or form not in (WITHOUT_EPOCHS, FORMAT):
        raise InvalidArgumentError(
            "the checkpoint's offset has a format that this version does not read; use a newer ringfence",
            format=form,
            known=[WITHOUT_EPOCHS, FORMAT],
        )
    if offset.get("topic") != info.topic:
        raise InvalidArgumentError(
            "the checkpoint is of another topic (or of one of this name that was deleted): "
            "give the query a checkpointLocation of its own",
            topic=info.name,
            topic_id=info.topic,
            checkpoint_topic_id=offset.get("topic"),
        )
    try:
        found = [
            (int(partition), place["offset"], place["epoch"] if form == FORMAT else 0)
            for partition, place in offset["partitions"].items()
        ]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        what = "offsets and epochs" if form == FORMAT else "offsets"
        raise damaged(info.name, offset, f"its partitions are no map of {what}: {error!r}") from error
    known = {part.partition for part in info.partitions}
    for partition, at, epoch in found:
        if partition not in known:
            raise damaged(info.name, offset, f"the topic has no partition {partition}")
        for name, number in (("offset", at), ("epoch", epoch)):
            if type(number) is not int or not 0 <= number <= NUMBER_MAX:
                raise damaged(info.name, offset, f"partition {partition} has no {name} {number!r}")
    positions = {partition: Position(partition, at, epoch) for partition, at, epoch in found}
    if len(positions) < len(found):
        raise damaged(info.name, offset, "it has a partition twice")
    return positions


def damaged(topic: str, offset: object, what: str) -> InvalidArgumentError:
    """An error for an offset that this source has not written so."""
    return InvalidArgumentError(
        f"an offset of the checkpoint was edited or is damaged: {what}; restore the checkpoint, or give "
        "the query a checkpointLocation of its own and a start",
        topic=topic,
        given=offset,
    )
