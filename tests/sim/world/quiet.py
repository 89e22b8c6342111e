"""The product's log while it is simulated: lines of the story, and defects that it would only write down."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import structlog

from tests.sim.checks.violation import ViolationError
from tests.sim.world import current

if TYPE_CHECKING:
    from tests.sim.world.world import World

_WRAPPER: Final = structlog.make_filtering_bound_logger(logging.INFO)
_listening: list[World] = []


def listen(world: World) -> None:
    """Lines are of this world from now on."""
    _listening[:] = [world]


def _line(_: Any, method: str, event: MutableMapping[str, Any]) -> Any:
    if _listening:
        world = _listening[0]
        if method == "exception" or event.get("exc_info"):
            world.violate(ViolationError("defect", f"the log has an exception: {event}"))
        if world.is_told:
            name = event.pop("event")
            told = " ".join(f"{key}={value}" for key, value in event.items())
            world.note(current.machine().name, f"({name}) {told}"[:240])
    raise structlog.DropEvent


def _no_logger(*_: Any) -> None:
    """Every line ends in `_line`."""


@contextmanager
def logs(*, is_last: bool = False) -> Iterator[None]:
    """Instead of the process's own configuration; for good in a process that ends after its runs.

    What a killed process's coroutines complain of when they are dropped is said to nobody, too.
    """
    before, hook = structlog.get_config(), sys.unraisablehook
    sys.unraisablehook = lambda _: None
    structlog.configure(
        processors=[_line],
        wrapper_class=_WRAPPER,
        logger_factory=_no_logger,
        cache_logger_on_first_use=is_last,
    )
    try:
        yield
    finally:
        _listening.clear()
        sys.unraisablehook = hook
        structlog.configure(**before)
