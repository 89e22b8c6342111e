"""Print one line to stderr if an answer takes long: the target, the last error, and the time left."""

from __future__ import annotations

import contextlib
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

import click

from ringfence.control.model.names import shown_topic_name
from ringfence.native.errors import ClosedError

if TYPE_CHECKING:
    from ringfence import Client

# Seconds until the notice. A node that restarts answers within a second.
NOTICE_AFTER_S: Final = 2.0
POLL_S: Final = 0.5
# A read asks an owner again every 5 s and is overdue 2 s later: within this time it is still the same wait.
SAME_WAIT_S: Final = 10.0


@contextlib.contextmanager
def wait_notice(target: str, timeout_s: float, last_error: Callable[[], str]) -> Iterator[None]:
    """Print one notice that the command waits for `target` if the block takes longer than NOTICE_AFTER_S.

    `last_error` returns the text of the last failed attempt, empty if no attempt has failed.
    """
    ended = threading.Event()
    began = time.monotonic()
    _watch(ended, timeout_s, lambda: _line(target, last_error(), timeout_s, began))
    try:
        yield
    finally:
        ended.set()


def wait_notice_for_client(client: Client, timeout_s: float) -> None:
    """Print a notice, once per wait, while a client finds no node or waits for an owner."""
    began, waited_s = time.monotonic(), -math.inf

    def line() -> str | None:
        nonlocal waited_s
        try:
            text = _client_wait(client, timeout_s, began)
        except ClosedError:
            return None
        now, is_new = time.monotonic(), False
        if text is not None:
            is_new, waited_s = now - waited_s > SAME_WAIT_S, now
        return text if text and is_new else ""

    _watch(threading.Event(), timeout_s, line, once=False)


def _client_wait(client: Client, timeout_s: float, began: float) -> str | None:
    """Return the notice of the client's current wait, or None if it does not wait. Raises ClosedError."""
    reason = client.unreached
    if reason is not None:
        return _line(", ".join(client.addresses), reason, timeout_s, began) if reason else None
    read = client.overdue_read
    if read is None:
        return None
    owner = f"{shown_topic_name(read.topic)}: node {read.node}, which owns partition {read.partition}"
    error = read.found.partition(": ")[0] or "no answer so far"
    return _line(owner, f"{owner}: {error}", timeout_s, read.begun_s)


def _line(target: str, last_error: str, timeout_s: float, began: float) -> str:
    left = max(0.0, timeout_s - (time.monotonic() - began))
    # The part after the semicolon is the way out; the error at the end has it.
    reason = last_error.partition(";")[0] or f"{target}: no answer so far"
    suffix = "" if target in reason else f" ({target})"
    return f"ringfence: {reason}; retrying for {left:.0f} s{suffix}"


def _watch(
    ended: threading.Event, timeout_s: float, line: Callable[[], str | None], *, once: bool = True
) -> None:
    """Print the lines of `line` from a thread: "" means not yet, None ends the thread."""
    if timeout_s <= NOTICE_AFTER_S or _is_quiet():
        return

    def watch() -> None:
        wait_s = NOTICE_AFTER_S
        while not ended.wait(wait_s):
            wait_s, text = POLL_S, line()
            if text is None:
                return
            if text:
                # Not through sys.stderr: at exit, this thread must not hold the lock of its buffer.
                with contextlib.suppress(OSError, ValueError):
                    os.write(sys.stderr.fileno(), f"{' '.join(text.split())}\n".encode())
                if once:
                    return

    threading.Thread(target=watch, name="ringfence-wait-notice", daemon=True).start()


def _is_quiet() -> bool:
    """Programs that read JSON lines expect no other lines; demos report their waits themselves."""
    context = click.get_current_context(silent=True)
    if context is None or not {"address", "http", "control"} & set(context.params):
        return True
    return bool(context.params.get("as_json")) and not (sys.stderr is not None and sys.stderr.isatty())
