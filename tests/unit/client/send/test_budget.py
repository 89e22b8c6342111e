"""Bytes in flight: taken when they fit, waited for when they do not, and one body alone may be larger."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from ringfence.native.errors import OverloadedError
from ringfence.send.budget import Budget


def budget(bytes_max: int = 100) -> Budget:
    return Budget(bytes_max, lambda _: ("t", []))


def test_what_does_not_fit_is_refused_with_its_figures_and_takes_nothing() -> None:
    counted = budget()
    counted.take(60, timeout_s=0)
    with pytest.raises(OverloadedError) as caught:
        counted.take(41, timeout_s=0)
    figures = {"bytes_held": 60, "bytes_wanted": 41, "bytes_in_flight_max": 100}
    assert figures.items() <= caught.value.details.items()
    assert counted.used == 60
    counted.take(40, timeout_s=0)
    assert counted.used == 100


def test_a_body_above_the_limit_goes_alone() -> None:
    counted = budget()
    counted.take(500, timeout_s=0)
    with pytest.raises(OverloadedError):
        counted.take(1, timeout_s=0)
    counted.give(500)
    counted.take(1, timeout_s=0)
    with pytest.raises(OverloadedError):
        counted.take(500, timeout_s=0)


def test_a_caller_that_waits_goes_on_when_bytes_come_back() -> None:
    counted = budget()
    counted.take(100, timeout_s=0)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(counted.take, 30, timeout_s=60)
        while not counted._waiting:
            threading.Event().wait(0.001)
        counted.give(20)  # not enough
        counted.give(10)
        waiting.result(30)
    assert counted.used == 100


def test_a_close_lifts_the_limit_for_whoever_waits() -> None:
    counted = budget()
    counted.take(100, timeout_s=0)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(counted.take, 30, timeout_s=60)
        while not counted._waiting:
            threading.Event().wait(0.001)
        counted.close()
        waiting.result(30)


def test_an_estimate_that_was_too_low_takes_more_without_waiting() -> None:
    counted = budget()
    counted.take(90, timeout_s=0)
    counted.give(-50)
    assert counted.used == 140
