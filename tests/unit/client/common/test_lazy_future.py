"""A future without a condition is one of `concurrent.futures` to whoever waits, whenever they come."""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import sys
import threading
from collections.abc import Iterator

import pytest

from ringfence.common import lazy_future
from ringfence.common.lazy_future import LazyFuture

ROUNDS = 3000
TIMEOUT_S = 20.0


@pytest.fixture
def switching() -> Iterator[None]:
    """Threads change between almost any two steps."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def ended(value: int) -> LazyFuture[int]:
    future: LazyFuture[int] = LazyFuture()
    future.finish(value, None)
    return future


def test_nothing_is_made_for_a_future_that_nobody_waits_for() -> None:
    future: LazyFuture[int] = LazyFuture()
    assert (future.done(), future.running(), future.cancelled()) == (False, True, False)
    future.finish(7, None)
    assert (future.done(), future.running(), future.result(), future.exception()) == (True, False, 7, None)
    assert "_condition" not in vars(future)
    with pytest.raises(AttributeError, match="'LazyFuture' object has no attribute 'absent'"):
        future.absent  # type: ignore[attr-defined] # noqa: B018


def test_an_exception_is_raised_and_told() -> None:
    future: LazyFuture[int] = LazyFuture()
    future.finish(None, ValueError("why"))
    assert isinstance(future.exception(), ValueError)
    with pytest.raises(ValueError, match="why"):
        future.result()


def test_a_time_out_ends_a_wait() -> None:
    future: LazyFuture[int] = LazyFuture()
    with pytest.raises(TimeoutError):
        future.result(0)
    with pytest.raises(TimeoutError):
        future.exception(0.01)
    future.finish(1, None)
    assert future.result(0) == 1


def test_callbacks_come_in_their_order_and_one_that_raises_stops_none(
    caplog: pytest.LogCaptureFixture,
) -> None:
    future: LazyFuture[int] = LazyFuture()
    seen: list[str] = []

    def fails(_: object) -> None:
        raise ValueError("of the callback")

    future.add_done_callback(lambda _: seen.append("first"))
    future.add_done_callback(fails)
    future.add_done_callback(lambda done: seen.append(f"second {done.result()}"))
    with caplog.at_level(logging.ERROR, "concurrent.futures"):
        future.finish(5, None)
    future.add_done_callback(lambda _: seen.append("late"))
    assert seen == ["first", "second 5", "late"]
    assert "exception calling callback" in caplog.text


def test_asyncio_waits_for_it() -> None:
    async def waits() -> int:
        future: LazyFuture[int] = LazyFuture()
        threading.Timer(0.01, lambda: future.finish(3, None)).start()
        return await asyncio.wait_for(asyncio.wrap_future(future), TIMEOUT_S)

    assert asyncio.run(waits()) == 3


@pytest.mark.usefixtures("switching")
@pytest.mark.parametrize("way", ["result", "exception", "wait", "as_completed", "callback", "condition"])
def test_whoever_comes_while_it_ends_hears_of_it_once(way: str) -> None:
    """`as_completed` fails with KeyError where a future is told twice, and waits for ever where it is not."""
    started, heard = threading.Barrier(2), list[int]()
    futures = [LazyFuture[int]() for _ in range(ROUNDS)]

    def finish() -> None:
        for number, future in enumerate(futures):
            started.wait(TIMEOUT_S)
            future.finish(number, None)

    thread = threading.Thread(target=finish)
    thread.start()
    for number, future in enumerate(futures):
        started.wait(TIMEOUT_S)
        match way:
            case "result":
                heard.append(future.result(TIMEOUT_S))
            case "exception":
                assert future.exception(TIMEOUT_S) is None
                heard.append(number)
            case "wait":
                done, _ = concurrent.futures.wait([future, ended(0)], TIMEOUT_S)
                assert len(done) == 2
                heard.append(number)
            case "as_completed":
                told = list(concurrent.futures.as_completed([future, ended(0)], TIMEOUT_S))
                assert len(told) == 2
                heard.append(number)
            case "callback":
                future.add_done_callback(lambda done: heard.append(done.result()))
            case "condition":
                with future._condition:
                    future._condition.wait_for(future.done, TIMEOUT_S)
                heard.append(future.result(0))
    thread.join(TIMEOUT_S)
    assert sorted(heard) == list(range(ROUNDS))


@pytest.mark.usefixtures("switching")
def test_callbacks_of_many_threads_are_all_kept() -> None:
    for _ in range(100):
        future: LazyFuture[int] = LazyFuture()
        started, heard = threading.Barrier(5), list[int]()

        def add(
            future: LazyFuture[int] = future, started: threading.Barrier = started, heard: list[int] = heard
        ) -> None:
            started.wait(TIMEOUT_S)
            for _ in range(20):
                future.add_done_callback(lambda done: heard.append(done.result()))

        threads = [threading.Thread(target=add) for _ in range(4)]
        for thread in threads:
            thread.start()
        started.wait(TIMEOUT_S)
        future.finish(1, None)
        for thread in threads:
            thread.join(TIMEOUT_S)
        assert len(heard) == 80


@pytest.mark.parametrize("waiting", [True, False])
def test_the_state_changes_only_under_the_lock_under_which_others_look(waiting: bool) -> None:
    """What `as_completed` needs: whom it saw ended, nobody may tell it of again."""
    future: LazyFuture[int] = LazyFuture()
    with future._condition if waiting else lazy_future._Process.making:
        thread = threading.Thread(target=future.finish, args=(1, None))
        thread.start()
        thread.join(0.1)
        assert not future.done()
    thread.join(TIMEOUT_S)
    assert future.done()


def test_a_callback_is_added_only_under_the_lock_under_which_the_state_changes() -> None:
    future: LazyFuture[int] = LazyFuture()
    heard = list[int]()
    with lazy_future._Process.making:
        adds = threading.Thread(
            target=future.add_done_callback, args=(lambda done: heard.append(done.result()),)
        )
        adds.start()
        adds.join(0.1)
        future.finish(1, None)
        assert heard == []
    adds.join(TIMEOUT_S)
    assert heard == [1]
