"""One line on stderr when an answer takes long: whom a command waits for, what it found, how long yet."""

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

# A node that restarts is back within a second; who waits longer asks what for.
TELL_S: Final = 2.0
LOOK_S: Final = 0.5
# A read asks an owner anew every 5 s, and is late 2 s later: what comes so soon is the same wait.
REST_S: Final = 10.0


@contextlib.contextmanager
def patience(whom: str, timeout_s: float, found: Callable[[], str]) -> Iterator[None]:
    """While the block runs: say once that it waits for `whom`; `found` says why nobody answered so far."""
    over = threading.Event()
    began = time.monotonic()
    _look(over, timeout_s, lambda: _line(whom, found(), timeout_s, began))
    try:
        yield
    finally:
        over.set()


def while_used(client: Client, timeout_s: float) -> None:
    """Say that a client finds no node, or waits for a partition's owner, until it is closed: once a wait."""
    began, waited_s = time.monotonic(), -math.inf

    def line() -> str | None:
        nonlocal waited_s
        try:
            text = _waited_for(client, timeout_s, began)
        except ClosedError:
            return None
        now, is_news = time.monotonic(), False
        if text is not None:
            is_news, waited_s = now - waited_s > REST_S, now
        return text if text and is_news else ""

    _look(threading.Event(), timeout_s, line, once=False)


def _waited_for(client: Client, timeout_s: float, began: float) -> str | None:
    """None: nobody is waited for. Raises ClosedError."""
    found = client.unreached
    if found is not None:
        return _line(", ".join(client.addresses), found, timeout_s, began) if found else None
    late = client.overdue_read
    if late is None:
        return None
    owner = f"{shown_topic_name(late.topic)}: node {late.node}, which owns partition {late.partition}"
    why = late.found.partition(": ")[0] or "no answer so far"
    return _line(owner, f"{owner}: {why}", timeout_s, late.begun_s)


def _line(whom: str, found: str, timeout_s: float, began: float) -> str:
    left = max(0.0, timeout_s - (time.monotonic() - began))
    why = found.partition(";")[0] or f"{whom}: no answer so far"  # the error has the rest
    others = "" if whom in why else f" ({whom})"
    return f"ringfence: {why}; tries on for {left:.0f} s{others}"


def _look(
    over: threading.Event, timeout_s: float, line: Callable[[], str | None], *, once: bool = True
) -> None:
    """`line` gives "" as long as it is too early, and None when there is nothing to say any more."""
    if timeout_s <= TELL_S or _is_quiet():
        return

    def look() -> None:
        wait_s = TELL_S
        while not over.wait(wait_s):
            wait_s, said = LOOK_S, line()
            if said is None:
                return
            if said:
                # Without Python's buffers: nobody may hold their locks when the main thread ends the process.
                with contextlib.suppress(OSError, ValueError):
                    os.write(sys.stderr.fileno(), f"{' '.join(said.split())}\n".encode())
                if once:
                    return

    threading.Thread(target=look, name="ringfence-patience", daemon=True).start()


def _is_quiet() -> bool:
    """Programs that read lines of JSON expect no others; stories tell of themselves what they wait for."""
    context = click.get_current_context(silent=True)
    if context is None or not {"address", "http", "control"} & set(context.params):
        return True
    return bool(context.params.get("as_json")) and not (sys.stderr is not None and sys.stderr.isatty())
