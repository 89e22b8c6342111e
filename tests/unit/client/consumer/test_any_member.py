"""What drivers take from a member of any mode."""

from __future__ import annotations

import pytest

from ringfence.consumer.any_member import AnyMember
from ringfence.consumer.calls import Note
from ringfence.consumer.member import Member
from ringfence.consumer.queue_member import QueueMember
from ringfence.consumer.values import MemberOptions, Task, TaskKind
from ringfence.native.errors import FencedError


@pytest.mark.parametrize("kind", [Member, QueueMember])
def test_effects_tasks_and_errors_are_taken_once_and_final_errors_stay(kind: type[AnyMember]) -> None:
    member = kind(MemberOptions("m", b"i" * 16))  # type: ignore[call-arg]
    member.state.effects.append(Note("one"))
    assert member.take() == [Note("one")]
    assert member.take() == []
    member.state.tell(TaskKind.LOST, [3])
    assert member.next_task() == Task(TaskKind.LOST, (3,), 1)
    assert member.next_task() is None
    passing, final = FencedError("passing"), FencedError("final")
    member.state.fail(passing)
    assert member.take_error() is passing
    assert member.take_error() is None
    member.state.fail(final, is_final=True)
    assert member.take_error() is final
    assert member.take_error() is final
