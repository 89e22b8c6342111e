"""What the parts of a member share."""

from __future__ import annotations

from ringfence.consumer.calls import Refresh, Ring
from ringfence.consumer.state import State
from ringfence.consumer.values import MemberOptions, TaskKind


def state() -> State:
    return State(MemberOptions("m", b"i" * 16))


def test_tasks_are_told_in_order_and_wake_the_application_once() -> None:
    one = state()
    one.tell(TaskKind.ASSIGNED, [3, 1])
    one.tell(TaskKind.REVOKED, [])
    one.tell(TaskKind.REVOKED, [2])
    assert [(task.kind, task.partitions) for task in one.tasks] == [
        (TaskKind.ASSIGNED, (1, 3)),
        (TaskKind.REVOKED, (2,)),
    ]
    assert one.effects == [Ring()]
    one.effects.append(Refresh(0))
    one.ring()
    assert one.effects[-1] == Ring()


def test_the_first_error_counts() -> None:
    one, first = state(), ValueError("first")
    one.fail(first)
    one.fail(ValueError("second"))
    assert one.error is first


def test_only_what_owners_hear_nothing_after_ends_who_waits_for_them() -> None:
    one, heard = state(), list[Exception]()
    one.on_silent = heard.append
    one.fail(ValueError("the application's store"), is_final=True)
    assert (heard, one.silent_error) == ([], None)
    error = ValueError("replaced")
    one.fall_silent(error)
    assert (heard, one.silent_error) == ([error], error)


def test_a_plan_is_needed_while_a_node_knows_a_newer_one() -> None:
    one = state()
    one.generation = 3
    one.heard(2)
    assert not one.needs_plan
    one.heard(4)
    one.heard(3)
    assert one.needs_plan
