"""Watches of a client: open their sessions at a node, and again at the next one after a connection ended.

A watch of one topic uses the routing table, like a producer; its session adds pushes by name, and tells when
the topic is deleted. A watch of a prefix is a session alone. A session is a random number: after a
connection ended the watch gets another one, so frames of an old connection belong to no session.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from ringfence.common.codec import control_body
from ringfence.common.routing import Layout
from ringfence.common.watch_events import Catalogue, EventKind, EventQueue, WatchEvent
from ringfence.native import messages, wire
from ringfence.native.cluster_messages import Controller, WatchClose, WatchOpen, WatchUpdate
from ringfence.native.errors import (
    InvalidArgumentError,
    NotFoundError,
    ProtocolError,
    RetriableError,
    RingfenceError,
    UnknownOutcomeError,
)
from ringfence.network.request import Request

if TYPE_CHECKING:
    from concurrent.futures import Future

    from ringfence.cluster.table_cache import TableCache
    from ringfence.common.codec import Answer
    from ringfence.network.connection import Connection
    from ringfence.network.io_thread import IoThread

SESSION_BYTES = 16
# Watches of one client; a node takes 64 of a connection.
WATCHES_MAX = 64
# Seconds of one request. A session that cannot be opened in that time is opened again.
REQUEST_S = 10.0
# Seconds between looks at the connection: an idle client connects again only when it looks.
LOOK_S = 1.0
# Pause before a session is opened again that a node refused for now.
AGAIN_S = 0.5
# Codes of nodes that do not serve watches yet. A watch of a topic lives on the routing table alone there.
NOT_SERVED = frozenset({wire.Code.UNKNOWN_OPCODE, wire.Code.NOT_SUPPORTED})


@dataclass(eq=False)
class Watching:
    """One watch. `topic`, `name`: of the topic; 0 and None of a prefix."""

    queue: EventQueue
    topic: int = 0
    name: str | None = None
    prefix: str = ""
    session: bytes = b""
    catalogue: Catalogue = field(default_factory=Catalogue)
    layout: Layout | None = None
    controller: Controller | None = None
    on_layout: Callable[[Layout], None] | None = None


class Watches:
    """The watches of one client: a `Member` of the I/O thread. All methods run on that thread."""

    busy = False

    def __init__(self, io_thread: IoThread, tables: TableCache) -> None:
        self._io_thread, self._tables = io_thread, tables
        self._open: list[Watching] = []
        self._looks = False  # a timer for the next look is set
        io_thread.on_push.append(self.pushed)
        io_thread.on_up.append(self._came_up)

    def begin(self, watching: Watching) -> None:
        """Begin a watch. Ends its queue with an error if there are too many."""
        if len(self._open) >= WATCHES_MAX:
            watching.queue.end(
                InvalidArgumentError(
                    f"the client has {WATCHES_MAX} watches, and a node takes no more of a connection; close "
                    "one, or watch a prefix"
                )
            )
            return
        if not self._open:
            self._io_thread.members.append(self)
        self._open.append(watching)
        if not self._looks:
            self._look()
        if watching.name is not None:
            watching.on_layout = partial(self._layout, watching)
            self._tables.listen(watching.topic, watching.on_layout)
            held = self._tables.held(watching.topic)
            if held is not None:
                self._layout(watching, held)
        self._open_session(watching)

    def end(self, watching: Watching, error: RingfenceError | None = None) -> None:
        """End a watch, and its session at the node."""
        if watching not in self._open:
            return
        self._open.remove(watching)
        if watching.on_layout is not None:
            self._tables.forget(watching.topic, watching.on_layout)
        if not self._open and self in self._io_thread.members:
            self._io_thread.members.remove(self)
        watching.queue.end(error)
        session, watching.session = watching.session, b""
        if session and self._io_thread.first.up is not None:
            body = control_body(WatchClose(session=session))
            self._io_thread.enqueue(Request(wire.Opcode.WATCH_CLOSE, body, time.monotonic() + REQUEST_S))

    # ---- sessions -------------------------------------------------------------------------------------

    def _open_session(self, watching: Watching) -> None:
        """Open a session, if there is a connection; else `_came_up` does it."""
        watching.session = b""
        if self._io_thread.first.up is None:
            return
        watching.session = session = os.urandom(SESSION_BYTES)
        watching.catalogue.reopened()
        if watching.name is not None:
            held = self._tables.generation(watching.topic)
            message = WatchOpen(session=session, topic=watching.name, held=held)
        else:
            message = WatchOpen(session=session, prefix=watching.prefix, held=watching.catalogue.generation)
        deadline = time.monotonic() + REQUEST_S
        request = Request(
            wire.Opcode.WATCH_OPEN, control_body(message), deadline, topic=watching.name, held=message.held
        )
        request.once = True  # another connection needs another session
        request.future.add_done_callback(lambda future: self._opened(watching, session, future))
        self._io_thread.enqueue(request)

    def _opened(self, watching: Watching, session: bytes, future: Future[Answer]) -> None:
        if watching not in self._open or watching.session != session:
            return  # closed, or opened again
        try:
            future.result()
        except (RetriableError, UnknownOutcomeError):
            self._io_thread.at(self._io_thread.now + AGAIN_S, lambda: self._open_again(watching, session))
        except NotFoundError:
            self._deleted(watching, self._tables.generation(watching.topic))
        except RingfenceError as error:
            if error.code not in NOT_SERVED or watching.name is None:
                self.end(watching, error)

    def _open_again(self, watching: Watching, session: bytes) -> None:
        if watching in self._open and watching.session == session:
            self._open_session(watching)

    def _came_up(self, connection: Connection) -> None:
        if self._io_thread.first.up is connection:
            for watching in list(self._open):
                self._open_session(watching)

    def _look(self) -> None:
        """Wake the I/O thread regularly, so that it connects again without other requests."""
        self._looks = bool(self._open)
        if self._looks:
            self._io_thread.at(self._io_thread.now + LOOK_S, self._look)

    # ---- updates --------------------------------------------------------------------------------------

    def pushed(self, connection: Connection, answer: Answer) -> None:
        """Handle WATCH_UPDATE."""
        header = answer.header
        if header.opcode != wire.Opcode.WATCH_UPDATE:
            return
        update = answer.control(WatchUpdate)
        watching = next((one for one in self._open if one.session == update.session), None)
        if watching is None:
            return
        watching.controller = update.controller
        if watching.name is None:
            self._catalogue(watching, update, header.generation)
            connection.send(wire.Opcode.TABLE_ACK, b"", None, topic=0, sequence=header.generation)
            return
        if isinstance(update.table, messages.Table):
            self._tables.offered(update.table, header, connection)
        else:
            self._tables.acknowledge(header.topic, connection)
        is_other = header.topic != watching.topic  # it was deleted and made again while the client was away
        if is_other or update.deleted is True:
            self._deleted(watching, header.generation)

    def _catalogue(self, watching: Watching, update: WatchUpdate, generation: int) -> None:
        topics = update.topics if isinstance(update.topics, list) else []
        gone = update.gone if isinstance(update.gone, list) else []
        watching.queue.put(
            watching.catalogue.take(
                generation, topics, gone, whole=update.whole is True, more=update.more is True
            )
        )

    def _layout(self, watching: Watching, layout: Layout) -> None:
        """Tell a layout. Other loads alone are no event."""
        known = watching.layout
        if known is not None and known.generation >= layout.generation:
            return
        watching.layout = layout
        event = WatchEvent(EventKind.LAYOUT, layout.name, layout.topic, layout.generation, layout)
        watching.queue.put([event])

    def _deleted(self, watching: Watching, generation: int) -> None:
        name = watching.name or ""
        if watching.layout is not None:
            name = watching.layout.name
        watching.queue.put([WatchEvent(EventKind.DELETED, name, watching.topic, generation)])
        self.end(watching)

    # ---- Member ---------------------------------------------------------------------------------------

    def pump(self, now: float) -> None:
        """Nothing is sent in turns."""

    def tick(self, now: float) -> None:
        """There are no deadlines."""

    def abandon(self, error: RingfenceError) -> None:
        """The client was closed."""
        for watching in self._open:
            watching.queue.end(error)
        self._open.clear()

    def failed(self, error: Exception) -> None:
        """A defect: end all watches."""
        self.abandon(ProtocolError(f"the watch ended because of a defect: {type(error).__name__}: {error}"))

    def history_changed(self) -> None:
        """Topic ids of the old history mean nothing: watches of topics end, catalogues are listed again."""
        error = RetriableError("the cluster was restored from a backup: watch the topic again")
        error.retriable = False
        for watching in [one for one in self._open if one.name is not None]:
            self.end(watching, error)
        for watching in self._open:
            watching.catalogue.generation = 0
