"""Cache the routing tables of the topics in use: fetch, receive pushes, refresh, acknowledge.

Pushes are only an optimization: a redirect and a new connection fetch tables, and a refresh with jitter
replaces lost pushes. The client acknowledges the generation in its cache (I10).
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from ringfence.common.codec import control_body
from ringfence.common.routing import Layout, layout_of, newest
from ringfence.native import messages, wire
from ringfence.native.errors import ProtocolError, RingfenceError
from ringfence.network.failover import move_requests, topics_waited_for
from ringfence.network.request import Request

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from ringfence.common.codec import Answer
    from ringfence.network.io_thread import IoThread

    Fetched = Callable[[Layout | None, RingfenceError | None], None]
    Listener = Callable[[Layout], None]

# Seconds of one fetch with its retries; then the caller fetches again.
FETCH_S = 10.0
# Seconds between two fetches of topics without a key: loads are not pushed, and nodes measure every 2 s.
LOADS_S = 10.0
# Seconds between two fetches of other topics, times 0.75 .. 1.25: short enough to hide a lost push.
REFRESH_S = 60.0


class _Fetch(NamedTuple):
    """A request that is under way: the version that it names, and who waits with which needs."""

    version: int
    waiting: list[tuple[int, Fetched]]


class TableCache:
    """The newest layouts. `store`, `fetch`, `pushed` and `listen` run on the I/O thread."""

    def __init__(self, io_thread: IoThread) -> None:
        self._io_thread = io_thread
        # By topic id; a layout is replaced only by a newer one.
        self._layouts: dict[int, Layout] = {}
        # By topic id; a topic with listeners is refreshed.
        self._listeners: dict[int, list[Listener]] = {}
        self._fetches: dict[int, _Fetch] = {}  # by topic id
        io_thread.on_push = self.pushed
        io_thread.on_up = lambda _: self._refresh_all()
        io_thread.on_silent = self._refresh_all  # the silent node's partitions get other owners
        io_thread.known = self._addresses
        io_thread.on_history = self._layouts.clear

    # ---- from any thread --------------------------------------------------------------------------------

    def get(self, name: str, deadline: float) -> Layout:
        """Fetch the layout of a topic by its name; waits.

        Raises:
            NotFoundError: no such topic. ConnectError: no node answered before the deadline.
        """
        return self.get_by_id(self.described(name, deadline).topic, deadline, name)

    def described(self, name: str, deadline: float) -> messages.TopicInfo:
        """Fetch the description of a topic; waits, and raises like `get`."""
        body = control_body(messages.TopicName(name=name))
        describe = Request(wire.Opcode.TOPIC_DESCRIBE, body, deadline, topic=name)
        return self._io_thread.request(describe).result().control(messages.TopicInfo)

    def get_by_id(self, topic: int, deadline: float, name: str | None = None, version: int = 0) -> Layout:
        """Like `get`, by the topic's id. `version`: the least one that helps; the caller looks at it."""
        answer = self._io_thread.request(_table_request(topic, deadline, name, version)).result()
        layout = layout_of(answer.control(messages.Table))
        self._io_thread.call(lambda: self.store(layout))
        return layout

    # ---- on the I/O thread ------------------------------------------------------------------------------

    def listen(self, topic: int, listener: Listener) -> None:
        """Call the listener for every newer layout, until `forget`."""
        if topic not in self._listeners:
            self._io_thread.at(self._next_refresh(topic), lambda: self._refresh(topic))
        self._listeners.setdefault(topic, []).append(listener)

    def forget(self, topic: int, listener: Listener) -> None:
        """Undo `listen`."""
        listeners = self._listeners.get(topic, [])
        if listener in listeners:
            listeners.remove(listener)
        if not listeners:
            self._listeners.pop(topic, None)

    def store(self, offered: Layout) -> Layout:
        """Store a layout if it is newer, acknowledge it, and return the newest one."""
        before = self._layouts.get(offered.topic)
        layout = newest(before, offered)
        if layout is not before:
            self._layouts[layout.topic] = layout
            if before is None or layout.generation > before.generation:
                move_requests(self._io_thread, layout)
            for listener in list(self._listeners.get(layout.topic, [])):
                listener(layout)
        if (offered.history, offered.generation) == (layout.history, layout.generation):
            self._acknowledge(layout)
        return layout

    def _acknowledge(self, layout: Layout) -> None:
        """Acknowledge the generation to every node.

        Also for a table that is in the cache already: a node counts only acknowledgements of tables that it
        has sent itself.
        """
        for connection in self._io_thread.connections():
            connection.send(wire.Opcode.TABLE_ACK, b"", None, topic=layout.topic, sequence=layout.generation)

    def fetch(self, topic: int, done: Fetched, version: int = 0) -> None:
        """Fetch a table; `done` gets the newest layout, or the error.

        One fetch of a topic is under way at a time; others get its result. `version`: the least version of
        the layout that helps; a node that is behind answers once it has it. The caller looks at the version.
        """
        fetch = self._fetches.get(topic)
        if fetch is not None:
            fetch.waiting.append((version, done))
            return
        self._fetches[topic] = fetch = _Fetch(version, [(version, done)])
        request = _table_request(topic, time.monotonic() + FETCH_S, None, version)

        def finished(future: Future[Answer]) -> None:
            del self._fetches[topic]
            try:
                layout = self.store(layout_of(future.result().control(messages.Table)))
            except RingfenceError as error:
                self._finish(fetch, None, error)
            except Exception as error:  # noqa: BLE001  # `done` gets it
                fault = ProtocolError(f"a routing table cannot be used: {type(error).__name__}: {error}")
                self._finish(fetch, None, fault)
            else:
                self._finish(fetch, layout, None)

        request.future.add_done_callback(finished)
        self._io_thread.enqueue(request)

    def _finish(self, fetch: _Fetch, layout: Layout | None, error: RingfenceError | None) -> None:
        for version, done in fetch.waiting:
            if layout is not None and layout.version < version > fetch.version:
                self.fetch(layout.topic, done, version)  # it came while an older version was requested
            else:
                done(layout, error)

    def pushed(self, answer: Answer) -> None:
        """Handle TABLE_PUSH. Pushes of other kinds belong to later versions and are ignored."""
        if answer.header.opcode == wire.Opcode.TABLE_PUSH:
            table = answer.control(messages.Table)
            if table.topic in self._listeners or table.topic in self._layouts:
                self.store(layout_of(table))

    def _refresh_all(self) -> None:
        """Fetch all tables: a node pushes a table only after the connection has requested it."""
        for topic in {*self._listeners, *topics_waited_for(self._io_thread)}:
            self.fetch(topic, _ignore)

    def _addresses(self) -> list[str]:
        """Addresses of all nodes in the tables."""
        return [one for layout in self._layouts.values() for own in layout.addresses.values() for one in own]

    def _refresh(self, topic: int) -> None:
        if topic in self._listeners:
            self.fetch(topic, _ignore)
            self._io_thread.at(self._next_refresh(topic), lambda: self._refresh(topic))

    def _next_refresh(self, topic: int) -> float:
        layout = self._layouts.get(topic)
        every_s = LOADS_S if layout is not None and not layout.key else REFRESH_S
        return self._io_thread.now + every_s * (0.75 + self._io_thread.jitter() / 2)


def _table_request(topic: int, deadline: float, name: str | None, version: int = 0) -> Request:
    fields = {"topic": topic, "layout_version": version}
    return Request(wire.Opcode.TABLE, b"", deadline, topic=name, fields=fields)


def _ignore(layout: Layout | None, error: RingfenceError | None) -> None:
    """Ignore the result: `store` calls the listeners, and callers that need a table fetch again."""
    del layout, error
