"""`client.watch(...)`: what happens to topics and to their partitions, as an iterator.

    with client.watch("orders") as watch:              # layouts of one topic: splits, merges, new owners
        for event in watch:
            print(event.kind, event.layout.version)

    with client.watch(prefix="acme/") as watch:        # topics that are made and deleted
        event = watch.next(timeout_s=5)                # None: nothing happened

A watch tells states: of what changed while the connection was away, only the result.
"""

from __future__ import annotations

import contextlib
import weakref
from functools import partial
from typing import TYPE_CHECKING, Self

from ringfence.cluster.watches import Watching
from ringfence.common.arguments import seconds
from ringfence.common.fork import guard
from ringfence.common.process_local import ProcessLocal
from ringfence.common.watch_events import EventQueue
from ringfence.native.errors import ClosedError

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from ringfence.cluster.watches import Watches
    from ringfence.common.routing import Layout
    from ringfence.common.watch_events import WatchEvent
    from ringfence.network.io_thread import IoThread


class Watch(ProcessLocal):
    """Iterates events; created by `Client.watch`. For one thread at a time; `close` may come from any.

    The events before the first wait: of a topic its layout, of a prefix one event for each topic that exists.
    If 4,096 events wait, the oldest are dropped; `missed` of the next one counts them. `layout` and `topics`
    always have the newest state.
    """

    def __init__(
        self,
        io_thread: IoThread,
        watches: Watches,
        layout: Layout | None,
        prefix: str,
        timeout_s: float | None,
        client: object = None,
    ) -> None:
        """`layout`: of the topic to watch; None: `prefix` is watched.

        `client`: the owner of the connections; kept alive by this reference.
        """
        self._client, self._io_thread, self._timeout_s = client, io_thread, timeout_s
        self._queue = EventQueue()
        self._watching = watching = Watching(self._queue, prefix=prefix)
        if layout is not None:
            watching.topic, watching.name = layout.topic, layout.name
        self._end = partial(watches.end, watching)
        self._owner = guard("watch")
        io_thread.call(lambda: watches.begin(watching))
        # A watch without references ends: nobody can take its events.
        weakref.finalize(self, _end_later, io_thread, self._end).atexit = False

    def __repr__(self) -> str:
        watching = self._watching
        what = f"topics {watching.prefix}*" if watching.name is None else watching.name
        return f"<ringfence.Watch of {what}{', ended' if self._queue.is_ended else ''}>"

    @property
    def topics(self) -> dict[str, int]:
        """Of a prefix: the topics that exist, name to id, as of the last update of a node."""
        return {name: topic for topic, name in self._watching.catalogue.names.items()}

    @property
    def layout(self) -> Layout | None:
        """Of a topic: its newest layout."""
        return self._watching.layout

    @property
    def controller(self) -> int:
        """The node that leads the cluster, as far as the client's node knows; 0: none."""
        controller = self._watching.controller
        return 0 if controller is None else controller.node

    @property
    def is_ended(self) -> bool:
        """Whether no event follows: the topic was deleted, or the watch was closed."""
        return self._queue.is_ended

    def next(self, timeout_s: float | None = None) -> WatchEvent | None:
        """The next event; waits for it. None: none came in time, or none follows (`is_ended`).

        Args:
            timeout_s: seconds; None waits without end.

        Raises:
            ClosedError: the client was closed. RefusedError: the node does not serve this watch.
        """
        self._owner.check()
        self._io_thread.check_outside("next")
        return self._queue.take(None if timeout_s is None else seconds("timeout_s", timeout_s))

    def try_next(self) -> WatchEvent | None:
        """Like `next`, without waiting."""
        self._owner.check()
        return self._queue.take()

    def on_event(self, function: Callable[[], None]) -> None:
        """Call a function, on any thread, whenever there is something to take or the watch ended."""
        self._queue.on_event = function
        function()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> WatchEvent:
        """The next event. Ends after the last one, and when nothing happened for `timeout_s`."""
        event = self.next(self._timeout_s)
        if event is None:
            raise StopIteration
        return event

    def close(self) -> None:
        """End the watch; from any thread. Events that wait can still be taken."""
        if self._owner.mine:
            self._queue.end()
            _end_later(self._io_thread, self._end)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _end_later(io_thread: IoThread, end: Callable[[], None]) -> None:
    """End a watch on the I/O thread. A client that is closed, or of the parent process, has none."""
    with contextlib.suppress(ClosedError):
        io_thread.call(end)
