"""Calls and replies: each call has a number, ends once, and takes its own kind of reply only."""

from __future__ import annotations

from typing import get_args

import pytest

from ringfence.consumer.calls import Beat, Call, Fetch, Fetched, Join, Left
from tests.fakes.consumer_alone import Alone


@pytest.mark.parametrize("kind", get_args(Call))
def test_a_call_begins_with_its_number(kind: type) -> None:
    assert kind._fields[0] == "number"  # type: ignore[attr-defined]


def test_numbers_ascend_over_all_kinds() -> None:
    alone = Alone(1)
    numbers = [getattr(one, "number") for one in alone.effects if hasattr(one, "number")]  # noqa: B009
    assert numbers == sorted(set(numbers))
    assert {type(one) for one in alone.effects} >= {Join, Fetch, Beat}


def test_a_call_ends_once() -> None:
    alone = Alone(1)
    call = alone.call(Fetch)
    alone.answer(call, Fetched(1, 0, 10, 1, bytes=100))
    alone.answer(call, Fetched(1, 0, 10, 1, bytes=100))
    alone.member.unanswered(call.number, alone.now)
    assert alone.member.state.bytes == 100


def test_a_reply_of_another_kind_is_a_defect() -> None:
    alone = Alone(1)
    with pytest.raises(AssertionError):
        alone.member.answered(alone.call(Fetch).number, Left(), alone.now)
