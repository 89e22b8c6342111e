"""Explain pending sends in error messages: the node that each waits for, and that node's state."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

from ringfence.native.errors import ClosedError, OverloadedError, RingfenceError, WaitTimeoutError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ringfence.common.routing import Layout
    from ringfence.network.io_thread import IoThread
    from ringfence.send.send_future import SendFuture

# The I/O thread answers within milliseconds, and the caller's own time is already over.
LOOK_S_MAX = 0.5
SHOWN_MAX = 3  # nodes in one text, and partitions for each node

GOES_ON = "; it continues in the background"

Reason = Literal[
    "not connected", "not answering", "no owner", "refused", "backpressure", "unanswered", "not sent"
]
WORDS: dict[Reason, str] = {
    "not connected": "is not connected",
    "not answering": "does not respond",
    "no owner": "is not known as the owner",
    "refused": "refused it and is retried",
    "backpressure": "accepts no more until it has answered earlier batches",
    "unanswered": "received it and has not answered yet",
    "not sent": "gets it after earlier batches of this producer",
}
WORST_FIRST: tuple[Reason, ...] = get_args(Reason)
FULL = (
    "the pending sends of the producer reach bytes_in_flight_max{because}; wait for outcomes, or raise "
    "bytes_in_flight_max"
)


class WaitReason(NamedTuple):
    """Why the batches of a partition are pending. `node` is None and `address` empty if not known."""

    partition: int
    node: int | None
    address: str
    reason: Reason
    found: str  # details, or empty

    @property
    def words(self) -> str:
        """As a clause."""
        node = (
            f"node {self.node} ({self.address})" if self.node is not None else f"the node at {self.address}"
        )
        return f"{node} {WORDS[self.reason]}"

    @property
    def text(self) -> str:
        """The clause and its details."""
        return f"{self.words}: {self.found}" if self.found else self.words


PendingSends = tuple[str, list[WaitReason]]
"""The topic of pending sends, and the reasons why they are pending."""


def wait_reason(
    io_thread: IoThread, layout: Layout, partition: int, *, last_refusal: RingfenceError | None, awaits: bool
) -> WaitReason:
    """Why a partition's batches are pending; on the I/O thread.

    `awaits`: a batch was sent and not answered.
    """
    entry = layout.entry(partition)
    peer = io_thread.first if entry is None else io_thread.peer_of(layout, entry.owner)
    node, up = None if entry is None else entry.owner, peer.up
    if up is None:
        found = peer.found if peer.failure is None else peer.failure.message
        return WaitReason(partition, node, peer.address, "not connected", found)
    reason: Reason
    found = "" if last_refusal is None else f"the node answered: {last_refusal.message}"
    if up.silent:
        reason = "not answering"
    elif entry is None or entry.owner not in layout.addresses:
        reason = "no owner"
    elif last_refusal is not None:
        reason = "refused"
    elif awaits:
        reason = "unanswered"
    elif not up.room_for(0):
        reason = "backpressure"
    else:
        reason = "not sent"
    return WaitReason(partition, node, up.address, reason, found)


def described(waits: Sequence[WaitReason]) -> str:
    """The reasons as a list of clauses; empty if there are none."""
    groups: dict[WaitReason, list[int]] = {}
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
    what: str, topic: str, waits: Sequence[WaitReason], waited_s: float | None, **values: int
) -> WaitTimeoutError:
    """The error of a wait that ended after `waited_s`. `what`: subject and verb, such as "send 3 has"."""
    return WaitTimeoutError(
        f'{what} no outcome yet in topic "{topic}"{_because(waits)}{GOES_ON}',
        topic=topic,
        waited_s=waited_s,
        **(_named(waits) | values),
    )


def full_error(topic: str, waits: Sequence[WaitReason], **values: int) -> OverloadedError:
    """The error if `bytes_in_flight_max` is reached; `waits`: why the sends of `topic` are pending."""
    return OverloadedError(FULL.format(because=_because(waits)), topic=topic, **(_named(waits) | values))


def _because(waits: Sequence[WaitReason]) -> str:
    return f" ({known})" if (known := described(waits)) else ""


def _named(waits: Sequence[WaitReason]) -> dict[str, Any]:
    """Values of the first reason, for the details of an error."""
    if not waits:
        return {}
    first, partitions = waits[0], tuple(wait.partition for wait in waits)
    node = {} if first.node is None else {"node": first.node}
    return {"partitions": partitions, **node, "address": first.address, "reason": first.reason}


def looked_up(io_thread: IoThread, look: Callable[[], list[WaitReason]]) -> list[WaitReason]:
    """Run `look` on the I/O thread; its reasons, the worst first. Empty if the thread does not run it."""
    found: list[WaitReason] = []
    looked = threading.Event()

    def run() -> None:
        try:
            found.extend(look())
        finally:
            looked.set()

    with contextlib.suppress(ClosedError):
        io_thread.call(run)
        looked.wait(LOOK_S_MAX)
    return sorted(found, key=lambda wait: WORST_FIRST.index(wait.reason))


class WaitReasons:
    """Lets the futures of a producer explain why they are pending. All futures share one object."""

    def __init__(
        self, io_thread: IoThread, topic: str, look: Callable[[SendFuture | None], list[WaitReason]]
    ) -> None:
        """`look`: the reasons of one send, or of all sends for None; called on the I/O thread."""
        self.check_outside = io_thread.check_outside
        self._io_thread, self._topic, self._look = io_thread, topic, look

    def error(
        self, what: str, future: SendFuture | None, waited_s: float | None, **values: int
    ) -> WaitTimeoutError:
        """The error of a wait that ended after `waited_s`. `what`: subject and verb, such as "send 3 has"."""
        # A caller that polls with a time-out of 0 polls often, so the reasons are left out.
        waits = looked_up(self._io_thread, lambda: self._look(future)) if waited_s else []
        return late_error(what, self._topic, waits, waited_s, **values)

    def blocked(self, waited_s: float) -> PendingSends:
        """The reasons of all pending sends, for a caller that waited for room."""
        waits = looked_up(self._io_thread, lambda: self._look(None)) if waited_s else []
        return self._topic, waits
