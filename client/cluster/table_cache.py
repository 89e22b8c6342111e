"""Cache the routing tables of the topics in use: receive pushes, refresh, adopt, acknowledge.

Pushes are only an optimization: a redirect and a new connection fetch tables, and a refresh with jitter
replaces lost pushes. After every table that it looked at, the client acknowledges the generation that it
holds, once all users of the topic route by that table (I10). `adoption.py` says which table is used, and
`table_fetches.py` asks for them.
"""

from __future__ import annotations

import contextlib
import logging
import time
import weakref
from collections import Counter
from concurrent.futures import Future, wait
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from ringfence.cluster.table_fetches import Fetched, TableFetches, table_request
from ringfence.common.adoption import Held, Offer, Verdict, adopted, judge
from ringfence.common.codec import control_body
from ringfence.common.routing import Layout, layout_of
from ringfence.native import messages, wire
from ringfence.native.errors import ClosedError, ProtocolError, RetriableError, RingfenceError
from ringfence.network.failover import move_requests, topics_waited_for
from ringfence.network.request import Request

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringfence.common.codec import Answer
    from ringfence.network.connection import Connection
    from ringfence.network.io_thread import IoThread

    Listener = Callable[[Layout], None]

# Seconds between two fetches of topics without a key: loads are not pushed, and nodes measure every 2 s.
LOADS_S = 10.0
# Seconds between two fetches of other topics, times 0.75 .. 1.25: short enough to hide a lost push.
REFRESH_S = 60.0
# Age from which loads are not used any more: three fetches in a row brought none.
LOADS_S_MAX = 3.5 * LOADS_S
# Seconds until a table is fetched because of a doubtful one, times 0.5 .. 1: nodes may send many of them.
DOUBT_S = 1.0
logger = logging.getLogger("ringfence")


