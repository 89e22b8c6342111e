"""One accepted loss: two of three replicas are down, an operator makes the third one the owner.

A topic of its own with one partition and one writer. What is acknowledged after the choice must stay, also
when the two others come back: a log start that was made under the lost history must not remove it.
"""

from __future__ import annotations

import contextlib
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import ringfence
from ringfence.control.runtime.rpc import messages
from ringfence.native.errors import RingfenceError
from tests.chaos.fleet import NODES, Fleet
from tests.chaos.log_clients import IN_FLIGHT_MAX, SCHEMA, EndAsker, PlainWriter, final_read
from tests.checker.log_history import Forced, History, Outcome, Truncate
from tests.harness.processes import until

WORK_SENDS: Final = 2 * IN_FLIGHT_MAX
"""Acknowledged between two steps: more than are in flight, so that some were sent after the step before."""
WORK_S: Final = 120.0
"""For these sends: a writer first finds the owner again after a step that takes nodes away."""
MAKE_S: Final = 120.0
"""For a partition to be on a certain node."""
WRITER: Final = 300_000


class Forcer:
    """Runs when the other faults are over: it takes two nodes away at the same time."""

    def __init__(self, fleet: Fleet, seed: int) -> None:
        self.topic, self._fleet, self._seed = "forced", fleet, seed
        self.partition = 0

    def run(self) -> History:
        """The history of the topic, with its final read."""
        nodes = self._make()
        writer = PlainWriter(self._fleet.addresses, self.topic, self._seed, WRITER)
        asker = EndAsker(self._fleet.addresses, self.topic, self._seed)
        writer.start()
        asker.start()
        self._work(writer)
        history = History()
        self._lose(history, nodes, writer)
        self._work(writer)
        self._restart_owner()
        self._work(writer)
        writer.finish()
        asker.finish()
        for failure in (*writer.failure, *asker.failure):
            raise failure
        history.extend(writer.history)
        history.extend(asker.history)
        history.extend(final_read(self._fleet.addresses, self.topic))
        return history

    def _work(self, writer: PlainWriter) -> None:
        """Wait until the writer got more rows acknowledged."""

        def acknowledged() -> int:
            return sum(send.outcome is Outcome.DONE for send in list(writer.history.sends))

        wanted = acknowledged() + WORK_SENDS
        until(
            lambda: bool(writer.failure) or acknowledged() >= wanted, WORK_S, "the writer of the forced topic"
        )

    def _make(self) -> list[int]:
        """Make a partition with a replica on the node that does not vote; its nodes, that one first.

        With it and one voter down the metadata still has a leader.
        """
        learner = self._learner()
        # A drain that the last move left would keep partitions away. A node that may vote would do so in the
        # place of the one that lags, and be missed when it dies itself.
        for change in ("undrain", "demote"):
            self._change(learner, change)
        with ringfence.connect(self._fleet.addresses, timeout_s=60) as client:
            made = client.create_topic(self.topic, schema=SCHEMA, key=["key"], partitions=1, replication=3)
        self.partition = made.partitions[0].partition
        nodes: list[int] = []

        def is_there() -> bool:
            shown = self._shown()
            nodes[:] = [replica["node"] for replica in shown["replicas"]]
            if learner in nodes:
                return shown["change"] is None
            kept = sorted(nodes, key=lambda node: node != shown["owner"])[:2]
            moves = ((self.partition, (*kept, learner)),)
            with contextlib.suppress(RingfenceError):  # one is under way
                self._fleet.asked(messages.SteerRebalance(verb="start", action="move", moves=moves))
            return False

        # A new partition goes to the nodes with the fewest replicas: moves may have left this one the most.
        until(is_there, MAKE_S, f"a partition on node {learner}")
        return sorted(nodes, key=lambda node: node != learner)

    def _change(self, node: int, change: str) -> None:
        def told() -> bool:
            try:
                self._fleet.told(messages.ChangeNode(node=node, change=change))
            except RingfenceError:
                return False
            return True

        until(told, 60, f"{change} of node {node}")

    def _learner(self) -> int:
        """The node that does not vote, once there is one: roles change for a while after a fault."""
        found: list[int] = []

        def is_alone() -> bool:
            told = self._fleet.listed()
            found[:] = [] if told is None else [node.node for node in told.nodes if node.role == "learner"]
            return len(found) == 1

        until(is_alone, 120, "three voters and one node that does not vote")
        return found[0]

    def _lose(self, history: History, nodes: list[int], writer: PlainWriter) -> None:
        """A replica that lags behind a truncate becomes the owner: its end is below the log start.

        `nodes`: the one that does not vote, then two voters.
        """
        places = {self._fleet.id(place): place for place in range(NODES)}
        owner = self._shown()["owner"]
        second = owner if owner in nodes[1:] else nodes[1]
        left = next(node for node in nodes[1:] if node != second)
        spare = next(node for node in places if node not in nodes)
        self._fleet.nodes[places[left]].freeze()
        self._work(writer)
        self._truncate(history)
        begun, down = time.monotonic(), [places[nodes[0]], places[second]]
        for place in down:
            self._fleet.nodes[place].kill()
        self._fleet.nodes[places[left]].wake()
        until(lambda: self._candidate(left) is not None, 60, "the replica that is left to answer")
        until(lambda: self._force(left, (left, spare, second)), 60, "a forced owner")
        with ThreadPoolExecutor(len(down)) as pool:
            list(pool.map(lambda place: self._fleet.nodes[place].start(), down))
        self._fleet.until_whole()
        until(lambda: self._shown()["change"] is None, 120, "an open owner")
        self._change(nodes[0], "auto")
        history.forced.append(Forced(self.partition, begun, time.monotonic()))

    def _truncate(self, history: History) -> None:
        begun = time.monotonic()
        with ringfence.connect(self._fleet.addresses, timeout_s=60) as client:
            before = client.end_offsets(self.topic)[self.partition].end - 1
            client.truncate(self.topic, partition=self.partition, before_offset=before)
        history.truncates.append(Truncate(self.partition, before, begun, time.monotonic(), Outcome.DONE))

    def _restart_owner(self) -> None:
        """A start reads the log start again from the metadata."""
        places = {self._fleet.id(place): place for place in range(NODES)}
        node = self._fleet.nodes[places[self._shown()["owner"]]]
        node.kill()
        node.start()
        self._fleet.until_whole()
        until(lambda: self._shown()["change"] is None, 120, "an open owner")

    def _force(self, left: int, replicas: tuple[int, ...]) -> bool:
        candidate = self._candidate(left)
        if candidate is None:
            return False
        change = self._shown()["change"]["change"]
        call = messages.ForcePartition(
            partition=self.partition,
            change=change,
            owner=left,
            accepts=candidate["may_lose"][:1_000],
            replicas=replicas,
        )
        try:
            self._fleet.told(call)
        except RingfenceError:
            return False
        return True

    def _candidate(self, node: int) -> dict[str, Any] | None:
        change = self._shown()["change"] or {}
        known = (one for one in change.get("candidates", ()) if one["node"] == node)
        return next((one for one in known if one["records"] is not None), None)

    def _shown(self) -> dict[str, Any]:
        end = time.monotonic() + 60
        while True:
            try:
                return self._fleet.asked(messages.ShowPartition(partition=self.partition))
            except RingfenceError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.2)
