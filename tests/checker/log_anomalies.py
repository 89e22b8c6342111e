"""Judge what clients of a log saw. Pure: a history in, a list of anomalies out.

| anomaly | what it is |
|---|---|
| lost | an acknowledged row is not in the final read |
| duplicate | a row stands at two places |
| invented | a row was read that no writer sent |
| aborted read | a row was read whose send was refused, or whose transaction was aborted |
| two values | two reads, or a read and an acknowledgement, differ in what stands at an offset |
| order | rows of one writer and key are not in the order of their sends, in a partition or for a reader |
| partial transaction | some rows of a transaction are in the final read, and others are not |
| skip, back | a reader without a seek left rows out, or was given rows again |
| ends went back | an end or a start is below one known before the question was asked |
| truncated and back | a row was read after a truncate of it was done |

What was known: an earlier answer, or an acknowledged row. An accepted loss (`Forced`) excuses its price:
rows that were acknowledged before it ended, and differences between what was seen before it began and after
it ended.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tests.checker.log_history import (
    FINAL,
    History,
    Outcome,
    Read,
    Send,
    Values,
    numbers_of,
    shown,
    value_of,
    writers_of,
)


@dataclass(frozen=True, slots=True)
class Anomaly:
    kind: str
    text: str
    count: int = 1

    def __str__(self) -> str:
        more = f" ({self.count:,} of them)" if self.count > 1 else ""
        return f"{self.kind}: {self.text}{more}"


def anomalies(history: History) -> list[Anomaly]:
    """All that is wrong with a history, by kind."""
    view = _View(history)
    checks = (
        _lost,
        _duplicates,
        _invented,
        _aborted,
        _two_values,
        _order,
        _delivered,
        _partial,
        _sessions,
        _ends,
        _back_again,
    )
    return [anomaly for check in checks for anomaly in check(view)]


class _View:
    """A history with what several checks need of it."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.outcomes = {commit.transaction: commit.outcome for commit in history.commits}
        self.final = [read for read in history.reads if read.reader == FINAL]
        self.final_values = _joined([read.values for read in self.final])
        self.final_sorted = np.unique(self.final_values)
        self.starts = _final_starts(history, self.final)

    def decided(self, send: Send) -> Outcome:
        """What became of a send's rows: that of its transaction, where it has one."""
        if not send.transaction:
            return send.outcome
        return self.outcomes.get(send.transaction, Outcome.UNKNOWN)

    def in_final(self, values: Values) -> NDArray[np.bool_]:
        return _within(values, self.final_sorted)

    def forced_after(self, partition: int, moment: float) -> bool:
        """Whether a loss was accepted in the partition that may cost what was acknowledged at `moment`."""
        return any(one.ended >= moment and partition in (one.partition, -1) for one in self.history.forced)


def _final_starts(history: History, final: list[Read]) -> dict[int, int]:
    """Of each partition: the first offset that is left. Where no row is left, the last answer tells it."""
    starts: dict[int, int] = {}
    for one in history.ends:
        starts[one.partition] = max(one.start, starts.get(one.partition, 0))
    first: dict[int, int] = {}
    for read in final:
        first[read.partition] = min(read.offset, first.get(read.partition, read.offset))
    return starts | first


def _joined(parts: list[Values]) -> Values:
    return np.concatenate(parts) if parts else np.empty(0, np.int64)


def _within(values: Values, known: Values) -> NDArray[np.bool_]:
    """Which of `values` are in `known`, a sorted array."""
    if not len(known):
        return np.zeros(len(values), np.bool_)
    place = np.minimum(np.searchsorted(known, values), len(known) - 1)
    found: NDArray[np.bool_] = known[place] == values
    return found


def _values_of(send: Send) -> Values:
    first = value_of(send.writer, send.first)
    return np.arange(first, first + send.rows, dtype=np.int64)


def _lost(view: _View) -> Iterator[Anomaly]:
    """Rows below the final log start were truncated or retired; a reader may know the place of others."""
    places = _first_places(view)
    for send in view.history.sends:
        if view.decided(send) is not Outcome.DONE:
            continue
        values = _values_of(send)
        missing = values[~view.in_final(values)]
        if send.offset >= 0:
            below = send.offset + (missing - values[0]) < view.starts.get(send.partition, 0)
            missing = missing[~below]
        else:
            missing = np.array(
                [one for one in missing if not _is_below_start(view, places.get(int(one)))], np.int64
            )
        if len(missing) and not view.forced_after(send.partition, send.ended):
            where = f" of partition {send.partition} at offset {send.offset}" if send.offset >= 0 else ""
            yield Anomaly("lost", f"{shown(int(missing[0]))}{where} was acknowledged", len(missing))


