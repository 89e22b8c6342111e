"""What the link does when a node is silent, or a newer table names another owner: others are asked.

The reasons are in `failure_detector.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ringfence.common.failure_detector import FORMER_S, Step
from ringfence.native.errors import ConnectError
from ringfence.network.request import READS, AskPending

if TYPE_CHECKING:
    from ringfence.common.routing import Layout
    from ringfence.network.connection import Connection
    from ringfence.network.io_thread import Link
    from ringfence.network.peer import Peer
    from ringfence.network.request import Ask


LATE_S = 2.0  # a node that restarts is back within a second; most answers come sooner by far


class Unanswered(NamedTuple):
    """A read that waits for a partition's owner."""

    topic: str
    partition: int
    node: int
    found: str
    """Why no answer came, as far as the connection tells."""
    begun_s: float
    """On time.monotonic."""


def unanswered(link: Link) -> Unanswered | None:
    """The read that waits longest for an owner that should have answered."""
    late = [
        Unanswered(ask.layout.name, ask.partition, entry.owner, peer.found, ask.begun_s)
        for peer, ask in _placed_asks(link)
        if ask.layout is not None
        and ask.opcode in READS
        and (entry := ask.layout.partitions.get(ask.partition)) is not None
        and link.now - ask.begun_s >= LATE_S + (0.0 if peer.up is None else ask.wait_s)
    ]
    return min(late, key=lambda one: one.begun_s, default=None)


def mind(link: Link, peer: Peer, now: float) -> None:
    """Look at a connection that stands; ask others if its node is silent."""
    connection = peer.up
    if connection is None:
        return
    match connection.look(now):
        case Step.PROBE:
            connection.probe(now)
        case Step.ASK_OTHERS:
            if peer is link.first:
                _leave_first(link, connection, now)
            link.on_silent()
        case Step.NOTHING:
            pass


def _leave_first(link: Link, connection: Connection, now: float) -> None:
    """What any node may serve is asked for at the next one, if one is known.

    The silent one may serve it as well when it goes on.
    """
    if link.leave_first(now):
        connection.give_up_those(_for_any_node)


def topics_waited_for(link: Link) -> set[int]:
    """Topics at whose owners requests are under way: a newer table may move them."""
    return {ask.layout.topic for ask in _asks(link) if ask.layout is not None}


def move_asks(link: Link, layout: Layout) -> None:
    """A newer table came: requests at former owners get FORMER_S more, and are then asked anew by the caller.

    One that was asked for by a later table than this one stays.
    """
    if any(_is_at_former(ask, layout) for ask in _asks(link)):
        link.at(link.now + FORMER_S, lambda: _end_at_former(link, layout))


def _asks(link: Link) -> list[Ask]:
    return [ask for _, ask in _placed_asks(link)]


def _placed_asks(link: Link) -> list[tuple[Peer, Ask]]:
    found: list[tuple[Peer, Ask]] = []
    for peer in link.peers():
        found += [(peer, ask) for ask in peer.waiting]
        if peer.connection is not None:
            pending = peer.connection.pending()
            found += [(peer, one.ask) for one in pending if isinstance(one, AskPending)]
    return found


def _for_any_node(pending: object) -> bool:
    if not isinstance(pending, AskPending):
        return False
    ask = pending.ask
    return ask.harmless_late and ask.node is None and ask.layout is None


def _is_at_former(ask: Ask, layout: Layout) -> bool:
    by = ask.layout
    if by is None or by.topic != layout.topic or by.generation >= layout.generation:
        return False
    old, new = by.partitions.get(ask.partition), layout.partitions.get(ask.partition)
    return old is not None and new is not None and (old.owner, old.epoch) != (new.owner, new.epoch)


def _end_at_former(link: Link, layout: Layout) -> None:
    for peer in link.peers():
        kept = [ask for ask in peer.waiting if not _is_at_former(ask, layout)]
        ended = [ask for ask in peer.waiting if _is_at_former(ask, layout)]
        peer.waiting.clear()
        peer.waiting.extend(kept)
        if peer.connection is not None:
            ended += [
                one.ask
                for one in peer.connection.take_those(
                    lambda one: isinstance(one, AskPending) and _is_at_former(one.ask, layout)
                )
                if isinstance(one, AskPending)
            ]
        for ask in ended:
            ask.future.set_exception(
                ConnectError(
                    "the partition has another owner, and the former one did not answer",
                    topic=layout.name,
                    partition=ask.partition,
                )
            )
