"""A `concurrent.futures.Future` that creates its condition only when a caller waits.

A condition consists of a lock, a queue and five bound methods, which every garbage collection visits. With
thousands of pending futures, most of which have no waiter, that is a fifth of the cost of a small send.
"""

from __future__ import annotations

import os
import threading
from concurrent.futures import Future
from concurrent.futures._base import FINISHED, LOGGER, PENDING
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


class _Process:
    """A lock shared by all futures. A forked child gets a new one: the parent's may be locked forever.

    A signal handler or a finalizer may interrupt the holder and take the lock again. So it is reentrant, and
    values are created before it is taken.
    """

    making = threading.RLock()


def _after_in_child() -> None:
    _Process.making = threading.RLock()


os.register_at_fork(after_in_child=_after_in_child)


class LazyFuture(Future[T]):
    """A future that is pending or finished, never cancelled. `finish` ends it, once.

    `wait` and `as_completed` take the condition, read the state, and add a waiter. So the state changes under
    the condition if there is one, and always under the lock that protects its creation and the callbacks.
    """

    _state = PENDING
    _result: T | None = None
    _exception: BaseException | None = None
    _awaited = False  # the condition exists
    _done_callbacks: list[Callable[[Future[T]], object]] | None = None

    def __init__(self) -> None:
        """Does not call `Future.__init__`, which would create the condition."""

    if not TYPE_CHECKING:  # else a type checker would accept every name

        def __getattr__(self, name: str) -> Any:
            if name not in {"_condition", "_waiters"}:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            condition, waiters = threading.Condition(), []
            with _Process.making:
                if not self._awaited:
                    self._condition, self._waiters, self._awaited = condition, waiters, True
            return self.__dict__[name]

    def cancelled(self) -> bool:
        """Always False."""
        return False

    def running(self) -> bool:
        """Whether there is no outcome yet."""
        return self._state is not FINISHED

    def done(self) -> bool:
        """Whether there is an outcome."""
        return self._state is FINISHED

    def result(self, timeout: float | None = None) -> T:
        """Like `Future`."""
        if self._state is FINISHED and self._exception is None:
            return self._result  # type: ignore[return-value]  # set by `finish`
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Like `Future`."""
        if self._state is FINISHED:
            return self._exception
        return super().exception(timeout)

    def add_done_callback(self, fn: Callable[[Future[T]], object]) -> None:
        """Like `Future`: `fn` is called once, by the thread that ends the future, or now if it has ended."""
        alone = [fn]
        with _Process.making:
            ended = self._state is FINISHED
            if not ended:
                if self._done_callbacks is None:
                    self._done_callbacks = alone
                else:
                    self._done_callbacks.append(fn)
        if ended:
            self._call(fn)

    def finish(self, result: T | None, exception: BaseException | None) -> None:
        """End the future with an exception, or with a result if the exception is None."""
        self._result, self._exception = result, exception
        with _Process.making:
            if not self._awaited:
                self._state = FINISHED
        if self._state is not FINISHED:
            with self._condition:
                with _Process.making:
                    self._state = FINISHED
                for waiter in self._waiters:
                    (waiter.add_result if exception is None else waiter.add_exception)(self)
                self._condition.notify_all()
        callbacks, self._done_callbacks = self._done_callbacks, None
        for fn in callbacks or ():
            self._call(fn)

    def _call(self, fn: Callable[[Future[T]], object]) -> None:
        try:
            fn(self)
        except Exception:  # noqa: BLE001  # logged, as by every Future
            LOGGER.exception("exception calling callback for %r", self)
