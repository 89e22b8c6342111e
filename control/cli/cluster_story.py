"""Run `ringfence dev --demo-cluster`: send rows while nodes join, are killed and leave."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ringfence.control.cli.cluster_load import FollowingReader, Writer, topic_schema
from ringfence.control.cli.connection import open_client
from ringfence.control.cli.demo_steps import KEY
from ringfence.control.cli.dev_story import Scene, StoryError
from ringfence.control.cli.loaded_story import TOPIC, LoadedStory
from ringfence.control.model.text import counted

if TYPE_CHECKING:
    from ringfence.control.cli.local_cluster import LocalCluster

PARTITIONS: Final = 6
REPLICATION: Final = 3
WRITERS: Final = 2
READERS: Final = 2
# Rate of all writers together. Three replicas share one disk with readers, elections and a rebalance, so a
# higher rate would measure the machine.
BYTES_PER_S: Final = 10e6
# Seconds of undisturbed writes, as a reference for the other steps.
STEADY_S: Final = 5.0
# Copy rate while the leader is killed during a move: slow, so that the move is still running.
SLOW_COPY_BYTES_PER_S: Final = 4_000_000


class ClusterStory(LoadedStory):
    """The demo of changes in a serving cluster of three or more nodes."""

    def __init__(self, cluster: LocalCluster) -> None:
        super().__init__(cluster)
        self._run_before = 0

    def run(self, source: Path) -> Iterator[Scene]:
        """Run the demo and yield each step. Raises StoryError, RingfenceError."""
        self._load(source)
        began = time.perf_counter()
        self._until(self._all_voters, "all nodes are voters and in the ring")
        yield Scene("nodes agree on a leader", self._name(self._leader()), time.perf_counter() - began)
        yield self._placed()
        yield from self._flow()
        yield self._joined()
        yield self._owner_killed()
        yield self._leader_killed()
        yield self._left()
        yield from self._proved()

    # ---- scenes -------------------------------------------------------------------------------------

    def _placed(self) -> Scene:
        began = time.perf_counter()
        with open_client(self._addresses()) as client:
            client.create_topic(
                TOPIC,
                schema=topic_schema(self._source.schema),
                key=[KEY],
                partitions=PARTITIONS,
                replication=REPLICATION,
            )
        self._until(self._open, "every partition is open")
        owners = {part["owner"] for part in self._partitions()}
        result = f"{PARTITIONS} partitions, {REPLICATION} replicas each, owned by {len(owners)} nodes"
        return Scene("a topic is placed", result, time.perf_counter() - began)

    def _flow(self) -> Iterator[Scene]:
        rate = BYTES_PER_S / WRITERS
        self._start_load(
            [Writer(self._addresses(), TOPIC, number, self._source, rate) for number in range(WRITERS)],
            [FollowingReader(self._addresses(), TOPIC) for _ in range(READERS)],
        )
        time.sleep(STEADY_S)
        yield self._scene(f"{WRITERS} writers and {READERS} readers, undisturbed", "", STEADY_S)

    def _joined(self) -> Scene:
        began = time.perf_counter()
        number = len(self._cluster.nodes) + 1
        node = self._number(self._cluster.add(number))
        self._until(lambda: self._node(node)["life"] == "LIVE", f"node-{number} is a member")
        self._begin({"action": "add_node", "node": node})
        moved = self._run_ended()
        owned = sum(part["owner"] == node for part in self._partitions())
        return self._scene(
            f"node-{number} joins, partitions move to it",
            f"{moved}, it owns {owned}; ",
            time.perf_counter() - began,
        )

    def _owner_killed(self) -> Scene:
        began = time.perf_counter()
        leader = self._leader()
        owners = [part["owner"] for part in self._partitions()]
        victim = next(node for node in sorted(owners, key=owners.count) if node != leader)
        name, lost = self._name(victim), owners.count(victim)
        self._cluster.kill(name)
        self._until(lambda: victim not in {part["owner"] for part in self._partitions()}, "new owners")
        self._until(self._open, "they are open")
        time.sleep(1.0)  # pending sends get their answers
        scene = self._scene(
            f"kill -9 of {name}",
            f"new owners of its {counted(lost, 'partition')}; ",
            time.perf_counter() - began,
        )
        self._cluster.restart(name)
        self._until(lambda: self._node(victim)["life"] == "LIVE", f"{name} serves again")
        self._take()
        return scene

    def _leader_killed(self) -> Scene:
        began = time.perf_counter()
        self._configure(sync_bytes_per_s=SLOW_COPY_BYTES_PER_S)
        leader = self._leader()
        partition, nodes = self._movable_partition(leader)
        self._begin({"action": "move", "moves": [{"partition": partition, "nodes": nodes}]})
        self._until(lambda: self._move(partition)["state"] in {"DUAL_WRITE", "COPYING"}, "the copy to run")
        name = self._name(leader)
        self._cluster.kill(name)
        self._until(lambda: self._leader() not in {0, leader}, "another node leads")
        self._configure(sync_bytes_per_s=0)
        moved = self._run_ended()
        after = next(part for part in self._partitions() if part["partition"] == partition)
        if {place["node"] for place in after["replicas"]} != set(nodes):
            raise StoryError(f"partition {partition} should be on nodes {nodes}: {after}")
        text = f"node {self._leader()} leads and finishes the move: {moved}; "
        scene = self._scene(
            f"kill -9 of the leader, {name}, while a partition moves", text, time.perf_counter() - began
        )
        self._cluster.restart(name)
        self._until(lambda: self._node(leader)["life"] == "LIVE", f"{name} serves again")
        self._take()
        return scene

    def _left(self) -> Scene:
        began = time.perf_counter()
        leader = self._leader()
        node = max(
            (node for node in self._nodes() if node["node"] != leader),
            key=lambda node: int(node["partitions"]),
        )["node"]
        name = self._name(node)
        self._begin({}, f"/admin/nodes/{node}/drain")
        moved = self._run_ended()
        replica_count = self._rebalance()["held"]
        if replica_count:
            raise StoryError(
                f"{name} was drained but still has {replica_count} replicas: {self._rebalance()['why']}"
            )
        self._until(lambda: self._node(node)["role"] == "learner", "another node votes instead")
        self._admin().change("DELETE", f"/admin/nodes/{node}")
        self._cluster.leave(name)
        return self._scene(f"{name} is drained and leaves", f"{moved}; ", time.perf_counter() - began)

    # ---- parts --------------------------------------------------------------------------------------

    def _movable_partition(self, leader: int) -> tuple[int, list[int]]:
        """Return a partition and its nodes after a move that does not touch replicas of the leader."""
        live = [node["node"] for node in self._nodes() if node["life"] == "LIVE"]
        for part in sorted(self._partitions(), key=lambda part: part["owner"] == leader):
            before = [place["node"] for place in part["replicas"]]
            added = [node for node in live if node not in before and node != leader]
            removable = [node for node in before if node not in {leader, part["owner"]}]
            if added and removable and part["owner"] != leader:
                remaining = [node for node in before if node not in {part["owner"], removable[0]}]
                return part["partition"], [added[0], part["owner"], *remaining]
        raise StoryError(f"no partition can move without node {leader}")

    def _begin(self, body: dict[str, Any], path: str = "/admin/rebalance") -> None:
        self._run_before = self._rebalance()["run"]
        self._admin().change("POST", path, body or None)

    def _run_ended(self) -> str:
        """Wait for the end of the last run and return its moves. The status may first show an older run."""
        status: dict[str, Any] = {}

        def ended() -> bool:
            status.update(self._rebalance())
            return bool(status["run"] != self._run_before and status["state"] == "IDLE")

        self._until(ended, "the rebalance ends")
        if status["outcome"] != "DONE":
            raise StoryError(f"the rebalance ended as {status['outcome']}: {status['why']} {status['moves']}")
        size = sum(move["bytes"] for move in status["moves"])
        return f"{counted(len(status['moves']), 'move')}, {size / 1e6:.1f} MB"

    def _rebalance(self) -> dict[str, Any]:
        status: dict[str, Any] = self._admin().get("/admin/rebalance")
        return status

    def _move(self, partition: int) -> dict[str, Any]:
        moves = self._rebalance()["moves"]
        return next((move for move in moves if move["partition"] == partition), {"state": ""})

    def _configure(self, **values: int) -> None:
        self._admin().change("PATCH", "/admin/config", {"values": values})
