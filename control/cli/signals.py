"""Turn the signals that end a command into KeyboardInterrupt, and defer them while a child process starts.

A command that ends stops its child processes. SIGHUP, which a closed terminal sends, counts as SIGTERM does.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def handle_ending(handler: Callable[[], None]) -> None:
    """Call `handler` on each ending signal. After `nohup`, SIGHUP stays ignored."""
    for number in ENDING:
        if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda *_: handler())


@contextmanager
def ending_as_interrupt() -> Iterator[None]:
    """Raise KeyboardInterrupt on SIGTERM and SIGHUP, so that they end a command as Ctrl-C does.

    Files are then complete or removed, and the command reports the stored rows.
    """
    with ExitStack() as stack:
        if threading.current_thread() is threading.main_thread():  # only the main thread handles signals
            for number in (signal.SIGTERM, signal.SIGHUP):
                if signal.getsignal(number) is signal.SIG_DFL:
                    stack.callback(signal.signal, number, signal.signal(number, _interrupt))
        yield


@contextmanager
def deferred() -> Iterator[None]:
    """Deliver ending signals after the block, which starts a child process and registers it for the clean-up.

    An exception of a signal handler between fork and registration would leave a process that nothing stops.
    """
    arrived: list[int] = []
    with ExitStack() as stack:
        if threading.current_thread() is threading.main_thread():
            # Callbacks run in reverse order: first the handlers are restored, then a signal is raised again.
            stack.callback(lambda: signal.raise_signal(arrived[0]) if arrived else None)
            for number in ENDING:
                previous = signal.getsignal(number)
                if callable(previous):
                    stack.callback(signal.signal, number, previous)
                    signal.signal(number, lambda number, _: arrived.append(number))
        yield


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt
