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
from ringfence.common.arguments import NUMBER_MAX
from ringfence.native.errors import InvalidArgumentError
from ringfence.spark.verify_positions import History

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ringfence.client import Client
    from ringfence.cluster.offsets import Ends

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

    Partitions that JSON leaves out get the log start for `start`, and the mark for `end`.

    Raises:
        InvalidArgumentError: the text has none of the forms, or names an offset that is not in the log.
        TruncatedError: a position with an epoch belongs to another history.
    """
    if text == "earliest":
        return {end.partition: Position(end.partition, end.start) for end in ends.values()}
    if text == "latest":
        return {end.partition: _mark(end) for end in ends.values()}
    if _is_json(text):
        named = _parse(ends, text, name)
        with_epochs = [position for position in named if position.epoch]
        way_out = "begin at a position that the log has now"
        History(client, topic, ends).prove(with_epochs, whose=f"the option {name}", way_out=way_out)
        positions = positions_of(client, topic, ends, "earliest" if name == "start" else "latest", name=name)
        for position in named:
            _check_in_log(ends[position.partition], position, name)
            positions[position.partition] = position
        return positions
    time = _time_of(text, name)
    assert time is not None
    return {
        position.partition: position
        if position.offset <= ends[position.partition].end
        else _mark(ends[position.partition])
        for position in client.positions_at(topic, time)
        if position.partition in ends  # other partitions were created after `ends` was fetched
    }


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


def _parse(ends: Mapping[int, Ends], text: str, name: str) -> list[Position]:
    """The positions in JSON. Raises InvalidArgumentError for partitions that the topic does not have."""
    try:
        positions = list(_positions(json.loads(text)))
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        raise InvalidArgumentError(f"{name} must be one of: {FORMS}", given=text) from error
    unknown = sorted({position.partition for position in positions} - set(ends))
    if unknown:
        raise InvalidArgumentError(
            f"{name}: the topic has no such partition", partitions=unknown, known=sorted(ends)
        )
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
