"""When the rows in hand end soon, by how fast the application took those before."""

from __future__ import annotations

from ringfence.consumer.queue_calls import Leased, Line
from ringfence.consumer.queue_pace import AHEAD_S, Pace
from ringfence.consumer.queue_rows import StoredRows


def answer(rows: int) -> StoredRows:
    lines = (Line(0, rows, 1, 0, False),)
    return StoredRows(1, Leased(1, 1, 0, rows, lines, bytes=100), lines, until=30.0, extend_at=10.0)


def take(stored: StoredRows, rows: int) -> None:
    line = stored.lines[0]
    stored.lines[0] = line._replace(first=line.first + rows)


def paced(seconds: float, rows: int = 1_000) -> tuple[Pace, float]:
    """An application that took an answer of so many rows in this time."""
    pace = Pace()
    pace.look(answer(rows), 0.0)
    pace.look(None, seconds)
    return pace, seconds


def test_nothing_in_hand_ends_soon_and_a_first_answer_does_not() -> None:
    pace = Pace()
    assert pace.ends_soon(0.0)
    pace.look(answer(10), 0.0)
    assert not pace.ends_soon(0.0)


def test_a_fast_application_is_given_more_before_its_rows_end() -> None:
    pace, now = paced(AHEAD_S / 2)
    pace.look(answer(1_000), now)
    assert pace.ends_soon(now)


def test_a_slow_application_is_given_more_when_few_rows_are_left() -> None:
    pace, now = paced(10 * AHEAD_S)
    stored = answer(1_000)
    pace.look(stored, now)
    assert not pace.ends_soon(now)
    take(stored, 890)
    assert not pace.ends_soon(now + 8.9 * AHEAD_S)
    take(stored, 10)
    assert pace.ends_soon(now + 9.0 * AHEAD_S)


def test_an_application_that_has_slowed_down_is_not_given_more() -> None:
    pace, now = paced(AHEAD_S / 2)
    stored = answer(1_000)
    pace.look(stored, now)
    take(stored, 10)
    assert pace.ends_soon(now + AHEAD_S / 2)
    assert not pace.ends_soon(now + 2 * AHEAD_S)
