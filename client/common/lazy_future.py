"""A `concurrent.futures.Future` whose condition is made when somebody waits for it.

A condition is a lock, a queue and five bound methods, all of them looked at by every collection of garbage.
With some thousand futures under way, most of which nobody waits for, that is a fifth of what a small send
costs.
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
    """A lock of all futures, held for a moment. New in a forked child: the parent's may be held for ever.

    What takes it may be interrupted by a signal's handler, or a finalizer, that takes it again. So it is
    reentrant, and what is stored under it is made before.
    """

    making = threading.RLock()


def _after_in_child() -> None:
    _Process.making = threading.RLock()


os.register_at_fork(after_in_child=_after_in_child)


class BareFuture(Future[T]):
    """One that is pending or finished, and never cancelled. `finish` ends it, once.

    `wait` and `as_completed` take the condition, look at the state, and leave a waiter. So the state changes
    under the condition wherever there is one, and always under the lock that makes one and adds callbacks.
    """

    _state = PENDING
    _result: T | None = None
    _exception: BaseException | None = None
    _awaited = False  # there is a condition
    _done_callbacks: list[Callable[[Future[T]], object]] | None = None

    def __init__(self) -> None:
        """Not Future's: it would make what is made late here."""

    if not TYPE_CHECKING:  # else every name would be known

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
        """As of every Future."""
        if self._state is FINISHED and self._exception is None:
            return self._result  # type: ignore[return-value]  # of type T, since it is finished
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """As of every Future."""
        if self._state is FINISHED:
            return self._exception
        return super().exception(timeout)

    def add_done_callback(self, fn: Callable[[Future[T]], object]) -> None:
        """As of every Future: called once, by the thread that ends it, or here where it has ended."""
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
        """End it with an exception, or with a result where there is none."""
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
        except Exception:  # noqa: BLE001  # it is the callback's, as of every Future
            LOGGER.exception("exception calling callback for %r", self)
