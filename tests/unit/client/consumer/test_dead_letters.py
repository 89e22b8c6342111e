"""When a consumer exports what is parked: its own immediately, others' after a minute, failures later."""

from __future__ import annotations

import random

import pytest

from ringfence.consumer.dead_letters import (
    AGE_MS,
    COUNTED_MAX,
    FAILURES_MAX,
    LOOK_S,
    OWN_MAX,
    RETRY,
    SPREAD,
    DeadLetters,
)
from ringfence.consumer.parked import Parked

WALL_MS = 1_700_000_000_000


def parked(number: int, *, partition: int = 1, first: int = 0, age_ms: int = 0) -> Parked:
    return Parked(partition, number, first, 10, 5, "bad", WALL_MS - age_ms)


def letters(jitter: float = 0.5) -> DeadLetters:
    return DeadLetters(lambda: jitter)


def test_the_first_look_is_at_the_start_and_others_are_spread() -> None:
    one = letters()
    assert one.look_at == 0.0
    for jitter, seconds in ((0.0, LOOK_S * (1 - SPREAD)), (0.5, LOOK_S), (1.0, LOOK_S * (1 + SPREAD))):
        one = letters(jitter)
        one.begin()
        one.looked(100.0, is_whole=True)
        assert one.look_at == pytest.approx(100.0 + seconds)


def test_its_own_is_exported_at_once_and_what_others_parked_after_a_minute() -> None:
    one = letters()
    one.looked(0.0, is_whole=True)
    one.parked(1, 15, 16, 5.0)
    assert one.look_at == 5.0
    one.begin()
    assert one.wants(parked(1, first=10), 5.0, WALL_MS)
    assert not one.wants(parked(2, first=20), 5.0, WALL_MS)
    assert not one.wants(parked(3, first=10, partition=2), 5.0, WALL_MS)
    assert one.wants(parked(4, first=20, age_ms=AGE_MS), 5.0, WALL_MS)


def test_what_is_parked_during_a_look_makes_another_one() -> None:
    one = letters()
    one.parked(1, 0, 1, 0.0)
    one.begin()
    one.parked(1, 50, 51, 1.0)
    one.looked(2.0, is_whole=True)
    assert one.look_at == 2.0
    one.begin()
    assert not one.wants(parked(1, first=0), 2.0, WALL_MS), "the look before had it"
    assert one.wants(parked(2, first=50), 2.0, WALL_MS)
    one.looked(3.0, is_whole=True)
    assert one.look_at > 40.0


def test_a_failure_is_tried_again_later_and_later_and_others_go_on() -> None:
    one, now = letters(), 0.0
    waits: list[float] = []
    for _ in range(12):
        one.begin()
        assert one.wants(parked(1, age_ms=AGE_MS), now, WALL_MS)
        assert one.failed((1, 1), now), "one failure does not end the look"
        one.looked(now, is_whole=True)
        again = now + RETRY.delay_s(len(waits) + 1, 0.5)
        assert one.look_at == pytest.approx(min(again, now + LOOK_S))
        one.begin()
        assert not one.wants(parked(1, age_ms=AGE_MS), again - 0.1, WALL_MS)
        assert one.wants(parked(2, age_ms=AGE_MS), again - 0.1, WALL_MS)
        waits.append(again - now)
        now = again
    assert waits == sorted(waits)
    assert (waits[0] <= 1.0, waits[-1] <= 300.0) == (True, True)
    one.exported((1, 1))
    one.looked(now, is_whole=True)
    assert one.look_at == pytest.approx(now + LOOK_S)


def test_failures_in_a_row_end_a_look_and_the_next_ones_wait_longer() -> None:
    one = letters()
    looks = []
    for look in range(10):
        one.begin()
        goes_on = [one.failed((look, number), 0.0) for number in range(FAILURES_MAX)]
        assert goes_on == [True] * (FAILURES_MAX - 1) + [False]
        one.looked(0.0, is_whole=False)
        looks.append(one.look_at)
    assert looks == sorted(looks)
    assert looks[-1] <= 300.0
    before = one.look_at
    one.parked(1, 0, 1, 0.0)
    assert one.look_at == before, "another range does not make looks follow each other"


@pytest.mark.parametrize("seed", range(5))
def test_ranges_that_always_fail_do_not_stop_those_behind_them(seed: int) -> None:
    dice = random.Random(seed)
    one, now = DeadLetters(dice.random), 0.0
    failing, others = range(10), range(10, 20)
    there = [parked(number, first=10 * number, age_ms=AGE_MS) for number in (*failing, *others)]
    looks, tries = 0, 0
    while len(there) > len(failing):
        looks, now = looks + 1, max(now, one.look_at)
        assert looks <= 2 * len(failing), "every look gets through, but for first failures"
        one.begin()
        is_whole = True
        for known in list(there):
            if not one.wants(known, now, WALL_MS):
                continue
            if known.number in others:
                there.remove(known)
                one.exported(known.item)
                continue
            tries += 1
            is_whole = one.failed(known.item, now)
            if not is_whole:
                break
        one.looked(now, is_whole=is_whole)
    assert tries < 10 * len(failing)
    assert now < LOOK_S


def test_what_it_keeps_is_bounded() -> None:
    one = letters()
    for at in range(2 * OWN_MAX):
        one.parked(1, at, at + 1, 0.0)
    one.begin()
    for number in range(2 * COUNTED_MAX):
        one.wants(parked(number), 0.0, WALL_MS)
        one.failed((1, number), 0.0)
    assert (len(one._own), len(one._failures)) == (OWN_MAX, COUNTED_MAX)
    one.looked(0.0, is_whole=True)
    one.begin()
    one.looked(0.0, is_whole=True)
    assert one._failures == {}, "what is not parked any more is forgotten"


@pytest.mark.parametrize("seed", range(30))
def test_every_range_is_exported_whatever_fails_meanwhile(seed: int) -> None:
    """Walks: ranges come, exports fail at random, then no more; all are exported at the end."""
    dice = random.Random(seed)
    one, now = DeadLetters(dice.random), 0.0
    there: dict[tuple[int, int], Parked] = {}
    for number in range(200):
        trouble = number < 120
        if trouble and dice.random() < 0.5:
            added = Parked(1, number, number * 10, 10, 5, "bad", WALL_MS + int(now * 1000))
            there[added.item] = added
            if dice.random() < 0.5:
                one.parked(1, added.first_offset, added.end_offset, now)
        now = max(now, one.look_at)
        one.begin()
        is_whole = True
        for item, known in list(there.items()):
            if not one.wants(known, now, WALL_MS + int(now * 1000)):
                continue
            if trouble and dice.random() < 0.6:
                is_whole = one.failed(item, now)
                if not is_whole:
                    break
            else:
                del there[item]
                one.exported(item)
        one.looked(now, is_whole=is_whole)
        assert one.look_at >= now
    assert there == {}
