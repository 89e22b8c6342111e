"""Code that waits, as a thread that runs only while the world waits for it: one of the two at a time.

    fiber = Fiber(body)
    order = fiber.resume()              the body, until it asks for something
    order = fiber.resume(Outcome(...))  what it is told, until it asks again; FiberOverError behind its end

So the library's own calls, which wait for answers, run in virtual time and in one order. The engine's objects
belong to the world's thread: a body hands over what is to be done with them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from typing import Any, Final, NamedTuple

Order = Generator[Any, Any, Any]
"""What the world carries out; its value is what `ask` gives."""


class KilledError(BaseException):
    """The process of a fiber is gone: nothing may catch it."""


class FiberOverError(Exception):
    """The body has ended."""


class Outcome(NamedTuple):
    """What became of an order: a value, or an error that `ask` raises."""

    value: Any = None
    error: BaseException | None = None


NOTHING: Final = Outcome()
_running: list[Fiber] = []


def current() -> Fiber:
    """The fiber whose code runs."""
    assert _running, "only the body of a fiber may wait"
    return _running[-1]


class Fiber:
    """One thread. `owner` is for those who ask which fiber runs."""

    def __init__(self, body: Callable[[], None], owner: Any = None) -> None:
        self.owner = owner
        self.error: BaseException | None = None
        self._body = body
        self._mine, self._theirs = threading.Semaphore(0), threading.Semaphore(0)
        self._order: Order | None = None
        self._told = NOTHING
        self._is_killed = self._is_over = False
        self._thread: threading.Thread | None = None

    def resume(self, told: Outcome = NOTHING) -> Order:
        """Let it run until it asks for something.

        Raises:
            FiberOverError: it has ended. What it ended with, if that was an error.
        """
        if not self._is_over:
            self._let_run(told)
        if self._is_over:
            if self.error is not None:
                raise self.error
            raise FiberOverError
        assert self._order is not None
        return self._order

    def _let_run(self, told: Outcome) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, daemon=True)
            self._thread.start()
        self._told = told
        _running.append(self)
        self._mine.release()
        self._theirs.acquire()
        _running.pop()

    def kill(self) -> None:
        """Its thread ends now; what it holds is let go."""
        self._is_killed = True
        if self._thread is None:
            self._is_over = True
        if not self._is_over:
            self._let_run(NOTHING)
            assert self._thread is not None
            self._thread.join()
        self.error = None

    # ---- in the thread ----

    def _run(self) -> None:
        self._mine.acquire()
        try:
            if not self._is_killed:
                self._body()
        except KilledError:
            pass
        except BaseException as error:  # noqa: BLE001 - `resume` raises it
            self.error = error
        finally:
            self._is_over = True
            self._theirs.release()

    def ask(self, order: Order) -> Any:
        """Let the world carry it out. Raises what it raises, or KilledError."""
        if self._is_killed:
            raise KilledError
        self._order = order
        self._theirs.release()
        self._mine.acquire()
        if self._is_killed:
            raise KilledError
        told, self._told = self._told, NOTHING
        if told.error is not None:
            raise told.error
        return told.value
