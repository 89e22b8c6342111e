"""Plan a read: which partitions are opened, and the offsets at which each begins and ends.

`partition` and `start` are the arguments of `client.read`. Partitions that were split or merged are read
before their children (`common/lineage.py`).
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from ringfence.cluster.offsets import Ends, Position, ends_of, offsets_at
from ringfence.common.arguments import whole
from ringfence.common.lineage import Lineage, Lost, Restored, chosen, restore, view_of
from ringfence.native import wire
from ringfence.native.errors import InvalidArgumentError, NotFoundError, TruncatedError

if TYPE_CHECKING:
    from ringfence.cluster.offsets import PartitionRequests
    from ringfence.common.lineage import View
    from ringfence.common.routing import Layout

Start = (
    None
    | Literal["earliest", "latest"]
    | int
    | dt.datetime
    | Mapping[int, int]
    | Mapping[int, Position]
    | Iterable[Position]
)
ON_TRUNCATED = ("raise", "skip")


class Span(NamedTuple):
    """The rows to read of one partition.

    `end` None: continue without end. `from_log_start`: begin at whatever the log start is by then. `last`:
    the end of a sealed partition; None: unknown.
    """

    partition: int
    start: int
    epoch: int
    end: int | None
    from_log_start: bool
    last: int | None = None


class Plan(NamedTuple):
    """`lineage` is begun: its admitted partitions may be fetched. `limited`: to named partitions."""

    layout: Layout
    spans: list[Span]
    lineage: Lineage
    limited: bool


def partitions_of(layout: Layout, partition: Any) -> list[int]:
    """Ids of the partitions to read: all that the table has, parents first, or those of `partition`.

    Raises:
        NotFoundError: the topic has no such partition; `pruned` in its details: it had it once.
    """
    view = view_of(layout)
    if partition is None:
        return [part.partition for part in view.in_order()]
    ids = _whole_numbers(partition)
    check_known(layout, view, [one for one in ids if one not in layout.partitions])
    return ids


def check_known(layout: Layout, view: View, missing: Iterable[int]) -> None:
    """Raises NotFoundError for a partition that the table does not have."""
    for one in missing:
        details: dict[str, Any] = {"known": sorted(layout.partitions)}
        if one in view.gone:
            details["pruned"] = True
        raise NotFoundError("the topic has no such partition", topic=layout.name, partition=one, **details)


def plan(
    requests: PartitionRequests,
    layout: Layout,
    partition: Any,
    start: Any,
    *,
    follow: bool,
    on_truncated: str = "raise",
) -> Plan:
    """The partitions of a read, each from `start` to its current end, or without end.

    Raises:
        NotFoundError: `partition` or `start` names a partition that the topic does not have.
        InvalidArgumentError: `start` has an invalid form, and the message lists the valid ones; or `start` is
            after the mark, where no reader can have read a row.
        TruncatedError: `start` is a position, and the log no longer has the row before it; or partitions with
            rows after the positions were pruned.
    """
    if on_truncated not in ON_TRUNCATED:
        raise InvalidArgumentError(
            f"on_truncated must be one of {', '.join(ON_TRUNCATED)}", given=repr(on_truncated)
        )
    skips = on_truncated == "skip"
    named = None if partition is None else partitions_of(layout, partition)
    given = _given(start, named, layout)
    layout = requests.with_partitions(layout, given)

    def sort(table: Layout) -> Restored:
        view = view_of(table)
        return chosen(view, named) if named is not None else restore(view, given)

    # Another topic's positions would mean that all rows are read again.
    check_known(layout, view_of(layout), restore(view_of(layout), given).unknown)
    layout, answers = requests.settled(
        layout,
        wire.Opcode.END_OFFSETS,
        0,
        lambda table: [one for one in sort(table).open if one in table.partitions],
        follows_table=named is None,
    )
    marks = ends_of(answers)
    restored = sort(layout)
    positions = _positions(requests, layout, restored, marks, given, start)
    for one in given:  # those of a time are of the log, and may be after a mark that was told before
        if one in marks:
            positions[one] = _in_log(layout, marks[one], positions[one], skips=skips)
    limited = named is not None
    lineage = Lineage(view_of(layout), restored, grows=follow and not limited, limited=limited)
    _begin(layout, lineage, positions, skips=skips)
    spans = [
        _span(marks[one], positions.get(one), follow=follow, is_new=one in restored.new)
        for one in restored.open
        if one in lineage.open
    ]
    return Plan(layout, spans, lineage, limited)


def lost_error(topic: str, lost: Lost) -> TruncatedError:
    """The error for rows of a pruned partition that a reader has not read."""
    if lost.end is None:
        rows = f"rows from {lost.offset} on"
        reason = f"{rows} and rows of partitions that followed it may be lost"
    elif lost.offset > lost.end:
        reason = f"it ended at {lost.end}, and the position is after that"
    else:
        reason = f"rows {lost.offset} to {lost.end - 1} were removed before they were read"
    return TruncatedError(
        f"the partition was split or merged and then pruned: {reason}; "
        'on_truncated="skip" continues after them',
        topic=topic,
        partition=lost.partition,
        offset=lost.offset,
        rows_lost=0 if lost.end is None else max(0, lost.end - lost.offset),
        pruned=True,
    )


def _begin(layout: Layout, lineage: Lineage, positions: Mapping[int, Position], *, skips: bool) -> None:
    """Raises TruncatedError for the first partition with rows that nobody can read, unless it is skipped."""
    offsets = {one: position.offset for one, position in positions.items()}
    for effect in lineage.begin(offsets):
        if isinstance(effect, Lost):
            if not skips:
                raise lost_error(layout.name, effect)
            lineage.skip(effect.partition)


def _span(mark: Ends, position: Position | None, *, follow: bool, is_new: bool) -> Span:
    from_log_start = position is None and not is_new
    start = position.offset if position is not None else 0 if is_new else mark.start
    return Span(
        mark.partition,
        start=start,
        epoch=0 if position is None else position.epoch,
        end=None if follow else mark.end,
        from_log_start=from_log_start,
        last=mark.end if mark.ended else None,
    )


# ---- the argument `start` ---------------------------------------------------------------------------------


def _given(start: Any, named: list[int] | None, layout: Layout) -> dict[int, Position]:
    """The positions that `start` lists; none for the other forms."""
    if start is None or isinstance(start, dt.datetime) or start in ("earliest", "latest"):
        return {}
    if _is_whole(start):
        ids = partitions_of(layout, None) if named is None else named
        if len(ids) != 1:
            raise InvalidArgumentError(
                "an offset belongs to one partition; pass partition=, or {partition: offset}", start=start
            )
        return {ids[0]: _position(ids[0], start)}
    if isinstance(start, Mapping):
        positions = [
            _position(*value) if isinstance(value, Position) else _position(partition, value)
            for partition, value in start.items()
        ]
        return {position.partition: position for position in positions}
    if not isinstance(start, str) and isinstance(start, Iterable):
        try:
            return {position.partition: position for position in (_position(*one) for one in start)}
        except TypeError as error:
            raise InvalidArgumentError(
                "a position must be (partition, offset, epoch)", start=repr(start)
            ) from error
    raise InvalidArgumentError(
        'start must be None, "earliest", "latest", an offset, a datetime, {partition: offset} or positions',
        start=repr(start),
    )


def _positions(
    requests: PartitionRequests,
    layout: Layout,
    restored: Restored,
    marks: Mapping[int, Ends],
    given: dict[int, Position],
    start: Any,
) -> dict[int, Position]:
    """The positions to begin at; partitions without one begin at their first row or at the log start."""
    if isinstance(start, str) and start == "latest":
        return {mark.partition: Position(mark.partition, mark.end, mark.epoch) for mark in marks.values()}
    if isinstance(start, dt.datetime):
        return offsets_at(requests, layout, [one for one in restored.open if one in marks], start)
    return dict(given)


def _position(partition: object, offset: object, epoch: object = 0) -> Position:
    """Raises InvalidArgumentError for values that no header can hold."""
    number = whole("start: a partition", partition, 0)
    return Position(number, _whole_of(number, "offset", offset), _whole_of(number, "epoch", epoch))


def _whole_of(partition: int, name: str, value: object) -> int:
    """Like `whole`, with the partition in the error."""
    try:
        return whole(f"start: the {name}", value, 0)
    except InvalidArgumentError as error:
        raise InvalidArgumentError(error.message, partition=partition, given=repr(value)) from None


def _is_whole(value: object) -> bool:
    return hasattr(value, "__index__") and not isinstance(value, bool)


def _whole_numbers(value: object) -> list[int]:
    if isinstance(value, Iterable) and not isinstance(value, str | bytes):
        return [whole("partition", one, 0) for one in value]
    return [whole("partition", value, 0)]


def _in_log(layout: Layout, mark: Ends, position: Position, *, skips: bool) -> Position:
    """The position, if the log can have it. After the end of the log it would skip rows.

    Raises:
        InvalidArgumentError: the position has no epoch.
        TruncatedError: the position has an epoch (its row was read once), and the log does not have the row;
            or the partition was sealed before it, after a loss that an operator accepted.
    """
    if position.offset < mark.end:
        return position  # the first FETCH compares the epoch
    if position.offset > mark.end and mark.ended and skips:
        return Position(mark.partition, mark.end, mark.epoch)
    if position.offset > mark.end and not position.epoch and not mark.ended:
        raise InvalidArgumentError(
            f'start: the log ends at {mark.end}; begin at most there ("latest")',
            topic=layout.name,
            partition=mark.partition,
            offset=position.offset,
        )
    if position.offset == mark.end and (not position.epoch or mark.epoch in {0, position.epoch}):
        return position
    if not position.epoch:
        raise TruncatedError(
            f"start: the partition was split or merged and ends at {mark.end}, before {position.offset}; "
            'begin at most there, or pass on_truncated="skip"',
            topic=layout.name,
            partition=mark.partition,
            offset=position.offset,
            epoch=0,
            start_offset=mark.start,
        )
    why = (
        f"is of epoch {mark.epoch}"
        if position.offset == mark.end
        else f"does not exist: it ends at {mark.end}"
    )
    raise TruncatedError(
        f"the log has another history now: the row before {position.offset}, which was of epoch "
        f"{position.epoch}, {why}; continue at the log start, or at another offset",
        topic=layout.name,
        partition=mark.partition,
        offset=position.offset,
        epoch=position.epoch,
        start_offset=mark.start,
    )
