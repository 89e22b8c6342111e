"""What one attempt has under way, and which partitions of its topics without key would keep a batch waiting.

The link's thread looks after the latter as long as rows may still come: what is staged at a partition whose
owner is down keeps the whole attempt from being committed.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from typing import TYPE_CHECKING

from ringfence.arrow.partition_choice import Reach
from ringfence.common.locks import holds
from ringfence.native.errors import ClosedError, RingfenceError
from ringfence.send.partition_queue import UNANSWERED_S
from ringfence.send.wait_reasons import looked_up, why

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ringfence.cluster.table_cache import Tables
    from ringfence.common.routing import Layout
    from ringfence.network.io_thread import Link
    from ringfence.network.request import Ask
    from ringfence.send.wait_reasons import Held, Wait

Place = tuple[int, int]  # topic id, partition
Staged = tuple[int, int, int]  # and the sequence there

logger = logging.getLogger("ringfence")


class UnderWay:
    """A `Member` of the link while it has a topic without key; it sends nothing by itself."""

    def __init__(self, link: Link, tables: Tables) -> None:
        self._link, self._tables = link, tables
        self.changed = threading.Condition(threading.Lock())
        self.layouts: dict[int, Layout] = {}  # the newest ones, by topic
        self.asks: dict[Staged, Ask] = {}  # the last try of what has no outcome yet
        self.refusals: dict[Place, RingfenceError] = {}  # of who is asked anew
        self._took_at: dict[Place, float] = {}  # when a partition took something last
        self._reaches: dict[int, Reach] = {}
        self._watched: list[tuple[int, Reach]] = []  # the link's thread's own

    def watch(self, layout: Layout) -> Reach | None:
        """What a topic without key leaves out, from now on; None: its keys choose."""
        self.layouts.setdefault(layout.topic, layout)
        if layout.key or len(layout.active) == 1:
            return None
        reach = self._reaches.get(layout.topic)
        if reach is None:
            reach = self._reaches[layout.topic] = Reach()
            self._link.call(lambda: self._begin(layout.topic, reach))
            if not self._link.inside:
                reach.wait()
        return reach

    def end(self) -> None:
        """No more rows will come."""
        if self._reaches:
            with contextlib.suppress(ClosedError):
                self._link.call(self._forget)

    def waits(self) -> Held:
        """What all that is under way waits for, and its first topic."""
        said = self._said()
        first = said[0][0][0] if said else min(self.layouts)

        def look() -> list[Wait]:
            return [
                why(self._link, self.layouts[topic], partition, said=error, awaits=True)
                for (topic, partition), error in said
            ]

        return self.layouts[first].name, looked_up(self._link, look)

    @holds
    def _said(self) -> list[tuple[Place, RingfenceError | None]]:
        with self.changed:
            asks = dict(self.asks)
        found = {place[:2]: ask.last_error or self.refusals.get(place[:2]) for place, ask in asks.items()}
        return sorted(found.items(), key=lambda one: one[0])

    # ---- on the link's thread ---------------------------------------------------------------------------

    def took(self, place: Place) -> None:
        """A partition has taken a batch."""
        self.refusals.pop(place, None)
        self._took_at[place] = self._link.now

    def _begin(self, topic: int, reach: Reach) -> None:
        reach.begin(self._link.now)
        if not self._watched:
            self._link.members.append(self)
        self._watched.append((topic, reach))
        self._tables.listen(topic, self._on_table)

    def _forget(self) -> None:
        if self._watched:
            self._link.members.remove(self)
        for topic, _ in self._watched:
            self._tables.forget(topic, self._on_table)
        self._watched = []

    def _on_table(self, layout: Layout) -> None:
        self.layouts[layout.topic] = layout

    @property
    def busy(self) -> bool:
        return bool(self.asks) or any(reach.looking for _, reach in self._watched)

    def tick(self, now: float) -> None:
        for topic, reach in self._watched:
            reach.look(self._link, self.layouts[topic], _Lanes(self, topic), now)

    def pump(self, now: float) -> None:
        """Asks go by themselves."""

    def abandon(self, error: RingfenceError) -> None:
        """Asks end by themselves."""

    def failed(self, error: Exception) -> None:
        """Partitions are chosen without a look at who answers, from here on."""
        logger.error("what is known of slow partitions is given up, by a defect", exc_info=error)
        self._forget()

    def history_changed(self) -> None:
        """Nodes refuse what is staged by ids of the former history."""

    def held(self, topic: int, now: float) -> Iterator[int]:
        """Partitions of a topic that refuse, or leave without an answer, what they were sent."""
        with self.changed:
            asks = list(self.asks.items())
        for (one, partition, _), ask in asks:
            place = one, partition
            since = max(ask.begun_s, self._took_at.get(place, 0.0))
            refused = ask.last_error is not None or place in self.refusals
            if one == topic and (refused or now - since >= UNANSWERED_S):
                yield partition


class _Lanes:
    """One topic's part of it, as `Reach` looks at it."""

    def __init__(self, under_way: UnderWay, topic: int) -> None:
        self._under_way, self._topic = under_way, topic

    @property
    def lanes(self) -> int:
        return len(self._under_way.asks)

    def held(self, now: float) -> Iterator[int]:
        return self._under_way.held(self._topic, now)
