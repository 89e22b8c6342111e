"""Timers in the order of their times, and when a pause collects small answers."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from ringfence.network.scheduler import MODERATE_BYTES_MAX, MODERATE_FROM, Scheduler, should_collect


def test_functions_are_due_in_the_order_of_time_then_of_the_calls() -> None:
    scheduler, called = Scheduler(), list[str]()
    for name, when in (("late", 3.0), ("first", 1.0), ("second", 1.0)):
        scheduler.at(when, partial(called.append, name))
    assert (len(scheduler), scheduler.next_at) == (3, 1.0)
    for function in scheduler.due(2.0):
        function()
    assert called == ["first", "second"]
    assert scheduler.next_at == 3.0


def test_what_a_due_function_adds_is_due_in_the_same_turn() -> None:
    scheduler, called = Scheduler(), list[int]()

    def again() -> None:
        called.append(len(called))
        if len(called) < 3:
            scheduler.at(1.0, again)

    scheduler.at(1.0, again)
    for function in scheduler.due(1.0):
        function()
    assert called == [0, 1, 2]


def test_functions_that_are_taken_or_dropped_are_gone() -> None:
    scheduler = Scheduler()
    scheduler.at(1.0, list)
    scheduler.at(9.0, dict)
    assert set(scheduler.take_all()) == {list, dict}
    assert len(scheduler) == 0
    scheduler.at(1.0, list)
    scheduler.clear()
    assert list(scheduler.due(5.0)) == []


class Connection:
    def __init__(self, unanswered: int, size: int) -> None:
        self._unanswered, self.unanswered_bytes = unanswered, unanswered * size

    def __len__(self) -> int:
        return self._unanswered


@pytest.mark.parametrize(
    ("connections", "collects"),
    [
        ([], False),
        ([(MODERATE_FROM - 1, 1)], False),
        ([(MODERATE_FROM, MODERATE_BYTES_MAX)], True),
        ([(MODERATE_FROM, MODERATE_BYTES_MAX + 1)], False),
        ([(MODERATE_FROM // 2, 1), (MODERATE_FROM // 2, 1)], True),
    ],
)
def test_a_pause_is_for_many_small_answers_over_all_connections(
    connections: list[tuple[int, int]], collects: bool
) -> None:
    peers: list[Any] = [SimpleNamespace(connection=Connection(*one)) for one in connections]
    assert should_collect([*peers, SimpleNamespace(connection=None)]) is collects  # type: ignore[list-item]
