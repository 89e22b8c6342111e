"""A fiber runs only while the world waits for it, and ends with its process."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

from tests.sim.world import fiber
from tests.sim.world.fiber import Fiber, FiberOverError, Outcome


def order(name: str) -> Generator[Any, Any, Any]:
    yield name


def test_it_runs_from_one_order_to_the_next() -> None:
    seen: list[Any] = []

    def body() -> None:
        seen.append(fiber.current().ask(order("first")))
        seen.append(fiber.current().ask(order("second")))

    running = Fiber(body)
    assert (next(running.resume()), seen) == ("first", [])
    assert (next(running.resume(Outcome(1))), seen) == ("second", [1])
    with pytest.raises(FiberOverError):
        running.resume(Outcome(2))
    assert seen == [1, 2]


def test_an_error_of_an_order_is_raised_where_it_was_asked_for_and_an_error_of_the_body_ends_it() -> None:
    def body() -> None:
        with pytest.raises(KeyError):
            fiber.current().ask(order("fails"))
        raise ValueError("its own")

    running = Fiber(body)
    running.resume()
    with pytest.raises(ValueError, match="its own"):
        running.resume(Outcome(error=KeyError("of the order")))


def test_a_killed_one_waits_for_nothing_more_and_holds_no_thread() -> None:
    seen: list[str] = []

    def body() -> None:
        try:
            fiber.current().ask(order("waits"))
        finally:
            seen.append("unwound")
            fiber.current().ask(order("after the end"))
            seen.append("never")

    running = Fiber(body)
    running.resume()
    running.kill()
    assert seen == ["unwound"]
    assert running._thread is not None
    assert not running._thread.is_alive()
    with pytest.raises(FiberOverError):
        running.resume()


def test_one_that_never_ran_is_killed_without_a_thread() -> None:
    running = Fiber(lambda: None)
    running.kill()
    assert running._thread is None
    with pytest.raises(FiberOverError):
        running.resume()
