"""Start commands in a known state of signals, and find the processes that they started."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def signals_not_ignored() -> Iterator[None]:
    """Let this process and those that start in the block take SIGHUP and SIGINT.

    Both are ignored where the tests run after `nohup` or in the background of a script.
    """
    before = {
        signal.SIGHUP: signal.signal(signal.SIGHUP, signal.SIG_DFL),
        signal.SIGINT: signal.signal(signal.SIGINT, signal.default_int_handler),
    }
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
