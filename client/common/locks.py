"""Locks that tell whose they are, for calls that a signal's handler or a finalizer interrupts."""

from __future__ import annotations

import contextlib
import threading
from types import FunctionType
from typing import TYPE_CHECKING, Any, TypeVar

from ringfence.native.errors import ReentrantError

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType, FrameType


class Owned:
    """A lock, and whether this thread holds it: who does must not take it again, though it would get it."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        # What `Condition` itself asks; a flag of our own would cost more than the lock does.
        self.is_mine: Callable[[], bool] = self.lock._is_owned  # type: ignore[attr-defined]  # noqa: SLF001


Call = TypeVar("Call", bound="Callable[..., Any]")
_HOLDERS: set[CodeType] = set()


def holds(call: Call) -> Call:
    """Marks a function that holds locks, at times, that the link's thread takes, too; it asks no node."""
    assert isinstance(call, FunctionType)
    _HOLDERS.add(call.__code__)
    return call


def interrupted(frame: FrameType | None, what: str) -> None:
    """Refuse to wait for the link's thread in the midst of one of those calls, for it may wait for that one.

    `frame` is where to begin. The stack is looked at where somebody waits, for a mark would cost each call.

    Raises:
        ReentrantError: there is one.
    """
    while frame is not None:
        if frame.f_code in _HOLDERS:
            raise ReentrantError(
                f"{what} would wait, in a signal's handler or a finalizer, for the call that it interrupts: "
                "hand it to a thread or the main loop, as by a queue.SimpleQueue"
            )
        frame = frame.f_back


class Flag:
    """As `threading.Event`, and no thread ever waits for one that a signal's handler has interrupted in it.

    An Event has a lock that Python code holds: its owner's handler may wait for the very thread that wants
    it. Here it is one primitive, held while the flag is not set.
    """

    def __init__(self) -> None:
        self._unset = threading.Lock()
        self._unset.acquire()

    def is_set(self) -> bool:
        """As of now."""
        return not self._unset.locked()

    def set(self) -> None:
        """Wake all that wait."""
        with contextlib.suppress(RuntimeError):  # it is set
            self._unset.release()

    def clear(self) -> None:
        """Waits begin anew."""
        self._unset.acquire(blocking=False)

    def wait(self, timeout_s: float) -> None:
        """Until it is set, or the time is over."""
        if self._unset.acquire(timeout=timeout_s):
            self.set()  # for the next who waits
