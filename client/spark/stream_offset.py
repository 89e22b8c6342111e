"""Encode and decode the offset of a stream, which Spark stores in a checkpoint: JSON, format 2 or 3.

    {"format": 3, "topic": 7, "version": 2, "partitions": {"9": {"offset": 1200, "epoch": 31}, ...}}

`offset` is the offset of the next row, `epoch` the owner epoch of the row before it (0 = unknown). Together
they are a position, which proves that the log is still the one that the query read.

Format 3 is written once partitions of the topic were split or merged. `"ended": true` stands in the map in
which the last row of such a partition is read, beside its children; later maps leave the partition out. What
a map does not list is finished if it comes before a listed partition; else it begins at its first row. So
format 2 is read by the same rules: what it lists was not split before. Format 1 had no epochs. Older formats
are read and carried on.

`"query": "<id>"` stands in the offsets of a query with the option `cohort`, which is a member of it by this
name. Spark tells a Python source no id of its query, so one is drawn with the first offset; it lives as
long as the checkpoint, as Spark's id does.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ringfence.cluster.offsets import Position
from ringfence.common.arguments import NUMBER_MAX
from ringfence.native.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from ringfence.common.lineage import View

LINEAGE: Final = 3
FORMAT: Final = 2
WITHOUT_EPOCHS: Final = 1
QUERY: Final = re.compile(r"[0-9a-f-]{1,36}")


class StreamOffset(NamedTuple):
    """The positions by partition, and which of these are the end of a sealed partition.

    `query`: its id, or "".
    """

    positions: dict[int, Position]
    ended: frozenset[int]
    query: str = ""


def encode(
    view: View, positions: Iterable[Position], ended: Collection[int] = (), query: str = ""
) -> dict[str, Any]:
    """The offset of these positions for Spark; equal positions give equal JSON."""
    places: dict[str, dict[str, Any]] = {}
    for position in sorted(positions):
        place: dict[str, Any] = {"offset": position.offset, "epoch": position.epoch}
        if position.partition in ended:
            place["ended"] = True
        places[str(position.partition)] = place
    form = LINEAGE if view.has_lineage else FORMAT
    offset = {"format": form, "topic": view.topic, "version": view.version, "partitions": places}
    return {**offset, "query": query} if query else offset


def version_of(offset: object) -> int:
    """The version of the layout in which an offset was planned; 0: it is damaged, which `decode` tells."""
    version = offset.get("version") if isinstance(offset, dict) else None
    return version if type(version) is int and 0 <= version <= NUMBER_MAX else 0


def decode(topic: str, view: View, offset: object) -> StreamOffset:
    """The positions in an offset. `view`: of a table that is at least as new.

    Raises:
        InvalidArgumentError: the offset has a newer format, is of another topic, or is damaged.
    """
    if not isinstance(offset, dict) or "format" not in offset:
        raise damaged(topic, offset, "it has no format")
    form = offset["format"]
    if type(form) is not int or form not in (WITHOUT_EPOCHS, FORMAT, LINEAGE):
        raise InvalidArgumentError(
            "the checkpoint's offset has a format that this version cannot read; use a newer ringfence",
            format=form,
            known=[WITHOUT_EPOCHS, FORMAT, LINEAGE],
        )
    if offset.get("topic") != view.topic:
        raise InvalidArgumentError(
            "the checkpoint is of another topic (or of a deleted topic of this name); "
            "give the query a checkpointLocation of its own",
            topic=topic,
            topic_id=view.topic,
            checkpoint_topic_id=offset.get("topic"),
        )
    try:
        entries = [
            (
                int(partition),
                place["offset"],
                place["epoch"] if form != WITHOUT_EPOCHS else 0,
                place.get("ended", False) if form == LINEAGE else False,
            )
            for partition, place in offset["partitions"].items()
        ]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        fields = "offsets" if form == WITHOUT_EPOCHS else "offsets and epochs"
        raise damaged(topic, offset, f"its partitions are no map of {fields}: {error!r}") from error
    for partition, next_row, epoch, ended in entries:
        if partition not in view.parts and not (view.was_pruned(partition) or ended is True):
            raise damaged(topic, offset, f"the topic has no partition {partition}")
        for name, number in (("offset", next_row), ("epoch", epoch)):
            if type(number) is not int or not 0 <= number <= NUMBER_MAX:
                raise damaged(topic, offset, f"partition {partition} has no {name} {number!r}")
        if type(ended) is not bool:
            raise damaged(topic, offset, f'"ended" of partition {partition} is {ended!r}')
    positions = {one: Position(one, next_row, epoch) for one, next_row, epoch, _ in entries}
    if len(positions) < len(entries):
        raise damaged(topic, offset, "it has a partition twice")
    query = offset.get("query", "")
    if not isinstance(query, str) or (query and not QUERY.fullmatch(query)):
        raise damaged(topic, offset, f"it has no query {query!r}")
    return StreamOffset(positions, frozenset(one for one, _, _, ended in entries if ended), query)


def query_of(offset: object) -> str:
    """The id of the query in an offset; empty: it has none, or is damaged, which `decode` tells."""
    query = offset.get("query") if isinstance(offset, dict) else None
    return query if isinstance(query, str) and QUERY.fullmatch(query) else ""


def damaged(topic: str, offset: object, reason: str) -> InvalidArgumentError:
    """The error for an offset that this source cannot have written."""
    return InvalidArgumentError(
        f"an offset of the checkpoint was edited or is damaged: {reason}; restore the checkpoint, or give "
        "the query a checkpointLocation of its own and a start",
        topic=topic,
        given=offset,
    )
