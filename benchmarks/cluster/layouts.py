"""Layout changes of a topic that is written to: asked for, waited for, and the leader's view of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import ringfence
from benchmarks.cluster.nodes import until
from benchmarks.cluster.rebalances import rebalanced
from ringfence.control.cli.rebalance_api import ask_values
from ringfence.control.runtime.rpc.layout_messages import ShowTransitions
from ringfence.layout_admin import LayoutChange
from ringfence.native.errors import ConflictError

ASK_S = 10.0
CHANGE_S = 60.0
TRIES_MAX = 5
"""Of one change: a machine that is too busy ends it after its time on hold, and nothing has changed."""
REPLICATION = 3
KEY = ("id",)


class LeaderView(NamedTuple):
    """What the leader measured: milliseconds without a partition for the rows, and of each phase."""

    gap_ms: float | None
    phases_ms: dict[str, int]


class ChangedTopic:
    """One topic of a cluster, whose layout is changed, or whose only partition is handed over.

    `aborted` counts changes that ended without effect, and were asked for again.
    """

    def __init__(self, client: ringfence.Client, topic: str, control: str, nodes: list[int]) -> None:
        self._client, self._topic, self._control, self._nodes = client, topic, control, nodes
        self._version = 0
        self.aborted = 0

    def partitions(self) -> list[int]:
        return [part.partition for part in self._newest().active]

    def _newest(self) -> ringfence.Layout:
        """As of the last change at least: the client's table may be an older one for some ms."""
        until(lambda: self._client.layout(self._topic).version >= self._version)
        return self._client.layout(self._topic)

    def hand_over(self) -> LeaderView:
        """Make the next node the owner of the only partition; all nodes have its rows."""
        [part] = self._newest().active
        place = (self._nodes.index(part.owner) + 1) % len(self._nodes)
        target = (*self._nodes[place:], *self._nodes[:place])
        [move] = rebalanced(self._control, action="move", moves=((part.partition, target),))["moves"]
        return LeaderView(None if move["gap_us"] is None else move["gap_us"] / 1e3, {})

    def split(self) -> LeaderView:
        """In two, the first partition."""
        first = self.partitions()[0]
        return self._changed(lambda: self._client.admin.split(self._topic, first, wait_s=CHANGE_S))

    def merge(self) -> LeaderView:
        """The first two partitions."""
        one, other, *_ = self.partitions()
        return self._changed(lambda: self._client.admin.merge(self._topic, one, other, wait_s=CHANGE_S))

    def repartition(self, count: int) -> LeaderView:
        return self._changed(lambda: self._client.admin.repartition(self._topic, count, wait_s=CHANGE_S))

    def until_open(self) -> None:
        """Wait until no change holds a partition: a further one, or a move, is possible."""

        def is_open() -> bool:
            return all(one.phase == "OPENED" for one in self._client.admin.transitions(self._topic))

        until(is_open, CHANGE_S)

    def _changed(self, ask: Callable[[], LayoutChange]) -> LeaderView:
        for _ in range(TRIES_MAX - 1):
            try:
                return self._view(ask())
            except ConflictError:
                self.aborted += 1
        return self._view(ask())

    def _view(self, change: LayoutChange) -> LeaderView:
        self._version = max(self._version, change.version)
        self.until_open()
        shown: dict[str, Any] = ask_values(self._control, ShowTransitions(), ASK_S)
        known = shown["times"].get(str(change.change), {})
        gap_us = known.get("gap_us")
        return LeaderView(None if gap_us is None else gap_us / 1e3, known.get("phases_ms", {}))
