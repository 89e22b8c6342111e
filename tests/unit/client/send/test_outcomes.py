"""Outcomes of sends: pending ones are waited for, each failure is raised once, with notes on the others."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from ringfence.native.errors import RetriableError
from ringfence.send.outcomes import FAILURES_MAX, Failure, SendOutcomes


def test_a_wait_ends_with_the_last_outcome_or_with_its_time() -> None:
    outcomes = SendOutcomes()
    outcomes.began(2)
    assert outcomes.wait(0.0) == 2
    outcomes.ended(0, None)
    assert outcomes.wait(0.0) == 1
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(outcomes.wait, None)
        outcomes.ended(1, None)
        assert waiting.result(30) == 0


def test_sends_that_did_not_begin_are_not_waited_for() -> None:
    outcomes = SendOutcomes()
    outcomes.began(3)
    outcomes.began(-3)
    assert outcomes.wait(0.0) == 0


def test_a_failure_is_kept_until_it_was_raised_and_raised_once() -> None:
    outcomes = SendOutcomes()
    outcomes.began(3)
    first, second = RetriableError("first"), RetriableError("second")
    outcomes.ended(0, first)
    outcomes.ended(1, None)
    outcomes.ended(2, second)
    assert outcomes.failures == (Failure(0, first), Failure(2, second))
    was_pending = outcomes.has_pending
    with pytest.raises(RetriableError, match="first") as caught:
        outcomes.raise_failures()
    assert any("second" in note for note in caught.value.__notes__)
    assert (was_pending, outcomes.has_pending) == (True, False)
    outcomes.raise_failures()
    assert len(outcomes.failures) == 2


def test_failures_beyond_those_that_are_kept_are_counted_and_raised_too() -> None:
    outcomes = SendOutcomes()
    outcomes.began(FAILURES_MAX + 1)
    for send in range(FAILURES_MAX):
        outcomes.ended(send, RetriableError(f"send {send}"))
    with pytest.raises(RetriableError, match="send 0"):
        outcomes.raise_failures()
    outcomes.ended(FAILURES_MAX, RetriableError("one more"))
    assert len(outcomes.failures) == FAILURES_MAX
    was_pending = outcomes.has_pending
    with pytest.raises(RetriableError):
        outcomes.raise_failures()
    assert (was_pending, outcomes.has_pending) == (True, False)
