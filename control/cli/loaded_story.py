"""What demos of a cluster under load share: writers, readers, the nodes, and the proof of all rows."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from ringfence.control.cli.admin import Admin
from ringfence.control.cli.cluster_load import FollowingReader, ProofError, Writer, verify_topic
from ringfence.control.cli.dev_story import Scene, StoryError
from ringfence.control.cli.tables import Source

if TYPE_CHECKING:
    from ringfence.control.cli.local_cluster import LocalCluster, NodeProcess

TOPIC: Final = "lineitem"
PLACE: Final = f"/admin/topics/public/default/{TOPIC}"
WAIT_S: Final = 60.0
POLL_S: Final = 0.02


class LoadedStory:
    """A demo with writers and readers of one topic. Methods raise StoryError, RingfenceError."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster
        self._writers: list[Writer] = []
        self._readers: list[FollowingReader] = []
        self._source = pa.RecordBatch.from_pylist([])
        self._taken_s = time.perf_counter()

    def _load(self, source: Path) -> None:
        """Take the rows of a file as those that each writer sends repeatedly."""
        with Source(str(source)) as rows:
            table = pa.Table.from_batches(list(rows), rows.schema).combine_chunks()
        self._source = table.to_batches()[0]

    def _start_load(self, writers: Sequence[Writer], readers: Sequence[FollowingReader]) -> None:
        """Start all. Figures begin with the first answers, without connections and imports."""
        self._writers, self._readers = [*writers], [*readers]
        for writer in writers:
            writer.start()
        for reader in readers:
            reader.start()
        self._until(lambda: all(writer.has_answer for writer in writers), "the first answers")
        self._take()

    def _proved(self, key: str | None = None) -> Iterator[Scene]:
        """End the load and check every row; `key` as in `verify_topic`."""
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
            rows = verify_topic(self._addresses(), TOPIC, self._source, sent, key)
        except ProofError as error:
            raise StoryError(str(error)) from error
        result = f"{rows:,} acknowledged rows, each present once, in order, with its content"
        yield Scene("all rows read again", result, time.perf_counter() - began)
        yield Scene("rows at the readers", f"all {total:,} rows, each once and in order", 0.0)

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
