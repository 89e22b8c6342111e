"""Run `ringfence dev --demo-cluster`: send rows while nodes join, are killed and leave."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from ringfence.control.cli.admin import Admin
from ringfence.control.cli.cluster_load import FollowingReader, ProofError, Writer, topic_schema, verify_topic
from ringfence.control.cli.connection import open_client
from ringfence.control.cli.demo_steps import KEY
from ringfence.control.cli.dev_story import Scene, StoryError
from ringfence.control.cli.tables import Source
from ringfence.control.model.text import counted

if TYPE_CHECKING:
    from ringfence.control.cli.local_cluster import LocalCluster, NodeProcess

TOPIC: Final = "lineitem"
PLACE: Final = f"/admin/topics/public/default/{TOPIC}"
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
WAIT_S: Final = 60.0
POLL_S: Final = 0.02


class ClusterStory:
    """The demo of changes in a serving cluster of three or more nodes."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster
        self._writers: list[Writer] = []
        self._readers: list[FollowingReader] = []
        self._taken_s = time.perf_counter()
        self._run_before = 0

    def run(self, source: Path) -> Iterator[Scene]:
        """Run the demo and yield each step. Raises StoryError, RingfenceError."""
        with Source(str(source)) as rows:
            table = pa.Table.from_batches(list(rows), rows.schema).combine_chunks()
        self._source = table.to_batches()[0]
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
        self._writers = [
            Writer(self._addresses(), TOPIC, number, self._source, rate) for number in range(WRITERS)
        ]
        self._readers = [FollowingReader(self._addresses(), TOPIC) for _ in range(READERS)]
        for writer in self._writers:
            writer.start()
        for reader in self._readers:
            reader.start()
        # Wait for the first answers, so that connections, tables and imports do not count.
        self._until(lambda: all(writer.has_answer for writer in self._writers), "the first answers")
        self._take()
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

    def _proved(self) -> Iterator[Scene]:
        began = time.perf_counter()
        for writer in self._writers:
            writer.finish()
        sent = {writer.number: writer.sent for writer in self._writers}
        total = sum(sent.values())
        self._check_failures()
        for reader in self._readers:
            reader.finish(total)
        self._check_failures()
        errors, sends = (
            sum(each) for each in zip(*((w.errors, w.sends) for w in self._writers), strict=True)
        )
        yield Scene(
            "errors that a producer saw", f"{errors:,} of {sends:,} sends", time.perf_counter() - began
        )
        if errors:
            raise StoryError(next(writer.error for writer in self._writers if writer.error))
        began = time.perf_counter()
        try:
            rows = verify_topic(self._addresses(), TOPIC, self._source, sent)
        except ProofError as error:
            raise StoryError(str(error)) from error
        result = f"{rows:,} acknowledged rows, each present once, in order, with its content"
        yield Scene("all rows read again", result, time.perf_counter() - began)
        yield Scene("rows at the readers", f"all {total:,} rows, each once and in order", 0.0)

    # ---- parts --------------------------------------------------------------------------------------

    def _scene(self, title: str, text: str, seconds: float) -> Scene:
        rows, size, longest_s, spent = self._take()
        rate = f"{rows / spent:,.0f} rows/s, {size / spent / 1e6:.1f} MB/s"
        return Scene(title, f"{text}{rate}, longest wait {longest_s * 1e3:,.0f} ms", seconds)

    def _take(self) -> tuple[int, int, float, float]:
        """Return rows, bytes, longest wait and seconds since the last call. StoryError after an error."""
        self._check_failures()
        now = time.perf_counter()
        spent, self._taken_s = now - self._taken_s, now
        stats = [writer.take_stats() for writer in self._writers]
        longest_s = max(each.longest_s for each in stats)
        return sum(each.rows for each in stats), sum(each.size for each in stats), longest_s, max(spent, 1e-3)

    def _check_failures(self) -> None:
        for writer in self._writers:
            if writer.failure:
                raise StoryError(f"writer {writer.number}: {writer.failure}")
        for reader in self._readers:
            if reader.failure:
                raise StoryError(f"a reader: {reader.failure}")

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

    def _partitions(self) -> list[dict[str, Any]]:
        values: list[dict[str, Any]] = self._admin().get(f"{PLACE}/assignments")["partitions"]
        return values

    def _open(self) -> bool:
        return all(part["state"] == "ONLINE" for part in self._partitions())

    def _nodes(self) -> list[dict[str, Any]]:
        values: list[dict[str, Any]] = self._admin().get("/admin/nodes")["nodes"]
        return values

    def _node(self, number: int) -> dict[str, Any]:
        values = [node for node in self._nodes() if node["node"] == number]
        if not values:
            raise StoryError(f"node {number} is not a member of the cluster")
        return values[0]

    def _all_voters(self) -> bool:
        nodes = self._nodes()
        votes = [node["role"] in {"leader", "voter"} for node in nodes]
        return (
            len(nodes) == len(self._cluster.nodes) and all(votes) and all(node["in_ring"] for node in nodes)
        )

    def _leader(self) -> int:
        return int(self._admin().get("/admin/nodes")["leader"])

    def _number(self, node: NodeProcess) -> int:
        return int(Admin(node.http, None, WAIT_S).get("/admin/status")["node"])

    def _name(self, number: int) -> str:
        """Return the name of a node's process."""
        listens = set(self._node(number)["addresses"])
        return next(node.name for node in self._cluster.nodes.values() if node.address in listens)

    def _alive(self) -> list[NodeProcess]:
        gone = self._cluster.ended()
        return [node for name, node in self._cluster.nodes.items() if name not in gone]

    def _admin(self) -> Admin:
        return Admin(",".join(node.http for node in self._alive()), None, WAIT_S)

    def _addresses(self) -> str:
        return ",".join(node.address for node in self._alive())

    def _until(self, condition: Callable[[], bool], description: str) -> None:
        end = time.monotonic() + WAIT_S
        while not condition():
            if self._writers:
                self._check_failures()
            if time.monotonic() > end:
                raise StoryError(f"after {WAIT_S:g} s the demo still waits for: {description}")
            time.sleep(POLL_S)
