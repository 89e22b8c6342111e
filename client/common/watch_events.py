"""Events of a watch: what they are, how a catalogue leads to them, and the bounded queue. No sockets.

A node tells states, and a client that was away gets the newest one. So events are differences of states: what
came and went while the client was away is no event.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ringfence.common.routing import Layout
    from ringfence.native.errors import RingfenceError

# Events that wait for the application. One takes 200 bytes, or a table.
EVENTS_MAX = 4096


class EventKind(Enum):
    """What happened to a topic."""

    LAYOUT = "layout"
    PRESENT = "present"
    CREATED = "created"
    DELETED = "deleted"


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """One event.

    Attributes:
        kind: LAYOUT: the topic has this layout now. PRESENT: the topic existed when the watch began. CREATED,
            DELETED: it was made or deleted since.
        topic: full name of the topic.
        topic_id: tells a topic from a later one of the same name.
        generation: index of the cluster's log that the event was seen at.
        layout: the partitions with their owners and lineage; of LAYOUT only.
        missed: events before this one that were dropped because they were not taken in time.
    """

    kind: EventKind
    topic: str
    topic_id: int
    generation: int
    layout: Layout | None = None
    missed: int = 0


class Catalogue:
    """The topics whose names begin with a prefix, as one watch knows them."""

    def __init__(self) -> None:
        self.names: dict[int, str] = {}  # by topic id; replaced, never changed: other threads look at it
        self.generation = 0
        self._pages: dict[int, str] | None = None  # of a whole list that has not arrived completely
        self._has_begun = False

    def take(
        self,
        generation: int,
        topics: Iterable[tuple[int, str]],
        gone: Iterable[int],
        *,
        whole: bool,
        more: bool,
    ) -> list[WatchEvent]:
        """Apply an update of a node; return the events.

        Args:
            generation: of the frame. What an older state than the held one says is ignored: a node that is
                behind sends everything that follows it as well.
            topics: (id, name) of topics that exist.
            gone: ids of topics that do not; they are applied first.
            whole: a whole list begins.
            more: further pages of the list follow.
        """
        if generation < self.generation:
            return []
        if whole:
            self._pages = {}
        if self._pages is not None:
            self._pages.update(topics)
            if more:
                return []
            names, self._pages = self._pages, None
        else:
            names = {one: name for one, name in self.names.items() if one not in set(gone)} | dict(topics)
        before, self.names, self.generation = self.names, names, generation
        kind = EventKind.CREATED if self._has_begun else EventKind.PRESENT
        self._has_begun = True
        lost = [one for one in before.items() if one not in names.items()]
        new = [one for one in names.items() if one not in before.items()]
        events = [WatchEvent(EventKind.DELETED, name, topic, generation) for topic, name in lost]
        return events + [WatchEvent(kind, name, topic, generation) for topic, name in new]

    def reopened(self) -> None:
        """The next update comes in another session: pages of a list that had begun do not follow any more."""
        self._pages = None


class EventQueue:
    """Events from the I/O thread to the application; the oldest are dropped when it takes none."""

    def __init__(self, events_max: int = EVENTS_MAX) -> None:
        self.on_event: Callable[[], None] = lambda: None
        """Called, on any thread, when there is something to take."""
        self._events: deque[WatchEvent] = deque()
        self._events_max, self._missed = events_max, 0
        self._is_ended = False
        self._error: RingfenceError | None = None
        self._changed = threading.Condition()

    def put(self, events: Iterable[WatchEvent]) -> None:
        """Add events; of a topic's layouts that were not taken only the newest counts."""
        with self._changed:
            if self._is_ended:
                return
            for event in events:
                if len(self._events) >= self._events_max:
                    self._missed += 1 + self._events.popleft().missed
                self._events.append(event)
            self._changed.notify_all()
        self.on_event()

    def end(self, error: RingfenceError | None = None) -> None:
        """No event follows. Those that wait can be taken, then `take` raises the error, if there is one."""
        with self._changed:
            if not self._is_ended:
                self._is_ended, self._error = True, error
            self._changed.notify_all()
        self.on_event()

    def take(self, timeout_s: float | None = 0.0) -> WatchEvent | None:
        """The next event; None: none came in time, or none follows (`is_ended`).

        Raises:
            RingfenceError: the watch ended with an error.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._events or self._is_ended, timeout_s)
            if self._events:
                event, missed = self._events.popleft(), self._missed
                self._missed = 0
                return replace(event, missed=event.missed + missed) if missed else event
            if self._error is not None:
                raise self._error
            return None

    @property
    def is_ended(self) -> bool:
        """Whether no event follows."""
        return self._is_ended and not self._events
