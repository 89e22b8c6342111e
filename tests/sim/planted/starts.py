"""Bugs that only truncates of replicated topics and forced owners show, with seeds that have many of them.

All lie in the engine, behind the cargo feature `planted` (native.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tests.sim.faults.plan import Plan, with_forced_owners, with_truncates

SHOWN_BY: Final[dict[str, Callable[[Plan], Plan]]] = {
    "start_forgotten": with_truncates,
    "start_of_any_epoch": with_forced_owners,
    "position_of_any_epoch": with_forced_owners,
    "cut_keeps_producers": with_forced_owners,
}
