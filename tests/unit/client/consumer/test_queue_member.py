"""The member of a QUEUE: walks through trouble, planted defects, sessions, and its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ringfence.consumer.absence import SILENT_S
from ringfence.consumer.calls import (
    HOME,
    Attach,
    Beat,
    Join,
    Joined,
    Leave,
    Left,
    Note,
    Plan,
    Refusal,
    Renewed,
    Why,
)
from ringfence.consumer.queue_calls import Leased, Line, QueueFetch, QueueSettle, What
from ringfence.consumer.values import TaskKind
from ringfence.native.errors import FencedError
from tests.fakes.queue_alone import QueueAlone
from tests.fakes.queue_planted import PLANTED, plant
from tests.fakes.queue_walk import walk

if TYPE_CHECKING:
    from collections.abc import Callable

SEEDS = (*range(24), 47, 69, 83)  # each of the last three finds a planted defect of its own


@pytest.mark.parametrize("seed", SEEDS)
def test_rows_are_worked_on_until_all_are_done(seed: int) -> None:
    assert walk(seed) == []


@pytest.mark.parametrize("defect", PLANTED, ids=lambda one: one.__name__)
def test_a_planted_defect_is_found(
    monkeypatch: pytest.MonkeyPatch, defect: Callable[[], list[object]]
) -> None:
    plant(monkeypatch, defect)  # type: ignore[arg-type]
    assert any(walk(seed) for seed in SEEDS), f"{defect.__name__} is not found"


def test_it_asks_every_node_with_gates_and_not_the_one_at_home() -> None:
    alone = QueueAlone()
    alone.table({1: 1, 2: 2}, version=2)
    alone.member.up(2)
    alone.attach()
    assert {call.node for call in alone.calls(QueueFetch)} == {1, 2}
    assert alone.member.session.nodes == {HOME, 1, 2}


def test_a_session_that_is_over_takes_leases_with_it_but_not_what_is_done() -> None:
    alone = QueueAlone(tells=frozenset({TaskKind.LOST}))
    alone.lease(0, 10)
    place = alone.gave(5)
    alone.say(place, What.DONE, (0, 2))
    alone.answer(alone.calls(QueueSettle)[-1], Refusal(Why.NOT_ATTACHED))
    alone.turn(1.0)
    alone.answer(alone.call(Attach), Refusal(Why.NOT_ATTACHED))
    alone.turn(3.0)
    join = alone.call(Join)
    alone.answer(join, Joined(Plan(8, 0, 1, ()), None, 10.0, 30.0))
    task = alone.member.next_task()
    assert task is not None
    assert (task.kind, task.partitions) == (TaskKind.LOST, (1,))
    assert not alone.say(place, What.DONE, (2, 5)), "it is not known any more"
    alone.attach()
    assert alone.told(What.DONE) == [(0, 2)]
    assert alone.member.state.bytes == 0


def test_a_member_that_closes_releases_what_it_has_and_leaves() -> None:
    alone = QueueAlone()
    alone.lease(0, 10)
    place = alone.gave(5)
    alone.say(place, What.DONE, (0, 2))
    alone.settle(What.DONE)
    alone.member.close(leave=True)
    alone.turn()
    assert sorted(alone.told(What.RELEASED)) == [(2, 5), (5, 10)]
    assert alone.calls(Leave) == []
    alone.settle(What.RELEASED)
    alone.answer(alone.call(Leave), Left())
    assert alone.member.is_closed


def pass_time(alone: QueueAlone, seconds: float, *answering: int) -> None:
    """Nodes answer beats, or do not."""
    for _ in range(round(seconds)):
        alone.turn(1.0)
        for beat in alone.calls(Beat):
            if beat.node in answering:
                alone.answer(beat, Renewed(1, 10.0, frozenset()))


def test_a_node_that_does_not_answer_stops_no_rows_of_others() -> None:
    """There is nothing to hand over: every member asks every node."""
    alone = QueueAlone()
    alone.table({1: 1, 2: 2}, version=2)
    pass_time(alone, 20 * SILENT_S, HOME, 1)
    assert alone.calls(Leave) == []
    assert [one for one in alone.effects if isinstance(one, Note)] == []
    for lines in ((), (Line(0, 10, 1, 0, False),)):
        (fetch,) = [one for one in alone.calls(QueueFetch) if one.node == 1]
        alone.answer(fetch, Leased(1, 1, 0, 10, lines, bytes=100, body=b""))
        alone.turn(1.0)
    assert alone.gave().end_offset == 10


def test_who_waits_for_an_owner_hears_that_the_member_was_replaced() -> None:
    alone, outcomes, error = QueueAlone(), list[object](), FencedError("a newer process has this name")
    alone.lease(0, 10)
    place = alone.gave()
    alone.say(place, What.DONE, (0, 4), outcomes=outcomes)
    (call,) = [one for one in alone.calls(QueueSettle) if one.lines[0].what is What.DONE]
    alone.say(place, What.DONE, (4, 8), outcomes=outcomes)
    alone.answer(call, Refusal(Why.REPLACED, error=error))
    assert outcomes == [error, error]
    alone.say(place, What.DONE, (8, 10), outcomes=outcomes)
    alone.member.look_silent()
    assert outcomes == [error, error, error]


def test_an_application_that_hangs_leaves() -> None:
    alone = QueueAlone(work_timeout_s=60.0)
    alone.lease(0, 10)
    alone.gave(5)
    pass_time(alone, 65, HOME, 1)
    assert alone.calls(Leave) != []


def test_rows_for_a_member_that_closes_go_back() -> None:
    alone = QueueAlone()
    alone.member.close(leave=False)
    alone.lease(0, 10)
    assert alone.told(What.RELEASED) == [(0, 10)]
    alone.settle(What.RELEASED)
    assert alone.member.is_closed
