"""Pending staging requests of one attempt, and the unavailable partitions of its topics without a key.

The I/O thread updates the unavailable partitions while rows may still arrive: a batch at a partition whose
owner is down would keep the whole attempt from being committed.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from typing import TYPE_CHECKING

from ringfence.arrow.partition_choice import PartitionChoice
from ringfence.common.locks import holds
from ringfence.native.errors import ClosedError, RingfenceError
from ringfence.send.partition_queue import UNANSWERED_S
from ringfence.send.wait_reasons import looked_up, wait_reason

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ringfence.cluster.table_cache import TableCache
    from ringfence.common.routing import Layout
    from ringfence.network.io_thread import IoThread
    from ringfence.network.request import Request
    from ringfence.send.wait_reasons import PendingSends, WaitReason

Place = tuple[int, int]  # topic id, partition
Staged = tuple[int, int, int]  # topic id, partition, sequence

logger = logging.getLogger("ringfence")


class StagingRequests:
    """A `Member` of the I/O thread while it has a topic without a key; it sends nothing by itself."""

    def __init__(self, io_thread: IoThread, tables: TableCache) -> None:
        self._io_thread, self._tables = io_thread, tables
        self.changed = threading.Condition(threading.Lock())
        self.layouts: dict[int, Layout] = {}  # the newest layouts, by topic id
        self.requests: dict[Staged, Request] = {}  # the current try of each pending batch
        self.refusals: dict[Place, RingfenceError] = {}  # of batches that wait for a retry
        self._took_at: dict[Place, float] = {}  # time at which a partition last stored a batch
        self._choices: dict[int, PartitionChoice] = {}
        self._watched: list[tuple[int, PartitionChoice]] = []  # used by the I/O thread only

    def watch(self, layout: Layout) -> PartitionChoice | None:
        """Track the unavailable partitions of a topic; None if its key or its only partition decides."""
        self.layouts.setdefault(layout.topic, layout)
        if layout.key or len(layout.active) == 1:
            return None
        choice = self._choices.get(layout.topic)
        if choice is None:
            choice = self._choices[layout.topic] = PartitionChoice()
            self._io_thread.call(lambda: self._begin(layout.topic, choice))
            if not self._io_thread.inside:
                choice.wait()
        return choice

    def end(self) -> None:
        """No further rows follow."""
        if self._choices:
            with contextlib.suppress(ClosedError):
                self._io_thread.call(self._forget)

    def waits(self) -> PendingSends:
        """The reasons why batches are pending, and the first topic of them."""
        refusals = self._last_refusals()
        first = refusals[0][0][0] if refusals else min(self.layouts)

        def look() -> list[WaitReason]:
            return [
                wait_reason(self._io_thread, self.layouts[topic], partition, last_refusal=error, awaits=True)
                for (topic, partition), error in refusals
            ]

        return self.layouts[first].name, looked_up(self._io_thread, look)

    @holds
    def _last_refusals(self) -> list[tuple[Place, RingfenceError | None]]:
        with self.changed:
            requests = dict(self.requests)
        found = {
            place[:2]: request.last_error or self.refusals.get(place[:2])
            for place, request in requests.items()
        }
        return sorted(found.items(), key=lambda one: one[0])

    # ---- on the I/O thread ------------------------------------------------------------------------------

    def took(self, place: Place) -> None:
        """A partition has stored a batch."""
        self.refusals.pop(place, None)
        self._took_at[place] = self._io_thread.now

    def _begin(self, topic: int, choice: PartitionChoice) -> None:
        choice.begin(self._io_thread.now)
        if not self._watched:
            self._io_thread.members.append(self)
        self._watched.append((topic, choice))
        self._tables.listen(topic, self._on_table)

    def _forget(self) -> None:
        if self._watched:
            self._io_thread.members.remove(self)
        for topic, _ in self._watched:
            self._tables.forget(topic, self._on_table)
        self._watched = []

    def _on_table(self, layout: Layout) -> None:
        self.layouts[layout.topic] = layout

    @property
    def busy(self) -> bool:
        return bool(self.requests) or any(choice.looking for _, choice in self._watched)

    def tick(self, now: float) -> None:
        for topic, choice in self._watched:
            choice.look(self._io_thread, self.layouts[topic], _TopicPartitions(self, topic), now)

    def pump(self, now: float) -> None:
        """Does nothing: requests are sent without it."""

    def abandon(self, error: RingfenceError) -> None:
        """Does nothing: the I/O thread ends all requests."""

    def failed(self, error: Exception) -> None:
        """Choose partitions without regard to their owners from now on."""
        logger.error("unavailable partitions are not tracked any more because of a defect", exc_info=error)
        self._forget()

    def history_changed(self) -> None:
        """Does nothing: nodes refuse ids of the former history."""

    def held(self, topic: int, now: float) -> Iterator[int]:
        """Partitions of a topic that refuse batches or do not answer in time."""
        with self.changed:
            requests = list(self.requests.items())
        for (one, partition, _), request in requests:
            place = one, partition
            since = max(request.begun_s, self._took_at.get(place, 0.0))
            refused = request.last_error is not None or place in self.refusals
            if one == topic and (refused or now - since >= UNANSWERED_S):
                yield partition


class _TopicPartitions:
    """The pending batches of one topic, for `PartitionChoice`."""

    def __init__(self, staging: StagingRequests, topic: int) -> None:
        self._staging, self._topic = staging, topic

    @property
    def partitions(self) -> int:
        return len(self._staging.requests)

    def held(self, now: float) -> Iterator[int]:
        return self._staging.held(self._topic, now)