def _first_places(view: _View) -> dict[int, tuple[int, int]]:
    """(partition, offset) of rows of transactions, as readers saw them, where something was truncated."""
    if not any(view.starts.values()):
        return {}
    wanted = np.unique(_joined([_values_of(send) for send in view.history.sends if send.transaction]))
    found: dict[int, tuple[int, int]] = {}
    for read in view.history.reads:
        for place in np.flatnonzero(_within(read.values, wanted)):
            found[int(read.values[place])] = (read.partition, read.offset + int(place))
    return found


def _is_below_start(view: _View, place: tuple[int, int] | None) -> bool:
    return place is not None and place[1] < view.starts.get(place[0], 0)


def _duplicates(view: _View) -> Iterator[Anomaly]:
    values, counts = np.unique(view.final_values, return_counts=True)
    twice = values[counts > 1]
    if len(twice):
        yield Anomaly("duplicate", f"{shown(int(twice[0]))} is stored twice", len(twice))


def _invented(view: _View) -> Iterator[Anomaly]:
    sent = np.unique(_joined([_values_of(send) for send in view.history.sends]))
    for read in view.history.reads:
        strange = read.values[~_within(read.values, sent)]
        if len(strange):
            text = f"{shown(int(strange[0]))} was read in partition {read.partition}, and was never sent"
            yield Anomaly("invented", text, len(strange))


def _aborted(view: _View) -> Iterator[Anomaly]:
    refused = [send for send in view.history.sends if view.decided(send) is Outcome.REFUSED]
    values = np.unique(_joined([_values_of(send) for send in refused]))
    for read in view.history.reads:
        found = read.values[_within(read.values, values)]
        if len(found):
            text = f"{shown(int(found[0]))} was refused or aborted, and read in partition {read.partition}"
            yield Anomaly("aborted read", text, len(found))


def _two_values(view: _View) -> Iterator[Anomaly]:
    """Of each partition and era: every offset has one value."""
    seen: dict[tuple[int, int], list[tuple[int, Values]]] = defaultdict(list)
    for read in view.history.reads:
        _see(view, seen, read.partition, read.offset, read.values, read.begun, read.ended)
    for send in view.history.sends:
        if send.offset >= 0 and send.outcome is Outcome.DONE:
            _see(view, seen, send.partition, send.offset, _values_of(send), send.begun, send.ended)
    for (partition, _), parts in seen.items():
        offsets = _joined(
            [np.arange(offset, offset + len(values), dtype=np.int64) for offset, values in parts]
        )
        values = _joined([values for _, values in parts])
        pairs = np.unique(np.stack([offsets, values]), axis=1)
        differ = pairs[0][1:][pairs[0][1:] == pairs[0][:-1]]
        if len(differ):
            both = ", ".join(shown(int(one)) for one in pairs[1][pairs[0] == differ[0]][:3])
            text = f"offset {differ[0]} of partition {partition} has {both}"
            yield Anomaly("two values", text, len(np.unique(differ)))


def _see(
    view: _View,
    seen: dict[tuple[int, int], list[tuple[int, Values]]],
    partition: int,
    offset: int,
    values: Values,
    begun: float,
    ended: float,
) -> None:
    """Add to the era that it surely belongs to; what overlaps an accepted loss belongs to none."""
    losses = [one for one in view.history.forced if partition in (one.partition, -1)]
    if all(ended < one.begun or begun > one.ended for one in losses):
        seen[partition, sum(begun > one.ended for one in losses)].append((offset, values))


def _order(view: _View) -> Iterator[Anomaly]:
    """Of each partition as the final read has it: a writer's numbers ascend within a key."""
    keys = _sent_keys(view)
    for partition, values in _final_by_partition(view).items():
        yield from _descents(values, keys, f"in partition {partition}")


def _delivered(view: _View) -> Iterator[Anomaly]:
    """Of each session of a reader: a key's rows come in order, through splits and merges of its partition.

    After an accepted loss a session may have been given rows that are gone.
    """
    if view.history.forced:
        return
    keys, sessions = _sent_keys(view), defaultdict[tuple[str, int], list[Values]](list)
    for read in view.history.reads:
        sessions[read.reader, read.session].append(read.values)
    for (reader, session), parts in sessions.items():
        yield from _descents(_joined(parts), keys, f"for reader {reader}, session {session}")


@dataclass(frozen=True, slots=True)
class _Sent:
    """The sends of one writer, by number; each array has one element a send."""

    firsts: Values
    ends: Values
    keys: Values

    def keys_of(self, numbers: Values) -> Values:
        """The key of each number; -1 of one that was never sent."""
        place = np.searchsorted(self.firsts, numbers, side="right") - 1
        known = (place >= 0) & (numbers < self.ends[place])
        return np.where(known, self.keys[place], -1)


