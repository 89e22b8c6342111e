"""Where a read begins and ends, from what an option says: one offset for each partition.

earliest | latest | an ISO 8601 time with zone | {"PARTITION": OFFSET, ...} as JSON
"""

from __future__ import annotations

import datetime as dt
import json
from typing import TYPE_CHECKING

from ringfence.native.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ringfence.client import Client
    from ringfence.cluster.offsets import Ends

PLACES_MAX = 8  # partitions that an error names
FORMS = 'earliest, latest, a time such as 2026-01-31T12:00:00Z, or {"PARTITION": OFFSET, ...}'


def window_of(
    client: Client, topic: str, ends: Mapping[int, Ends], *, start: str, end: str
) -> tuple[dict[int, int], dict[int, int]]:
    """First offset and end of each partition, from the options `start` and `end`.

    Raises:
        InvalidArgumentError: as offsets_of, or the read begins behind its end: it would give no rows, without
        a word.
    """
    first = offsets_of(client, topic, ends, start, name="start")
    last = offsets_of(client, topic, ends, end, name="end")
    crossed = [partition for partition in sorted(first) if first[partition] > last[partition]]
    since, until = (_time_of(text, name) for text, name in ((start, "start"), (end, "end")))
    if crossed or (since is not None and until is not None and since > until):
        raise InvalidArgumentError(
            "start is behind end: it would give no rows",
            topic=topic,
            start=start,
            end=end,
            offsets={partition: (first[partition], last[partition]) for partition in crossed[:PLACES_MAX]},
        )
    return first, last


def offsets_of(
    client: Client, topic: str, ends: Mapping[int, Ends], text: str, *, name: str
) -> dict[int, int]:
    """Partition -> offset. `text` is the option called `name`.

    Partitions that a JSON object leaves out: the log start for `start`, the mark for `end`.

    Raises:
        InvalidArgumentError: the text has none of the forms, or names an offset that is not in the log.
    """
    if text == "earliest":
        return {end.partition: end.start for end in ends.values()}
    if text == "latest":
        return {end.partition: end.end for end in ends.values()}
    if text.startswith("{"):
        return _by_partition(ends, text, name)
    time = _time_of(text, name)
    assert time is not None
    return {
        partition: min(offset, ends[partition].end)
        for partition, offset in client.offsets_at(topic, time).items()
        if partition in ends  # others are younger than the ends
    }


def _time_of(text: str, name: str) -> dt.datetime | None:
    """None for the other forms."""
    if text in {"earliest", "latest"} or text.startswith("{"):
        return None
    try:
        time = dt.datetime.fromisoformat(text)
    except ValueError as error:
        raise InvalidArgumentError(f"{name} is one of: {FORMS}", given=text) from error
    if time.tzinfo is None:
        raise InvalidArgumentError(f"{name}: a time needs its zone, as in 2026-01-31T12:00:00Z", given=text)
    return time


def _by_partition(ends: Mapping[int, Ends], text: str, name: str) -> dict[int, int]:
    try:
        given = {int(partition): offset for partition, offset in json.loads(text).items()}
    except (ValueError, AttributeError) as error:
        raise InvalidArgumentError(f"{name} is one of: {FORMS}", given=text) from error
    unknown = sorted(set(given) - set(ends))
    if unknown:
        raise InvalidArgumentError(
            f"{name}: the topic has no such partition", partitions=unknown, known=sorted(ends)
        )
    found = {end.partition: end.start if name == "start" else end.end for end in ends.values()}
    for partition, offset in given.items():
        end = ends[partition]
        if type(offset) is not int or not end.start <= offset <= end.end:
            raise InvalidArgumentError(
                f"{name}: the offset is not in the log; rows below its start were given up",
                partition=partition,
                offset=offset,
                log_start=end.start,
                log_end=end.end,
            )
        found[partition] = offset
    return found
