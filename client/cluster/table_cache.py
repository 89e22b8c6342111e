"""Routing tables of the topics in use: fetched, pushed, refreshed, acknowledged.

Nothing is correct only because of a push: a redirect fetches, a new connection fetches, and a jittered
refresh heals what was lost. What is acknowledged is what is held (I10).
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from ringfence.common.codec import control_body
from ringfence.common.routing import Layout, layout_of, newest
from ringfence.native import messages, wire
from ringfence.native.errors import ProtocolError, RingfenceError
from ringfence.network.failover import move_asks, topics_waited_for
from ringfence.network.request import Ask

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from ringfence.common.codec import Answer
    from ringfence.network.io_thread import Link

    Fetched = Callable[[Layout | None, RingfenceError | None], None]
    Listener = Callable[[Layout], None]

FETCH_S = 10.0  # one fetch with its retries; the caller asks again
LOADS_S = 10.0  # as REFRESH_S, of a topic without key: loads come with no push, and nodes look every 2 s
REFRESH_S = 60.0  # times 0.75 .. 1.25: heals a lost push within the time in which an operator would look


class Tables:
    """The newest layouts. `hold`, `fetch`, `pushed` and `listen` run on the link's thread."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._held: dict[int, Layout] = {}
        self._listeners: dict[int, list[Listener]] = {}
        link.on_push = self.pushed
        link.on_up = lambda _: self._refresh_all()
        link.on_silent = self._refresh_all  # whose partitions are others' now, or will be in a moment
        link.known = self._addresses
        link.on_history = self._held.clear

    # ---- from any thread --------------------------------------------------------------------------------

    def get(self, name: str, deadline: float) -> Layout:
        """Fetch the layout of a topic by its name; waits.

        Raises:
            NotFoundError: no such topic. ConnectError: nobody answered until the deadline.
        """
        return self.get_by_id(self.described(name, deadline).topic, deadline, name)

    def described(self, name: str, deadline: float) -> messages.TopicInfo:
        """What a node knows of a topic; waits, and raises as `get`."""
        body = control_body(messages.TopicName(name=name))
        describe = Ask(wire.Opcode.TOPIC_DESCRIBE, body, deadline, topic=name)
        return self._link.ask(describe).result().control(messages.TopicInfo)

    def get_by_id(self, topic: int, deadline: float, name: str | None = None) -> Layout:
        """The same by id."""
        answer = self._link.ask(_table_ask(topic, deadline, name)).result()
        layout = layout_of(answer.control(messages.Table))
        self._link.call(lambda: self.hold(layout))
        return layout

    # ---- on the link's thread ---------------------------------------------------------------------------

    def listen(self, topic: int, listener: Listener) -> None:
        """Call the listener with every newer layout, until `forget`."""
        if topic not in self._listeners:
            self._link.at(self._next_refresh(topic), lambda: self._refresh(topic))
        self._listeners.setdefault(topic, []).append(listener)

    def forget(self, topic: int, listener: Listener) -> None:
        """Ends `listen`."""
        listeners = self._listeners.get(topic, [])
        if listener in listeners:
            listeners.remove(listener)
        if not listeners:
            self._listeners.pop(topic, None)

    def hold(self, offered: Layout) -> Layout:
        """Take a layout if it is newer; the one that is held now, which every connection hears of."""
        before = self._held.get(offered.topic)
        held = newest(before, offered)
        if held is not before:
            self._held[held.topic] = held
            if before is None or held.generation > before.generation:
                move_asks(self._link, held)
            for listener in list(self._listeners.get(held.topic, [])):
                listener(held)
        if (offered.history, offered.generation) == (held.history, held.generation):
            self._acknowledge(held)
        return held

    def _acknowledge(self, held: Layout) -> None:
        """Tell every node which generation is held.

        Also after a table that is held already: a node counts only what it has sent itself, so that the
        acknowledgement of another node's copy did not count there.
        """
        for connection in self._link.connections():
            connection.send(wire.Opcode.TABLE_ACK, b"", None, topic=held.topic, sequence=held.generation)

    def fetch(self, topic: int, done: Fetched) -> None:
        """Ask for a table; `done` gets the newest layout that is held then, or the error."""
        ask = _table_ask(topic, time.monotonic() + FETCH_S, None)

        def finished(future: Future[Answer]) -> None:
            try:
                layout = self.hold(layout_of(future.result().control(messages.Table)))
            except RingfenceError as error:
                done(None, error)
            except Exception as error:  # noqa: BLE001  # who waits for the table hears of it
                done(None, ProtocolError(f"a routing table cannot be used: {type(error).__name__}: {error}"))
            else:
                done(layout, None)

        ask.future.add_done_callback(finished)
        self._link.enqueue(ask)

    def pushed(self, answer: Answer) -> None:
        """TABLE_PUSH; other pushes are of later versions and mean nothing here."""
        if answer.header.opcode == wire.Opcode.TABLE_PUSH:
            table = answer.control(messages.Table)
            if table.topic in self._listeners or table.topic in self._held:
                self.hold(layout_of(table))

    def _refresh_all(self) -> None:
        """A new connection gets no push of a table that it did not ask for."""
        for topic in {*self._listeners, *topics_waited_for(self._link)}:
            self.fetch(topic, _ignore)

    def _addresses(self) -> list[str]:
        """Of all nodes that tables name."""
        return [one for layout in self._held.values() for own in layout.addresses.values() for one in own]

    def _refresh(self, topic: int) -> None:
        if topic in self._listeners:
            self.fetch(topic, _ignore)
            self._link.at(self._next_refresh(topic), lambda: self._refresh(topic))

    def _next_refresh(self, topic: int) -> float:
        held = self._held.get(topic)
        every_s = LOADS_S if held is not None and not held.key else REFRESH_S
        return self._link.now + every_s * (0.75 + self._link.jitter() / 2)


def _table_ask(topic: int, deadline: float, name: str | None) -> Ask:
    return Ask(wire.Opcode.TABLE, b"", deadline, topic=name, fields={"topic": topic})


def _ignore(layout: Layout | None, error: RingfenceError | None) -> None:
    """Who listens hears of a newer layout anyway; who needs one asks again."""
    del layout, error
