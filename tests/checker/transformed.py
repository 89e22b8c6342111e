"""Judge what consumers wrote to another topic, exactly once. Pure: a history in, a list of anomalies out.

| anomaly | what it is |
|---|---|
| missing | a row of the source is not in the output |
| twice | it is there more than once |
| invented | a row of the output is not of the source, or no transaction of its number began |
| aborted | a row is there whose transaction was aborted or refused |
| partial | of a transaction some rows are there, and others are not; or it was committed, and none is |
| order | rows of one writer and key are not in their order in a partition of the output |

A transaction without an end, of a process that was killed, has all of its rows there, or none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tests.checker.log_anomalies import Anomaly
from tests.checker.log_history import NUMBER_BITS, Outcome, Values, shown


class Attempt(NamedTuple):
    """A transaction, and how many rows it sent."""

    rows: int
    outcome: Outcome


class Output(NamedTuple):
    """Rows of one partition in their order: values, keys, and numbers of attempts."""

    values: Values
    keys: Values
    attempts: Values


@dataclass(frozen=True)
class Transformed:
    """`source`: all values of the input. `output` is by partition, `attempts` by number."""

    source: Values
    output: Mapping[int, Output]
    attempts: Mapping[int, Attempt]


def anomalies(history: Transformed) -> list[Anomaly]:
    """All that is wrong."""
    return [*_rows(history), *_attempts(history), *_order(history)]


def _rows(history: Transformed) -> Iterator[Anomaly]:
    parts = [part.values for part in history.output.values()]
    values, counts = np.unique(np.concatenate([*parts, np.empty(0, np.int64)]), return_counts=True)
    for kind, found, what in (
        ("missing", np.setdiff1d(history.source, values), "is not in the output"),
        ("twice", values[counts > 1], "is in the output more than once"),
        ("invented", np.setdiff1d(values, history.source), "is in the output, and not in the source"),
    ):
        if len(found):
            yield Anomaly(kind, f"{shown(int(found[0]))} {what}", len(found))


def _attempts(history: Transformed) -> Iterator[Anomaly]:
    parts = [part.attempts for part in history.output.values()]
    numbers, counts = np.unique(np.concatenate([*parts, np.empty(0, np.int64)]), return_counts=True)
    there = dict(zip(numbers.tolist(), counts.tolist(), strict=True))
    for number in there.keys() - history.attempts.keys():
        yield Anomaly("invented", f"transaction {number} never began", there[number])
    for number, attempt in history.attempts.items():
        rows = there.get(number, 0)
        text = f"transaction {number}: {rows} of {attempt.rows} rows are there"
        if attempt.outcome is Outcome.REFUSED and rows:
            yield Anomaly("aborted", text)
        elif rows != attempt.rows and (rows or attempt.outcome is Outcome.DONE):
            yield Anomaly("partial", text)


def _order(history: Transformed) -> Iterator[Anomaly]:
    for partition, part in history.output.items():
        writers, numbers = part.values >> NUMBER_BITS, part.values & ((1 << NUMBER_BITS) - 1)
        by_key = np.lexsort((np.arange(len(numbers)), part.keys, writers))
        writers, keys, numbers = writers[by_key], part.keys[by_key], numbers[by_key]
        is_same = (np.diff(writers) == 0) & (np.diff(keys) == 0)
        wrong = np.flatnonzero(is_same & (np.diff(numbers) < 0))
        if len(wrong):
            at = int(wrong[0])
            text = f"row {numbers[at + 1]} of writer {writers[at]} comes after row {numbers[at]}"
            yield Anomaly("order", f"{text} in partition {partition}, key {keys[at]}", len(wrong))
