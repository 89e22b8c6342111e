"""What the link does when a node is silent, or a newer table names another owner: others are asked.

The reasons are in `silence.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringfence.ask import AskPending
from ringfence.lane import FORMER_S
from ringfence.native.errors import ConnectError
from ringfence.silence import Step

if TYPE_CHECKING:
    from ringfence.ask import Ask
    from ringfence.connection import Connection
    from ringfence.link import Link
    from ringfence.peer import Peer
    from ringfence.routing import Layout


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
    found: list[Ask] = []
    for peer in link.peers():
        found += peer.waiting
        if peer.connection is not None:
            found += [one.ask for one in peer.connection.pending() if isinstance(one, AskPending)]
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
