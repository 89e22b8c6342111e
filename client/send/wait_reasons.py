"""Why sends have no outcome yet: which node is waited for, and what it does, for the texts of errors."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

from ringfence.native.errors import ClosedError, OverloadedError, RingfenceError, WaitTimeoutError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ringfence.common.routing import Layout
    from ringfence.network.io_thread import Link
    from ringfence.send.send_future import SendFuture

LOOK_S_MAX = 0.5  # the link's thread answers within milliseconds; the caller's time is over already
SHOWN_MAX = 3  # nodes in one text, and partitions of each

GOES_ON = "; the work goes on"

Reason = Literal[
    "not connected", "not answering", "no owner", "refused", "backpressure", "unanswered", "not sent"
]
WORDS: dict[Reason, str] = {
    "not connected": "is not connected",
    "not answering": "says nothing",
    "no owner": "is not known to own it",
    "refused": "refused it and is asked again",
    "backpressure": "takes no more until it has answered others",
    "unanswered": "has it and has not answered yet",
    "not sent": "gets it behind others of this producer",
}
WORST_FIRST: tuple[Reason, ...] = get_args(Reason)
FULL = (
    "the producer holds as many bytes without an outcome as it may{because}; wait for answers, or raise "
    "bytes_in_flight_max"
)


class Wait(NamedTuple):
    """What the batches of a partition wait for. `node` is 0 and `address` empty where they are not known."""

    partition: int
    node: int
    address: str
    reason: Reason
    found: str  # what else is known of it

    @property
    def words(self) -> str:
        """As a clause."""
        who = f"node {self.node} ({self.address})" if self.node else f"the node at {self.address}"
        return f"{who} {WORDS[self.reason]}"

    @property
    def text(self) -> str:
        """The clause, with what was found."""
        return f"{self.words}: {self.found}" if self.found else self.words


Held = tuple[str, list[Wait]]
"""The topic of what waits, and for whom."""


def why(link: Link, layout: Layout, partition: int, *, said: RingfenceError | None, awaits: bool) -> Wait:
    """On the link's thread. `said`: the node's last refusal; `awaits`: it was sent something."""
    entry = layout.entry(partition)
    peer = link.first if entry is None else link.peer_of(layout, entry.owner)
    node, up = 0 if entry is None else entry.owner, peer.up
    if up is None:
        found = peer.found if peer.failure is None else peer.failure.message
        return Wait(partition, node, peer.address, "not connected", found)
    reason: Reason
    found = "" if said is None else f"the node said: {said.message}"
    if up.silent:
        reason = "not answering"
    elif entry is None or entry.owner not in layout.addresses:
        reason = "no owner"
    elif said is not None:
        reason = "refused"
    elif awaits:
        reason = "unanswered"
    elif not up.room_for(0):
        reason = "backpressure"
    else:
        reason = "not sent"
    return Wait(partition, node, up.address, reason, found)


def told(waits: Sequence[Wait]) -> str:
    """Who is waited for, as the rest of a sentence; empty if nobody is known."""
    groups: dict[Wait, list[int]] = {}
    for wait in waits:
        groups.setdefault(wait._replace(partition=0), []).append(wait.partition)
    parts = []
    for wait, partitions in list(groups.items())[:SHOWN_MAX]:
        shown = ", ".join(str(one) for one in partitions[:SHOWN_MAX])
        more = f" and {len(partitions) - SHOWN_MAX} more" if len(partitions) > SHOWN_MAX else ""
        plural = "s" if len(partitions) > 1 else ""
        parts.append(f"partition{plural} {shown}{more}: {wait.text}")
    if len(groups) > SHOWN_MAX:
        parts.append(f"and {len(groups) - SHOWN_MAX} more nodes or reasons")
    return "; ".join(parts)


def late_error(
    what: str, topic: str, waits: Sequence[Wait], waited_s: float | None, **values: int
) -> WaitTimeoutError:
    """A wait of `waited_s` is over. `what`: who "has" no outcome."""
    return WaitTimeoutError(
        f'{what} no outcome yet in topic "{topic}"{_because(waits)}{GOES_ON}',
        topic=topic,
        waited_s=waited_s,
        **(_named(waits) | values),
    )


def full_error(topic: str, waits: Sequence[Wait], **values: int) -> OverloadedError:
    """No room within `bytes_in_flight_max`: the bytes of `topic` that hold it wait for `waits`."""
    return OverloadedError(FULL.format(because=_because(waits)), topic=topic, **(_named(waits) | values))


def _because(waits: Sequence[Wait]) -> str:
    return f" ({known})" if (known := told(waits)) else ""


def _named(waits: Sequence[Wait]) -> dict[str, Any]:
    """What errors name; nothing if nobody is known."""
    if not waits:
        return {}
    first, partitions = waits[0], tuple(wait.partition for wait in waits)
    node = {"node": first.node} if first.node else {}
    return {"partitions": partitions, **node, "address": first.address, "reason": first.reason}


def looked_up(link: Link, look: Callable[[], list[Wait]]) -> list[Wait]:
    """What the link's thread finds, the worst first; nothing if it has ended, or does not come to it."""
    found: list[Wait] = []
    looked = threading.Event()

    def run() -> None:
        try:
            found.extend(look())
        finally:
            looked.set()

    with contextlib.suppress(ClosedError):
        link.call(run)
        looked.wait(LOOK_S_MAX)
    return sorted(found, key=lambda wait: WORST_FIRST.index(wait.reason))


class Waiting:
    """What a producer's futures know of it: one object, for each of them has it."""

    def __init__(self, link: Link, topic: str, look: Callable[[SendFuture | None], list[Wait]]) -> None:
        """`look`, on the link's thread: what a send waits for; None: what all of them do."""
        self.check_outside = link.check_outside
        self._link, self._topic, self._look = link, topic, look

    def error(
        self, what: str, future: SendFuture | None, waited_s: float | None, **values: int
    ) -> WaitTimeoutError:
        """A wait of `waited_s` is over. `what` has no outcome."""
        # Who asks without waiting asks often.
        waits = looked_up(self._link, lambda: self._look(future)) if waited_s else []
        return late_error(what, self._topic, waits, waited_s, **values)

    def blocked(self, waited_s: float) -> Held:
        """What all of them wait for, to whom has waited for room."""
        waits = looked_up(self._link, lambda: self._look(None)) if waited_s else []
        return self._topic, waits
