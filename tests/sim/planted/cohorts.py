"""Bugs of cohorts that a whole cluster shows, one at a time, in the control plane or in the consumer.

The gate of one owner has bugs of its own, which its stories and walks find (`core/node/src/cohorts/gate`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import pytest

from ringfence.control.state_machines.cohorts import gates
from tests.sim.checks.violation import ViolationError
from tests.sim.cohorts import run_seed, with_cohort
from tests.sim.planted.__main__ import broken_by

Patch = pytest.MonkeyPatch


def _children_at_once(patch: Patch) -> None:
    """The gate of a child waits for no parent (CD5)."""
    patch.setattr(gates, "waits_for", lambda *_: ())


BUGS: Final[dict[str, Callable[[Patch], None]]] = {"children_at_once": _children_at_once}


@contextmanager
def planted(name: str) -> Iterator[None]:
    """In this block the program has the bug."""
    with pytest.MonkeyPatch.context() as patch:
        BUGS[name](patch)
        yield


def find(name: str, seeds: Sequence[int]) -> tuple[int, ViolationError | None]:
    """The first of these seeds that shows the bug, and what broke."""
    for seed in seeds:
        with planted(name):
            result = run_seed(with_cohort(seed))
        broken = broken_by(result.violation)
        if broken is not None:
            return seed, broken
    return seeds[-1], None
