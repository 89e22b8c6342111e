"""One run of moves, from its start to its end."""

from __future__ import annotations

from typing import Any

from benchmarks.cluster.nodes import until
from ringfence.control.cli.rebalance_api import ask_values
from ringfence.control.runtime.rpc import messages

ASK_S = 10.0
RUN_S = 600.0


def rebalanced(
    control: str, *, action: str, node: int = 0, moves: tuple[tuple[int, tuple[int, ...]], ...] = ()
) -> dict[str, Any]:
    """Start it, wait until it is over; what is shown of it then.

    Raises RuntimeError if it did not end well.
    """
    ask_values(control, messages.SteerRebalance(verb="start", action=action, node=node, moves=moves), ASK_S)
    until(lambda: shown(control)["state"] == "IDLE", RUN_S)
    told = shown(control)
    if told["outcome"] != "DONE":
        raise RuntimeError(f"{action} ended as {told['outcome']}: {told['moves']}")
    return told


def shown(control: str) -> dict[str, Any]:
    """The newest run, and its moves."""
    return ask_values(control, messages.SteerRebalance(verb="show"), ASK_S)
