"""Locks with a known owner, to refuse calls that a signal handler or finalizer makes inside another call."""

from __future__ import annotations

import contextlib
import threading
from types import FunctionType
from typing import TYPE_CHECKING, Any, TypeVar

from ringfence.native.errors import ReentrantError

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType, FrameType


class OwnedLock:
    """A lock, and whether this thread holds it. A holder must not take it again, although it could."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        # `Condition` uses this method too; a flag of our own would cost more than the lock.
        self.is_mine: Callable[[], bool] = self.lock._is_owned  # type: ignore[attr-defined]  # noqa: SLF001


Call = TypeVar("Call", bound="Callable[..., Any]")
_HOLDERS: set[CodeType] = set()


def holds(call: Call) -> Call:
    """Mark a function that may hold locks which the I/O thread also takes. It must not send requests."""
    assert isinstance(call, FunctionType)
    _HOLDERS.add(call.__code__)
    return call


def interrupted(frame: FrameType | None, what: str) -> None:
    """Refuse to wait for the I/O thread inside a function marked by `holds`: the thread may wait for it.

    `frame`: start of the search. The stack is searched only when a call waits; a flag would cost every call.

    Raises:
        ReentrantError: a marked function is on the stack.
    """
    while frame is not None:
        if frame.f_code in _HOLDERS:
            raise ReentrantError(
                f"{what} in a signal handler or finalizer would wait for the call that it interrupts: hand "
                "it to a thread or the main loop, for example through a queue.SimpleQueue"
            )
        frame = frame.f_back


class Flag:
    """Like `threading.Event`, but safe in signal handlers.

    Python code of an Event holds a lock. A signal handler that interrupts it may wait for a thread that needs
    this lock. A Flag is a single primitive lock, held while the flag is not set.
    """

    def __init__(self) -> None:
        self._unset = threading.Lock()
        self._unset.acquire()

    def is_set(self) -> bool:
        """Whether it is set now."""
        return not self._unset.locked()

    def set(self) -> None:
        """Wake all waiting threads."""
        with contextlib.suppress(RuntimeError):  # it is set already
            self._unset.release()

    def clear(self) -> None:
        """Reset the flag."""
        self._unset.acquire(blocking=False)

    def wait(self, timeout_s: float) -> None:
        """Wait until it is set, at most `timeout_s`."""
        if self._unset.acquire(timeout=timeout_s):
            self.set()  # for the next waiting thread
