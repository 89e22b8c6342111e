"""Whose code runs now: the clock, dice and disk that intercepted calls mean."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.sim.world.machine import Machine

_stack: list[Machine] = []


def machine() -> Machine:
    """The machine whose code runs. AssertionError outside of one: that code has no business with clocks."""
    if not _stack:
        raise AssertionError("a clock, a disk or a socket was asked for outside of any simulated machine")
    return _stack[-1]


enter = _stack.append
"""As `on`, for who calls it a thousand times a second; `leave` must follow."""
leave = _stack.pop


@contextmanager
def on(which: Machine) -> Iterator[None]:
    """Run the block as code of this machine."""
    _stack.append(which)
    try:
        yield
    finally:
        _stack.pop()
