"""Short forms of refusals of a command.

A refusal changes nothing and is not part of the state: sessions and keyed requests remember only results
of commands that were applied. So refusal texts may differ between versions of the program. The exception
are the texts of `ring_commands`: the reason of an ended rebalance may quote them (`rebalances.finish`).
"""

from __future__ import annotations

from ringfence.control.model.results import Refused
from ringfence.native.wire import Code


def invalid(message: str) -> Refused:
    """The command can never be applied in this state."""
    return Refused(code=Code.INVALID_ARGUMENT, message=message)


def stale(message: str) -> Refused:
    """A compare-and-set came too late: read the newer state and decide again."""
    return Refused(code=Code.TOO_OLD, message=message)


def conflict(message: str) -> Refused:
    """Another operation is open: wait for its end or stop it. The wire's code CONFLICT is for content."""
    return Refused(code=Code.ALREADY_EXISTS, message=message)


def unknown_cohort(cohort: object) -> Refused:
    """No cohort has this id or name."""
    message = f"no cohort {cohort!r}; it was deleted or never existed"
    return Refused(code=Code.UNKNOWN_COHORT, message=message)


def unknown_topic(topic: int) -> Refused:
    """No topic has this id."""
    return Refused(
        code=Code.UNKNOWN_TOPIC, message=f"no topic has the id {topic}; it was deleted or never existed"
    )
