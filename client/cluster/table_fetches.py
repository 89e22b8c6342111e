"""Fetch routing tables for the cache: one fetch of a topic at a time, from several nodes if one is behind.

A node that lacks the version that is needed waits for it, and refuses as `ahead` at the deadline of a try.
Then the next node is asked: the redirect that named the version came from a node that has it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from ringfence.common.routing import Layout, layout_of
from ringfence.native import messages, wire
from ringfence.native.errors import NotFoundError, ProtocolError, RerouteError, RetriableError, RingfenceError
from ringfence.network.request import Request

if TYPE_CHECKING:
    from concurrent.futures import Future

    from ringfence.common.codec import Answer
    from ringfence.network.io_thread import IoThread

Fetched = Callable[[Layout | None, RingfenceError | None], None]

# Seconds of one fetch with its retries; then the caller fetches again.
FETCH_S = 10.0
# Seconds of a try at one node while there are others: a node applies a change within milliseconds.
TRY_S = 1.0
# Nodes that one fetch asks. The majority of a cluster of 7 is reached by the fourth.
NODES_MAX = 4


class Store(Protocol):
    """Takes the tables: the cache."""

    def store(self, offered: Layout, generation: int) -> Layout | None: ...
    def unchanged(self, topic: int, generation: int) -> Layout | None: ...
    def held(self, topic: int) -> Layout | None: ...
    def generation(self, topic: int) -> int: ...
    def topic_gone(self, topic: int) -> None: ...


@dataclass
class _Fetch:
    """A fetch that is under way.

    Attributes:
        version: the least one that helps, named in the request.
        held: generation that is held, named in the request; 0: the whole table is wanted.
        deadline: of all tries, on time.monotonic.
        waiting: callers, each with the least version that helps it.
        nodes: to be asked next; None: any node at the addresses of the application.
    """

    topic: int
    version: int
    held: int
    deadline: float
    waiting: list[tuple[int, Fetched]]
    nodes: list[int | None] = field(default_factory=list)


class TableFetches:
    """The fetches of one client. All methods run on the I/O thread."""

    def __init__(self, io_thread: IoThread, tables: Store) -> None:
        self._io_thread, self._tables = io_thread, tables
        self._under_way: dict[int, _Fetch] = {}  # by topic id
        self._turn = 0  # of the nodes, for fetches that begin at another one each time

    def begin(
        self, topic: int, done: Fetched, version: int = 0, *, held: int = 0, from_other: bool = False
    ) -> None:
        """Fetch a table; see `TableCache.fetch`.

        Args:
            topic: its id.
            done: gets the newest layout, or the error.
            version: the least one that helps.
            held: generation that is held: a node with nothing newer sends no body.
            from_other: begin with another connected node each time.
        """
        fetch = self._under_way.get(topic)
        if fetch is not None:
            fetch.waiting.append((version, done))
            return
        fetch = _Fetch(topic, version, held, time.monotonic() + FETCH_S, [(version, done)])
        fetch.nodes = self._nodes(topic, version, from_other=from_other)
        self._under_way[topic] = fetch
        self._ask(fetch)

    def _nodes(self, topic: int, version: int, *, from_other: bool) -> list[int | None]:
        """The nodes to ask, in order: connected ones; for a version also others of the table."""
        first = self._io_thread.first
        connected = [
            peer.node for peer in self._io_thread.peers() if peer is not first and peer.up is not None
        ]
        nodes: list[int | None] = [None, *connected]
        if from_other:
            self._turn += 1
            start = self._turn % len(nodes)
            nodes = nodes[start:] + nodes[:start]
        layout = self._tables.held(topic) if version else None
        if layout is not None:
            for node in layout.addresses:
                if len(nodes) < NODES_MAX and self._io_thread.peer_of(layout, node).node not in nodes:
                    nodes.append(node)
        return nodes[:NODES_MAX]

    def _ask(self, fetch: _Fetch) -> None:
        node = fetch.nodes.pop(0)
        deadline = min(fetch.deadline, time.monotonic() + TRY_S) if fetch.nodes else fetch.deadline
        request = table_request(fetch.topic, deadline, None, fetch.version, fetch.held)
        request.node, request.held = node, self._tables.generation(fetch.topic)
        request.future.add_done_callback(lambda future: self._answered(fetch, future))
        self._io_thread.enqueue(request)

    def _answered(self, fetch: _Fetch, future: Future[Answer]) -> None:
        layout: Layout | None = None
        error: RingfenceError | None = None
        try:
            layout = self._layout(fetch, future.result())
        except RingfenceError as failure:
            error = failure
        except Exception as failure:  # noqa: BLE001  # the callers get it
            error = ProtocolError(f"a routing table cannot be used: {type(failure).__name__}: {failure}")
        is_behind = layout is not None and layout.version < fetch.version
        may_differ = is_behind or isinstance(error, RetriableError | RerouteError | ProtocolError)
        if may_differ and fetch.nodes and time.monotonic() < fetch.deadline:
            self._ask(fetch)
            return
        del self._under_way[fetch.topic]
        if error is not None and is_gone(error):
            self._tables.topic_gone(fetch.topic)
        for version, done in fetch.waiting:
            if layout is not None and layout.version < version > fetch.version:
                self.begin(fetch.topic, done, version)  # it came while an older version was requested
            else:
                done(layout, error)

    def _layout(self, fetch: _Fetch, answer: Answer) -> Layout:
        """The layout that is held after an answer. Raises ProtocolError if there is none."""
        generation = answer.header.generation
        if not answer.header.body_bytes and fetch.held:
            layout = self._tables.unchanged(fetch.topic, generation)
            fetch.held = 0  # if nothing is held any more, the whole table is needed
        else:
            layout = self._tables.store(layout_of(answer.control(messages.Table)), generation)
        if layout is None:
            raise ProtocolError("a node gave no routing table that can be used", topic=fetch.topic)
        return layout


def table_request(topic: int, deadline: float, name: str | None, version: int = 0, held: int = 0) -> Request:
    """A request for a table, at least in this version, if it is newer than the held generation."""
    fields = {"topic": topic, "layout_version": version, "sequence": held}
    return Request(wire.Opcode.TABLE, b"", deadline, topic=name, fields=fields)


def is_gone(error: RingfenceError) -> bool:
    """Whether a node says that a topic does not exist any more."""
    return isinstance(error, NotFoundError) and error.code is wire.Code.UNKNOWN_TOPIC
