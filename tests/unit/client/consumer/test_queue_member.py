"""The member of a QUEUE: walks through trouble, planted defects, sessions, and its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ringfence.consumer.calls import HOME, Attach, Join, Joined, Leave, Left, Plan, Refusal, Why
from ringfence.consumer.queue_calls import QueueFetch, QueueSettle, What
from ringfence.consumer.values import TaskKind
from tests.fakes.queue_alone import QueueAlone
from tests.fakes.queue_planted import PLANTED, plant
from tests.fakes.queue_walk import walk

if TYPE_CHECKING:
    from collections.abc import Callable

SEEDS = (*range(24), 47, 83, 185)  # each of the last three finds a planted defect of its own


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


def test_rows_for_a_member_that_closes_go_back() -> None:
    alone = QueueAlone()
    alone.member.close(leave=False)
    alone.lease(0, 10)
    assert alone.told(What.RELEASED) == [(0, 10)]
    alone.settle(What.RELEASED)
    assert alone.member.is_closed
