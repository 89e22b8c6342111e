"""Start commands in a known state of signals, and find the processes that they started."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def signals_not_ignored() -> Iterator[None]:
    """Let this process, and those that start in the block, take ending signals as in a terminal.

    SIGHUP and SIGINT are ignored where the tests run after `nohup` or in the background of a script.
    """
    with signals_restored():
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        yield


@contextmanager
def signals_restored() -> Iterator[None]:
    """Give the signals that end commands their handlers of before the block back.

    A program whose `main` a test calls in its own process installs handlers that the next test would meet.
    """
    before = {number: signal.getsignal(number) for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def children(folder: Path) -> list[str]:
    """Return the command lines of processes that have a path below `folder` among their arguments."""
    lines = []
    for process in Path("/proc").iterdir():
        try:
            arguments = (process / "cmdline").read_bytes().decode(errors="replace")
        except OSError:
            continue
        if process.name.isdigit() and str(folder) in arguments:
            lines.append(arguments.replace("\0", " "))
    return lines
