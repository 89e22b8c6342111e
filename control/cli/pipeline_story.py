"""What `ringfence dev --demo-pipeline` shows: streams in, joined, summed up and compacted, with kills."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow.parquet as pq

from ringfence.compact import files as files_of
from ringfence.control.cli import demo_steps as steps
from ringfence.control.cli.admin import Admin
from ringfence.control.cli.connection import connected
from ringfence.control.cli.demo_steps import Content
from ringfence.control.cli.dev_story import Scene, StoryError
from ringfence.control.cli.output import shown_bytes
from ringfence.control.cli.pipeline_answers import HOLD, KEYS, Answer, digest, query3
from ringfence.control.cli.spark_process import SparkProcess
from ringfence.control.cli.tables import Source
from ringfence.control.model.text import counted
from ringfence.native.errors import RingfenceError

if TYPE_CHECKING:
    from ringfence.control.cli.local_cluster import LocalCluster

JOBS: Final = "ringfence.control.cli.pipeline_jobs"
# Files of each table: five micro-batches each, so that there is a middle to be killed in.
PARTS: Final = 10
EXECUTORS: Final = 2
PARTITIONS: Final = 4
REPLICATION: Final = 3
# Of all rows that are in at least when these are killed; the executor goes with the first rows in hand.
SHARES: Final = {"node": 0.2, "driver": 0.4}
# What Spark's scheduler writes of a task that went with its executor.
TASK_LOST: Final = "ExecutorLostFailure"
# Of each step. Seconds are enough; on a machine ten times overbooked Spark alone starts in five minutes.
WAIT_S: Final = 900.0
LOOK_S: Final = 0.05


class PipelineStory:
    """Of a cluster of three that serves."""

    def __init__(self, cluster: LocalCluster, root: Path) -> None:
        self._cluster, self._root = cluster, root
        self._kills: dict[str, int] = dict.fromkeys(("executor", *SHARES), 0)
        self._rows = self._size = 0
        self._answers: list[Answer] = []
        self._job: SparkProcess | None = None
        self._began = self._scene_began = time.perf_counter()

    def tell(self, scale: float) -> Iterator[Scene]:
        """Run it, a scene at a time. Raises StoryError, RingfenceError."""
        source = self._root / "source"
        made = steps.generate_tables(scale, source, ["customer", *KEYS], PARTS)
        sent = {table: self._content(_batches(made[table])) for table in KEYS}
        self._rows = sum(one.rows for one in sent.values())
        self._size = sum(one.size for one in sent.values())
        yield self._scene("lineitem, orders and customer as files", f"{self._rows:,} rows to send")
        self._create(made)
        yield self._scene("two topics", f"{PARTITIONS} partitions each, {REPLICATION} copies of each")
        yield from self._ingested()
        yield self._compared(sent)
        yield from self._answered()

    @property
    def summary(self) -> dict[str, Any]:
        """The whole run as values."""
        return {
            "rows": self._rows,
            "bytes": self._size,
            "kills": self._kills,
            "answers": [one.values() for one in self._answers],
            "equal": len({(one.rows, one.digest) for one in self._answers}) == 1,
            "seconds": round(time.perf_counter() - self._began, 3),
        }

    # ---- scenes -------------------------------------------------------------------------------------

    def _create(self, made: dict[str, list[Path]]) -> None:
        with connected(self._addresses()) as client:
            for table, key in KEYS.items():
                schema = pq.read_schema(made[table][0])
                client.create_topic(
                    table, schema=schema, key=[key], partitions=PARTITIONS, replication=REPLICATION
                )

    def _ingested(self) -> Iterator[Scene]:
        with ExitStack() as stack:
            job = self._job = stack.enter_context(self._start("ingest", "spark-1"))
            yield self._executor_killed(job)
            self._until(self._has(SHARES["node"]), "the streams write")
            scene, name = self._node_killed(job)
            yield scene
            self._until(self._has(SHARES["driver"]), "the streams go on")
            with self._held(job, 1, "the driver"):
                before = self._stored()
                job.kill_driver()
                self._kills["driver"] += 1
            yield self._scene("kill -9 of the driver", f"{before:,} rows are in")
            self._cluster.restart(name)
            self._job = stack.enter_context(self._start("ingest", "spark-2"))
            code = self._job.wait(WAIT_S)
            if code != 0:
                raise StoryError(f"the streams failed with {code}: {self._job.said()}")
            self._job = None
        yield self._scene("a second driver goes on from the checkpoints", f"{self._stored():,} rows are in")

    def _executor_killed(self, job: SparkProcess) -> Scene:
        with self._held(job, EXECUTORS, "an executor"):
            self._kills["executor"] += job.kill_executor() > 0
            self._until(lambda: job.count(TASK_LOST) > 0, "the scheduler misses a task")
        lost = job.count(TASK_LOST)
        return self._scene("kill -9 of an executor", f"tasks lost and run again: {lost}")

    def _node_killed(self, job: SparkProcess) -> tuple[Scene, str]:
        """The scene, and the name of the node, which comes back after the driver's death."""
        with self._held(job, 1, "a node"):
            parts = self._partitions()
            owners = [part["owner"] for part in parts]
            victim = max(set(owners), key=owners.count)
            name = self._name(victim)
            self._cluster.kill(name)
            self._kills["node"] += 1
        self._until(lambda: victim not in {part["owner"] for part in self._partitions()}, "new owners")
        seen = f"new owners of its {counted(owners.count(victim), 'partition')}"
        return self._scene(f"kill -9 of {name}", seen), name

    @contextmanager
    def _held(self, job: SparkProcess, tasks: int, what: str) -> Iterator[None]:
        """So many tasks hold their rows. StoryError when all is in: a kill would prove nothing."""
        hold = self._root / HOLD
        hold.touch()
        try:
            self._until(lambda: job.tasks() >= tasks, f"{tasks} tasks before {what} is killed")
            if self._stored() >= self._rows:
                raise StoryError(f"all rows were in before {what} was killed; take a larger --scale")
            yield
        finally:
            hold.unlink()

    def _compared(self, sent: dict[str, Content]) -> Scene:
        with connected(self._addresses()) as client:
            for table, wanted in sent.items():
                found = self._content(client.read(table))
                if (found.rows, found.digest) != (wanted.rows, wanted.digest):
                    raise StoryError(
                        f"{table}: {found.rows:,} rows with hash {found.digest:016x} are in the topic, "
                        f"{wanted.rows:,} with {wanted.digest:016x} in the files"
                    )
        hashes = ", ".join(f"{one.digest:016x}" for one in sent.values())
        seen = f"equal: {self._rows:,} rows, {shown_bytes(self._size)}, hashes {hashes}"
        return self._scene("topics against files", seen)

    def _answered(self) -> Iterator[Scene]:
        with self._start("answers", "spark-3") as job:
            for line in job.lines:
                told = msgspec.json.decode(line)
                if "digest" not in told:
                    size = shown_bytes(told["bytes"])
                    seen = f"{told['compacted']:,} rows in {told['files']} files, {size}"
                    yield Scene("the log as Parquet", seen, told["seconds"])
                else:
                    yield self.answered(Answer(**told))
            code = job.wait(WAIT_S)
            if code != 0:
                raise StoryError(f"the answers failed with {code}: {job.said()}")
        yield self.answered(_by_duckdb(self._root))
        self.check()

    def check(self) -> None:
        """Raises StoryError when the answers so far differ."""
        if not self.summary["equal"]:
            told = "; ".join(f"{one.name}: {one.rows} rows, hash {one.digest}" for one in self._answers)
            raise StoryError(f"the answers differ: {told}")

    def answered(self, answer: Answer) -> Scene:
        """Keep an answer to compare it with the others."""
        self._answers.append(answer)
        return Scene(f"query 3: {answer.name}", f"{answer.rows:,} rows, hash {answer.digest}", answer.seconds)

    # ---- parts --------------------------------------------------------------------------------------

    def _scene(self, what: str, seen: str) -> Scene:
        """`seconds`: since the scene before."""
        before, self._scene_began = self._scene_began, time.perf_counter()
        return Scene(what, seen, self._scene_began - before)

    def _start(self, job: str, name: str) -> SparkProcess:
        return SparkProcess(self._root / name, JOBS, job, self._addresses(), str(self._root))

    def _content(self, batches: Iterable[Any]) -> Content:
        content = Content()
        for batch in batches:
            content.add(batch)
        return content

    def _has(self, share: float) -> Callable[[], bool]:
        return lambda: self._stored() >= share * self._rows

    def _stored(self) -> int:
        with connected(self._addresses()) as client:
            return sum(client.count(table) for table in KEYS)

    def _partitions(self) -> list[dict[str, Any]]:
        admin, found = self._admin(), []
        for table in KEYS:
            found += admin.get(f"/admin/topics/public/default/{table}/assignments")["partitions"]
        return found

    def _name(self, number: int) -> str:
        """Of the process that is a node's."""
        nodes = self._admin().get("/admin/nodes")["nodes"]
        listens = set(next(node["addresses"] for node in nodes if node["node"] == number))
        return next(node.name for node in self._cluster.nodes.values() if node.address in listens)

    def _admin(self) -> Admin:
        gone = self._cluster.ended()
        alive = [node.http for name, node in self._cluster.nodes.items() if name not in gone]
        return Admin(",".join(alive), None, WAIT_S)

    def _addresses(self) -> str:
        return ",".join(node.address for node in self._cluster.nodes.values())

    def _until(self, holds: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + WAIT_S
        while not _holds(holds):
            if self._job is not None and not self._job.is_running:
                raise StoryError(f"the streams ended too early: {self._job.said()}")
            if time.monotonic() > end:
                raise StoryError(f"not within {WAIT_S:g} s: {what}")
            time.sleep(LOOK_S)


def _holds(asked: Callable[[], bool]) -> bool:
    """Nobody answers for a moment after a kill; that is no answer."""
    try:
        return asked()
    except RingfenceError:
        return False


def _batches(files: Iterable[Path]) -> Iterator[Any]:
    for file in files:
        with Source(str(file)) as rows:
            yield from rows


def _by_duckdb(root: Path) -> Answer:
    """The files that the manifests name, read by DuckDB."""
    import duckdb  # noqa: PLC0415 - only this demo needs it

    began = time.perf_counter()
    places = [[str(root / "source" / "customer" / "*.parquet")]]
    places += [files_of(root / "parquet" / table) for table in KEYS]
    text = query3(*(f"read_parquet({place!r})" for place in places))
    with duckdb.connect() as database:
        rows, hashed = digest(database.execute(text).fetchall())
    return Answer("DuckDB, compacted Parquet", rows, hashed, time.perf_counter() - began)