class TableCache:
    """The newest layouts. All methods run on the I/O thread, unless they say otherwise."""

    def __init__(self, io_thread: IoThread) -> None:
        self._io_thread = io_thread
        # By topic id; a layout is replaced only by a newer one.
        self._held: dict[int, Held] = {}
        # By topic id; a topic with listeners is refreshed.
        self._listeners: dict[int, list[Listener]] = {}
        self._loads_s: dict[int, float] = {}  # by topic id: when its loads arrived
        self._asked = Counter[int]()  # by topic id: fetches of `get_by_id` that are under way
        self._doubted: set[int] = set()  # topics that are fetched soon because of a doubtful table
        self._fetches = TableFetches(io_thread, self)
        io_thread.on_push.append(self.pushed)
        io_thread.on_up.append(lambda _: self._refresh_all())
        io_thread.on_silent = self._refresh_all  # the silent node's partitions get other owners
        io_thread.known = self._addresses
        io_thread.on_history.append(self._forget_history)

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
        if version:
            return self._at_least(topic, deadline, name, version)
        # A push may arrive right after the answer, before this thread has read it.
        self._io_thread.call(partial(self._asked.update, (topic,)))
        try:
            answer = self._io_thread.request(table_request(topic, deadline, name, version)).result()
            layout = layout_of(answer.control(messages.Table))
            self._io_thread.call(lambda: self.store(layout, answer.header.generation))
        finally:
            with contextlib.suppress(ClosedError):
                self._io_thread.call(partial(self._answered, topic))
        return layout

    def _answered(self, topic: int) -> None:
        self._asked[topic] -= 1
        if not self._asked[topic]:
            del self._asked[topic]

    def _at_least(self, topic: int, deadline: float, name: str | None, version: int) -> Layout:
        """Ask several nodes in turn: one that is behind would keep the caller until its deadline."""
        self._io_thread.check_outside("a request")
        while True:
            future: Future[Layout] = Future()
            self._io_thread.call(partial(self.fetch, topic, partial(_settle, future), version))
            wait([future], max(0.0, deadline - time.monotonic()))
            if not future.done():
                raise RetriableError(
                    f"no node answered in time with version {version} of the layout", topic=name
                )
            error = future.exception()
            if not isinstance(error, RetriableError) or time.monotonic() >= deadline:
                return future.result()

    def held(self, topic: int) -> Layout | None:
        """The layout that the client uses; None: it has none. From any thread."""
        held = self._held.get(topic)
        return None if held is None else held.layout

    def newer(self, layout: Layout) -> Layout | None:
        """The layout that the client uses, if it is newer than this one. From any thread."""
        held = self.held(layout.topic)
        is_newer = held is not None and (
            held.history == layout.history and held.generation > layout.generation
        )
        return held if is_newer else None

    def generation(self, topic: int) -> int:
        """The generation up to which the held layout is known to be unchanged; 0: none is held."""
        held = self._held.get(topic)
        return 0 if held is None else held.generation

    # ---- on the I/O thread ------------------------------------------------------------------------------

    def listen(self, topic: int, listener: Listener) -> None:
        """Call the listener for every newer layout, until `forget`."""
        if topic not in self._listeners:
            self._io_thread.at(self._next_refresh(topic), lambda: self._refresh(topic))
        self._listeners.setdefault(topic, []).append(listener)

    def follow(self, layout: Layout, wake: Callable[[], object]) -> Callable[[], object]:
        """Refresh a topic for a user in another thread, and wake it for newer layouts. From any thread.

        Args:
            layout: of the topic.
            wake: a method of the user; it is called on the I/O thread.

        Returns:
            What ends it; the end of the user does so, too.
        """
        method = weakref.WeakMethod(wake)

        def on_table(newer: Layout) -> None:
            del newer
            if (alive := method()) is not None:
                alive()

        self._io_thread.call(lambda: self.listen(layout.topic, on_table))
        user = wake.__self__  # type: ignore[attr-defined]
        end = weakref.finalize(user, self._forget_later, layout.topic, on_table)
        end.atexit = False
        return end

    def _forget_later(self, topic: int, listener: Listener) -> None:
        with contextlib.suppress(ClosedError):  # the client is closed, or of the parent process
            self._io_thread.call(lambda: self.forget(topic, listener))

    def forget(self, topic: int, listener: Listener) -> None:
        """Undo `listen`."""
        listeners = self._listeners.get(topic, [])
        if listener in listeners:
            listeners.remove(listener)
        if not listeners:
            self._listeners.pop(topic, None)

    def store(self, offered: Layout, generation: int = 0, by: Connection | None = None) -> Layout | None:
        """Use a table if it is newer, acknowledge what is held then, and return it.

        Args:
            offered: the table.
            generation: of the header of its frame.
            by: the connection that pushed it; None: it was fetched.

        Returns:
            The held layout; None: the table is doubtful.
        """
        topic, offer = offered.topic, Offer(offered, generation)
        held = self._held.get(topic)
        verdict = judge(held, offer)
        now_held = adopted(held, offer, verdict)
        if verdict is Verdict.DOUBT and by is not None:
            self._doubt(topic)
        if now_held is None:
            return None
        self._held[topic] = now_held
        if verdict is not Verdict.DOUBT and offered.loads == now_held.layout.loads:
            self._loads_s[topic] = self._io_thread.now
        if verdict is Verdict.APPLY:
            self._use(now_held.layout, None if held is None else held.layout)
        is_for_all = by is None or verdict is Verdict.APPLY
        self._acknowledge(now_held, None if is_for_all else by)
        return None if verdict is Verdict.DOUBT else now_held.layout

    def unchanged(self, topic: int, generation: int) -> Layout | None:
        """A node has nothing newer than what is held; None: nothing is held any more."""
        held = self._held.get(topic)
        if held is None:
            return None
        self._held[topic] = held = held.raised(generation)
        self._acknowledge(held)
        return held.layout

    def _use(self, layout: Layout, before: Layout | None) -> None:
        """Let all users of the topic route by a newer table."""
        if before is None or layout.generation > before.generation:
            move_requests(self._io_thread, layout)
        for listener in list(self._listeners.get(layout.topic, [])):
            try:
                listener(layout)
            except Exception:
                logger.exception("a user of topic %s failed on a new routing table", layout.name)
        self._io_thread.keep_peers(self._nodes())

    def _acknowledge(self, held: Held, by: Connection | None = None) -> None:
        """Say which generation is held: to one connection, or to all.

        Also for a table that was held before, and for one that was not used: a node gives the next table of a
        topic once the one before is acknowledged. A node counts only tables that it has given itself.
        """
        topic, generation = held.layout.topic, held.generation
        for connection in self._io_thread.connections() if by is None else (by,):
            connection.send(wire.Opcode.TABLE_ACK, b"", None, topic=topic, sequence=generation)

    def _doubt(self, topic: int) -> None:
        """Fetch the table soon, from another node."""
        if topic in self._doubted:
            return
        self._doubted.add(topic)

        def fetch() -> None:
            self._doubted.discard(topic)
            self._fetches.begin(topic, _ignore, from_other=True)

        self._io_thread.at(self._io_thread.now + DOUBT_S * (0.5 + self._io_thread.jitter() / 2), fetch)

    def fetch(self, topic: int, done: Fetched, version: int = 0) -> None:
        """Fetch a table; `done` gets the newest layout, or the error.

        One fetch of a topic is under way at a time; others get its result. `version`: the least version of
        the layout that helps; a node that is behind answers once it has it. The caller looks at the version.
        """
        self._fetches.begin(topic, done, version)

    def pushed(self, connection: Connection, answer: Answer) -> None:
        """Handle TABLE_PUSH. Pushes of other kinds are for others."""
        header = answer.header
        if header.opcode != wire.Opcode.TABLE_PUSH or not self._is_known(header.topic):
            return
        try:
            table = answer.control(messages.Table)
        except ProtocolError as error:  # also the difference from a table, which this client does not ask for
            logger.warning("a pushed routing table cannot be used: %s", error)
            self._doubt(header.topic)
            return
        self.offered(table, header, connection)

    def offered(self, table: messages.Table, header: wire.AnswerHeader, connection: Connection) -> None:
        """Look at a table that a node sent unasked."""
        try:
            layout = layout_of(table)
        except ProtocolError as error:
            logger.warning("a pushed routing table cannot be used: %s", error)
            self._doubt(header.topic)
            return
        if layout.topic != header.topic:
            self._doubt(header.topic)
            return
        self.store(layout, header.generation, connection)

    def acknowledge(self, topic: int, connection: Connection) -> None:
        """Say on a connection which generation is held, if any."""
        held = self._held.get(topic)
        if held is not None:
            self._acknowledge(held, connection)

    def _is_known(self, topic: int) -> bool:
        return topic in self._listeners or topic in self._held or topic in self._asked

    def topic_gone(self, topic: int) -> None:
        """A node says that the topic does not exist any more."""
        self._held.pop(topic, None)
        self._loads_s.pop(topic, None)

    def _forget_history(self) -> None:
        self._held.clear()
        self._loads_s.clear()

    def _nodes(self) -> set[int]:
        """Nodes in the tables of topics in use. An old table of another topic keeps no connection open."""
        used = [held.layout for topic, held in self._held.items() if topic in self._listeners]
        return {node for layout in used for node in layout.addresses}

    def _addresses(self) -> list[str]:
        """Addresses of all nodes in the tables."""
        tables = [held.layout.addresses for held in self._held.values()]
        return [one for addresses in tables for own in addresses.values() for one in own]

    # ---- refresh ----------------------------------------------------------------------------------------

    def _refresh_all(self) -> None:
        """Fetch all tables: a node pushes a table only after the connection has requested it."""
        for topic in {*self._listeners, *topics_waited_for(self._io_thread)}:
            self._fetches.begin(topic, _ignore, held=self._held_generation(topic))

    def _refresh(self, topic: int) -> None:
        """Ask the nodes in turn whether there is news: any one of them may have missed a change."""
        if topic not in self._listeners:
            return
        self._drop_old_loads(topic)
        self._fetches.begin(topic, _ignore, held=self._held_generation(topic), from_other=True)
        self._io_thread.at(self._next_refresh(topic), lambda: self._refresh(topic))

    def _held_generation(self, topic: int) -> int:
        """The generation that a refresh names; 0: the whole table is wanted, since it has loads."""
        held = self._held.get(topic)
        return 0 if held is None or not held.layout.key else held.generation

    def _drop_old_loads(self, topic: int) -> None:
        """Sends without a key go round evenly while nobody tells the loads."""
        held = self._held.get(topic)
        if held is None or not held.layout.loads:
            return
        if self._io_thread.now - self._loads_s.get(topic, 0.0) > LOADS_S_MAX:
            self._held[topic] = plain = replace(held, layout=replace(held.layout, loads={}))
            self._use(plain.layout, held.layout)

    def _next_refresh(self, topic: int) -> float:
        held = self._held.get(topic)
        every_s = LOADS_S if held is not None and not held.layout.key else REFRESH_S
        return self._io_thread.now + every_s * (0.75 + self._io_thread.jitter() / 2)


def _settle(future: Future[Layout], layout: Layout | None, error: RingfenceError | None) -> None:
    if layout is None:
        future.set_exception(error)
    else:
        future.set_result(layout)


def _ignore(layout: Layout | None, error: RingfenceError | None) -> None:
    """Ignore the result: `store` calls the listeners, and callers that need a table fetch again."""
    del layout, error