def _sent_keys(view: _View) -> dict[int, _Sent]:
    """By writer."""
    sends: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
    for send in view.history.sends:
        sends[send.writer].append((send.first, send.first + send.rows, send.key))
    return {writer: _Sent(*np.array(sorted(found), np.int64).T) for writer, found in sends.items()}


def _descents(values: Values, sent: dict[int, _Sent], where: str) -> Iterator[Anomaly]:
    """Where a writer's numbers do not ascend within a key, in the order of `values`."""
    writers, numbers = writers_of(values), numbers_of(values)
    for writer in np.unique(writers):
        own = numbers[writers == writer]
        of_writer = sent.get(int(writer))
        keys = np.full(len(own), -1, np.int64) if of_writer is None else of_writer.keys_of(own)
        by_key = np.argsort(keys, kind="stable")
        keys, own = keys[by_key], own[by_key]
        wrong = np.flatnonzero((np.diff(own) < 0) & (np.diff(keys) == 0))
        for key in np.unique(keys[wrong]):
            [first, *_] = of_key = wrong[keys[wrong] == key]
            text = f"row {own[first + 1]} of writer {writer} comes after row {own[first]} {where}, key {key}"
            yield Anomaly("order", text, len(of_key))


def _final_by_partition(view: _View) -> dict[int, Values]:
    parts: dict[int, list[Read]] = defaultdict(list)
    for read in view.final:
        parts[read.partition].append(read)
    return {
        partition: _joined([read.values for read in sorted(reads, key=lambda read: read.offset)])
        for partition, reads in parts.items()
    }


def _partial(view: _View) -> Iterator[Anomaly]:
    """Only where nothing was truncated or lost with consent: there a missing row tells nothing."""
    if view.history.forced or any(view.starts.values()):
        return
    rows: dict[str, list[Values]] = defaultdict(list)
    for send in view.history.sends:
        if send.transaction and send.outcome is not Outcome.REFUSED:
            rows[send.transaction].append(_values_of(send))
    for transaction, parts in rows.items():
        found = view.in_final(_joined(parts))
        if found.any() and not found.all():
            text = f"transaction {transaction}: {int(found.sum())} of {len(found)} rows are there"
            yield Anomaly("partial transaction", text)


def _sessions(view: _View) -> Iterator[Anomaly]:
    next_offset: dict[tuple[str, int, int], int] = {}
    for read in view.history.reads:
        session = (read.reader, read.session, read.partition)
        wanted = next_offset.get(session, read.offset)
        if read.offset != wanted:
            kind = "skip" if read.offset > wanted else "back"
            where = f"offset {read.offset} of partition {read.partition}"
            text = f"{read.reader} was given {where} after {wanted - 1}"
            yield Anomaly(kind, text)
        next_offset[session] = read.offset + len(read.values)


def _ends(view: _View) -> Iterator[Anomaly]:
    """Marks and starts only grow: an answer is compared with all that ended before its question began."""
    seen: dict[int, list[tuple[float, float, int, int]]] = defaultdict(list)
    for one in view.history.ends:
        seen[one.partition].append((one.begun, one.ended, one.start, one.end))
    for send in view.history.sends:
        if send.offset >= 0 and send.outcome is Outcome.DONE:
            seen[send.partition].append((send.begun, send.ended, 0, send.offset + send.rows))
    # An acknowledgement is only a lower bound of the mark: it is never too low itself.
    questions = {(one.partition, one.begun, one.ended) for one in view.history.ends}
    for partition, answers in seen.items():
        over: list[tuple[float, int, int]] = []
        start_least = end_least = 0
        for begun, ended, start, end in sorted(answers):
            while over and over[0][0] < begun:
                _, known_start, known_end = heapq.heappop(over)
                start_least, end_least = max(start_least, known_start), max(end_least, known_end)
            is_question = (partition, begun, ended) in questions
            if (
                is_question
                and (end < end_least or start < start_least)
                and not view.forced_after(partition, 0.0)
            ):
                text = (
                    f"partition {partition} ends at {end} and begins at {start}; "
                    f"{end_least} and {start_least} were known before"
                )
                yield Anomaly("ends went back", text)
            heapq.heappush(over, (ended, start, end))


def _back_again(view: _View) -> Iterator[Anomaly]:
    """A forced owner may begin below a truncate; its offsets are those of other rows."""
    for one in view.history.truncates:
        if one.outcome is not Outcome.DONE or view.forced_after(one.partition, one.ended):
            continue
        for read in view.history.reads:
            if read.partition == one.partition and read.begun > one.ended and read.offset < one.before:
                where = f"offset {read.offset} of partition {read.partition}"
                text = f"{where} was read after a truncate to {one.before}"
                yield Anomaly("truncated and back", text)
                break
