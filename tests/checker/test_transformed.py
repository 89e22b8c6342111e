"""The judge of consume-transform-publish finds each planted anomaly, and nothing in a sound output."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.checker.log_history import Outcome, value_of
from tests.checker.transformed import Attempt, Output, Transformed, anomalies

WRITER = 3
DONE, ABORTED, KILLED, NEVER = 1, 2, 3, 4
ATTEMPTS = {
    DONE: Attempt(3, Outcome.DONE),
    ABORTED: Attempt(2, Outcome.REFUSED),
    KILLED: Attempt(1, Outcome.UNKNOWN),
    NEVER: Attempt(4, Outcome.UNKNOWN),
}


def output(numbers: list[int], keys: list[int], attempts: list[int]) -> Output:
    values = [value_of(WRITER, number) for number in numbers]
    return Output(*(np.array(one, np.int64) for one in (values, keys, attempts)))


def source(*numbers: int) -> np.ndarray:
    return np.array([value_of(WRITER, number) for number in numbers], np.int64)


SOUND = Transformed(
    source(0, 1, 2, 3),
    {7: output([0, 2], [0, 0], [DONE, DONE]), 8: output([3, 1], [2, 1], [KILLED, DONE])},
    ATTEMPTS,
)
KEYS_MIXED = {7: output([2, 0], [0, 0], [DONE, DONE]), 8: SOUND.output[8]}
PLANTED = {
    "missing": replace(SOUND, source=source(0, 1, 2, 3, 4)),
    "twice": replace(
        SOUND,
        output={**SOUND.output, 9: output([3], [2], [5])},
        attempts={**ATTEMPTS, 5: Attempt(1, Outcome.DONE)},
    ),
    "invented": replace(SOUND, source=source(0, 1, 2)),
    "aborted": replace(SOUND, attempts={**ATTEMPTS, KILLED: Attempt(1, Outcome.REFUSED)}),
    "partial": replace(SOUND, attempts={**ATTEMPTS, KILLED: Attempt(2, Outcome.UNKNOWN)}),
    "order": replace(SOUND, output=KEYS_MIXED),
}


def test_nothing_is_found_in_a_sound_output() -> None:
    assert anomalies(SOUND) == []


@pytest.mark.parametrize("kind", sorted(PLANTED))
def test_an_anomaly_of_an_output_is_found(kind: str) -> None:
    assert [one.kind for one in anomalies(PLANTED[kind])] == [kind]


def test_a_committed_transaction_whose_rows_are_not_there_is_partial() -> None:
    none_there = replace(SOUND, attempts={**ATTEMPTS, 5: Attempt(2, Outcome.DONE)})
    assert [one.kind for one in anomalies(none_there)] == ["partial"]


def test_a_row_of_a_transaction_that_never_began_is_invented() -> None:
    begun = {number: one for number, one in ATTEMPTS.items() if number != KILLED}
    assert [one.kind for one in anomalies(replace(SOUND, attempts=begun))] == ["invented"]
