"""Resolve the options `start` and `end` of a read to one position for each partition.

    earliest | latest | an ISO 8601 time with zone | {"PARTITION": OFFSET, ...} as JSON

OFFSET may also be {"offset": OFFSET, "epoch": EPOCH}, as in the checkpoint of a stream. The whole object may
also be [[PARTITION, OFFSET, EPOCH], ...], the form that `json.dumps` gives a reader's positions. A position
with an epoch other than 0 must belong to the log's history; an offset alone is accepted in any history.
"""

from __future__ import annotations

import datetime as dt
import json
import operator
from typing import TYPE_CHECKING, Any

from ringfence.cluster.offsets import Position
from ringfence.cluster.read_plan import lost_error
from ringfence.common.arguments import NUMBER_MAX
from ringfence.common.lineage import Lineage, Lost, restore, view_of
from ringfence.native.errors import InvalidArgumentError, TruncatedError
from ringfence.spark.verify_positions import History

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ringfence.client import Client
    from ringfence.cluster.offsets import Ends
    from ringfence.common.lineage import Restored, View

# Partitions that an error lists.
PARTITIONS_NAMED_MAX = 8
FORMS = (
    'earliest, latest, a time such as 2026-01-31T12:00:00Z, {"PARTITION": OFFSET, ...}, '
    '{"PARTITION": {"offset": OFFSET, "epoch": EPOCH}, ...} or [[PARTITION, OFFSET, EPOCH], ...]'
)


def window_of(
    client: Client, topic: str, ends: Mapping[int, Ends], *, start: str, end: str
) -> tuple[dict[int, Position], dict[int, Position]]:
    """First row and end of each partition, from the options `start` and `end`.

    Raises:
        InvalidArgumentError: as positions_of; or the read begins after its end, which would silently give no
            rows.
        TruncatedError: as positions_of.
    """
    first = positions_of(client, topic, ends, start, name="start")
    last = positions_of(client, topic, ends, end, name="end")
    crossed = [partition for partition in sorted(first) if first[partition].offset > last[partition].offset]
    since, until = (_time_of(text, name) for text, name in ((start, "start"), (end, "end")))
    if crossed or (since is not None and until is not None and since > until):
        raise InvalidArgumentError(
            "start is after end, which would give no rows; swap them",
            topic=topic,
            start=start,
            end=end,
            offsets={one: (first[one].offset, last[one].offset) for one in crossed[:PARTITIONS_NAMED_MAX]},
        )
    return first, last


def positions_of(
    client: Client, topic: str, ends: Mapping[int, Ends], text: str, *, name: str
) -> dict[int, Position]:
    """A position for each partition; epoch 0 means unknown. `text` is the value of the option `name`.

    Of the partitions that JSON leaves out, those before a listed one are finished: they get their end. Those
    that come after a listed one get their first row, also for `end`: rows of them are newer than the
    positions. Others get the log start for `start`, and the mark for `end`.

    Raises:
        InvalidArgumentError: the text has none of the forms, or names an offset that is not in the log.
        TruncatedError: a position with an epoch belongs to another history; or rows after `start` were
            removed with a partition that was split or merged.
    """
    if text == "earliest":
        return {end.partition: Position(end.partition, end.start) for end in ends.values()}
    if text == "latest":
        return {end.partition: _mark(end) for end in ends.values()}
    if _is_json(text):
        return _listed(client, topic, ends, text, name=name)
    time = _time_of(text, name)
    assert time is not None
    at = {position.partition: position for position in client.positions_at(topic, time)}
    return {  # `positions_at` leaves out partitions that ended before that time
        one: at[one] if one in at and at[one].offset <= end.end else _mark(end) for one, end in ends.items()
    }


def is_finished(end: Ends, position: Position) -> bool:
    """Whether no row comes after a position: the partition was split or merged, and ended there."""
    return end.ended and position.offset >= end.end


