"""Where a read begins and ends, from what an option says: one position for each partition.

earliest | latest | an ISO 8601 time with zone | {"PARTITION": OFFSET, ...} as JSON

For OFFSET also {"offset": OFFSET, "epoch": EPOCH}, as in the checkpoint of a stream; for the whole object
also [[PARTITION, OFFSET, EPOCH], ...], what `json.dumps` makes of a reader's positions. A place with an epoch
(not 0) must be one of the log's history; an offset alone is taken whatever the history is.
"""

from __future__ import annotations

import datetime as dt
import json
import operator
from typing import TYPE_CHECKING, Any

from ringfence.cluster.offsets import Position
from ringfence.common.arguments import NUMBER_MAX
from ringfence.native.errors import InvalidArgumentError
from ringfence.spark.history import History

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ringfence.client import Client
    from ringfence.cluster.offsets import Ends

PLACES_MAX = 8  # partitions that an error names
FORMS = (
    'earliest, latest, a time such as 2026-01-31T12:00:00Z, {"PARTITION": OFFSET, ...}, '
    '{"PARTITION": {"offset": OFFSET, "epoch": EPOCH}, ...} or [[PARTITION, OFFSET, EPOCH], ...]'
)


def window_of(
    client: Client, topic: str, ends: Mapping[int, Ends], *, start: str, end: str
) -> tuple[dict[int, Position], dict[int, Position]]:
    """First row and end of each partition, from the options `start` and `end`.

    Raises:
        InvalidArgumentError: as positions_of, or the read begins behind its end: it would give no rows,
        without a word. TruncatedError: as positions_of.
    """
    first = positions_of(client, topic, ends, start, name="start")
    last = positions_of(client, topic, ends, end, name="end")
    crossed = [partition for partition in sorted(first) if first[partition].offset > last[partition].offset]
    since, until = (_time_of(text, name) for text, name in ((start, "start"), (end, "end")))
    if crossed or (since is not None and until is not None and since > until):
        raise InvalidArgumentError(
            "start is behind end: it would give no rows",
            topic=topic,
            start=start,
            end=end,
            offsets={one: (first[one].offset, last[one].offset) for one in crossed[:PLACES_MAX]},
        )
    return first, last


def positions_of(
    client: Client, topic: str, ends: Mapping[int, Ends], text: str, *, name: str
) -> dict[int, Position]:
    """A position for each partition; epoch 0 where it is not known. `text` is the option called `name`.

    Partitions that JSON leaves out: the log start for `start`, the mark for `end`.

    Raises:
        InvalidArgumentError: the text has none of the forms, or names an offset that is not in the log.
        TruncatedError: a place with an epoch is of another history.
    """
    if text == "earliest":
        return {end.partition: Position(end.partition, end.start) for end in ends.values()}
    if text == "latest":
        return {end.partition: _mark(end) for end in ends.values()}
    if _is_json(text):
        given = _given(ends, text, name)
        known = [at for at in given if at.epoch]
        way_out = "begin at a place that the log has now"
        History(client, topic, ends).prove(known, whose=f"the option {name}", way_out=way_out)
        found = positions_of(client, topic, ends, "earliest" if name == "start" else "latest", name=name)
        for at in given:
            _check_held(ends[at.partition], at, name)
            found[at.partition] = at
        return found
    time = _time_of(text, name)
    assert time is not None
    return {
        at.partition: at if at.offset <= ends[at.partition].end else _mark(ends[at.partition])
        for at in client.positions_at(topic, time)
        if at.partition in ends  # others are younger than the ends
    }


def _mark(end: Ends) -> Position:
    return Position(end.partition, end.end, end.epoch)


def _is_json(text: str) -> bool:
    return text.startswith(("{", "["))


def _time_of(text: str, name: str) -> dt.datetime | None:
    """None for the other forms."""
    if text in {"earliest", "latest"} or _is_json(text):
        return None
    try:
        time = dt.datetime.fromisoformat(text)
    except ValueError as error:
        raise InvalidArgumentError(f"{name} is one of: {FORMS}", given=text) from error
    if time.tzinfo is None:
        raise InvalidArgumentError(f"{name}: a time needs its zone, as in 2026-01-31T12:00:00Z", given=text)
    return time


def _given(ends: Mapping[int, Ends], text: str, name: str) -> list[Position]:
    """What the JSON says, of partitions that the topic has."""
    try:
        given = list(_read(json.loads(text)))
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        raise InvalidArgumentError(f"{name} is one of: {FORMS}", given=text) from error
    unknown = sorted({at.partition for at in given} - set(ends))
    if unknown:
        raise InvalidArgumentError(
            f"{name}: the topic has no such partition", partitions=unknown, known=sorted(ends)
        )
    if len({at.partition for at in given}) < len(given):
        raise InvalidArgumentError(f"{name}: each partition once", given=text)
    for at in given:
        for what, number in (("offset", at.offset), ("epoch", at.epoch)):
            if type(number) is not int or not 0 <= number <= NUMBER_MAX:
                raise InvalidArgumentError(
                    f"{name}: the {what} is a whole number from 0 to {NUMBER_MAX}",
                    partition=at.partition,
                    given=number,
                )
    return given


def _read(told: Any) -> Iterable[Position]:
    """Raises ValueError, TypeError, AttributeError or KeyError for another form."""
    if isinstance(told, list):
        for partition, offset, epoch in told:
            yield Position(operator.index(partition), offset, epoch)
        return
    for partition, place in told.items():
        if not isinstance(place, dict):
            yield Position(int(partition), place)
        elif set(place) == {"offset", "epoch"}:
            yield Position(int(partition), place["offset"], place["epoch"])
        else:
            raise ValueError(place)


def _check_held(end: Ends, at: Position, name: str) -> None:
    if not end.start <= at.offset <= end.end:
        raise InvalidArgumentError(
            f"{name}: the offset is not in the log; rows below its start were given up",
            partition=at.partition,
            offset=at.offset,
            log_start=end.start,
            log_end=end.end,
        )