def _listed(
    client: Client, topic: str, ends: Mapping[int, Ends], text: str, *, name: str
) -> dict[int, Position]:
    """The positions of JSON, and what they mean for partitions that it leaves out."""
    named = {position.partition: position for position in _parse(text, name)}
    view = view_of(client.layout(topic))
    restored = restore(view, named)
    if restored.unknown:
        raise InvalidArgumentError(
            f"{name}: the topic has no such partition", partitions=list(restored.unknown), known=sorted(ends)
        )
    if name == "start":
        _check_pruned(topic, view, restored, named)
    way_out = "begin at a position that the log has now"
    with_epochs = [position for position in named.values() if position.epoch]
    History(client, topic, ends).prove(with_epochs, whose=f"the option {name}", way_out=way_out)
    positions = positions_of(client, topic, ends, "earliest" if name == "start" else "latest", name=name)
    for partition in positions:
        end = ends[partition]
        if partition in named:
            _check_in_log(end, named[partition], name)
            positions[partition] = named[partition]
        elif partition in restored.finished:
            positions[partition] = _mark(end)
        elif partition in restored.new:
            positions[partition] = Position(partition, end.start)
            if end.start and name == "start":
                raise TruncatedError(
                    f"start: rows 0 to {end.start - 1} come after the positions and were removed; name a "
                    "position of this partition, too",
                    topic=topic,
                    partition=partition,
                    rows_lost=end.start,
                )
    return positions


def _check_pruned(topic: str, view: View, restored: Restored, named: Mapping[int, Position]) -> None:
    """Raises TruncatedError if rows after the positions went with a partition that was pruned."""
    lineage = Lineage(view, restored, grows=False)
    for effect in lineage.begin({one: position.offset for one, position in named.items()}):
        if isinstance(effect, Lost):
            raise lost_error(topic, effect)


def _mark(end: Ends) -> Position:
    return Position(end.partition, end.end, end.epoch)


def _is_json(text: str) -> bool:
    return text.startswith(("{", "["))


def _time_of(text: str, name: str) -> dt.datetime | None:
    """The time; None for text of another form."""
    if text in {"earliest", "latest"} or _is_json(text):
        return None
    try:
        time = dt.datetime.fromisoformat(text)
    except ValueError as error:
        raise InvalidArgumentError(f"{name} must be one of: {FORMS}", given=text) from error
    if time.tzinfo is None:
        raise InvalidArgumentError(f"{name}: a time needs a zone, as in 2026-01-31T12:00:00Z", given=text)
    return time


def _parse(text: str, name: str) -> list[Position]:
    """The positions in JSON. Raises InvalidArgumentError for other forms and numbers."""
    try:
        positions = list(_positions(json.loads(text)))
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        raise InvalidArgumentError(f"{name} must be one of: {FORMS}", given=text) from error
    if len({position.partition for position in positions}) < len(positions):
        raise InvalidArgumentError(f"{name}: name each partition once", given=text)
    for position in positions:
        for field, number in (("offset", position.offset), ("epoch", position.epoch)):
            if type(number) is not int or not 0 <= number <= NUMBER_MAX:
                raise InvalidArgumentError(
                    f"{name}: the {field} must be a whole number from 0 to {NUMBER_MAX}",
                    partition=position.partition,
                    given=number,
                )
    return positions


def _positions(values: Any) -> Iterable[Position]:
    """Raises ValueError, TypeError, AttributeError or KeyError for another form."""
    if isinstance(values, list):
        for partition, offset, epoch in values:
            yield Position(operator.index(partition), offset, epoch)
        return
    for partition, place in values.items():
        if not isinstance(place, dict):
            yield Position(int(partition), place)
        elif set(place) == {"offset", "epoch"}:
            yield Position(int(partition), place["offset"], place["epoch"])
        else:
            raise ValueError(place)


def _check_in_log(end: Ends, position: Position, name: str) -> None:
    if not end.start <= position.offset <= end.end:
        raise InvalidArgumentError(
            f"{name}: the offset is not in the log; use one from log_start to log_end",
            partition=position.partition,
            offset=position.offset,
            log_start=end.start,
            log_end=end.end,
        )
