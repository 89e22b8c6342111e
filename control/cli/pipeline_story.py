"""Run `ringfence dev --demo-pipeline`: stream, join, sum up and compact tables while processes are killed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow.parquet as pq

from ringfence.compact import files as files_of
from ringfence.control.cli import demo_steps as steps
from ringfence.control.cli.admin import Admin
from ringfence.control.cli.connection import open_client
from ringfence.control.cli.demo_steps import Content
from ringfence.control.cli.dev_story import Scene, StoryError
from ringfence.control.cli.output import format_bytes
from ringfence.control.cli.pipeline_answers import HOLD, KEYS, QueryAnswer, digest, query3
from ringfence.control.cli.spark_process import SparkProcess, spark_process
from ringfence.control.cli.tables import Source
from ringfence.control.model.text import counted
from ringfence.native.errors import RingfenceError

if TYPE_CHECKING:
    from ringfence.control.cli.local_cluster import LocalCluster

JOBS: Final = "ringfence.control.cli.pipeline_jobs"
# Files per table: five micro-batches each, so that kills happen between the first and the last.
PARTS: Final = 10
EXECUTORS: Final = 2
PARTITIONS: Final = 4
REPLICATION: Final = 3
# Minimum shares of all rows stored at these kills. The executor is killed with its first rows.
SHARES: Final = {"node": 0.2, "driver": 0.4}
# Text of Spark's scheduler for a task that was lost with its executor.
TASK_LOST: Final = "ExecutorLostFailure"
# Timeout of each step. On a machine with ten times its load, the start of Spark alone takes five minutes.
WAIT_S: Final = 900.0
POLL_S: Final = 0.05


class PipelineStory:
    """The demo of Spark streams through a serving cluster of three nodes."""

    def __init__(self, cluster: LocalCluster, root: Path) -> None:
        self._cluster, self._root = cluster, root
        self._kills: dict[str, int] = dict.fromkeys(("executor", *SHARES), 0)
        self._rows = self._size = 0
        self._answers: list[QueryAnswer] = []
        self._job: SparkProcess | None = None
        self._began = self._scene_began = time.perf_counter()

    def run(self, scale: float) -> Iterator[Scene]:
        """Run the demo and yield each step. Raises StoryError, RingfenceError."""
        source = self._root / "source"
        files = steps.generate_tables(scale, source, ["customer", *KEYS], PARTS)
        sent = {table: self._content(_batches(files[table])) for table in KEYS}
        self._rows = sum(each.rows for each in sent.values())
        self._size = sum(each.size for each in sent.values())
        yield self._scene("lineitem, orders and customer as files", f"{self._rows:,} rows to send")
        self._create(files)
        yield self._scene("two topics", f"{PARTITIONS} partitions each, {REPLICATION} replicas each")
        yield from self._ingested()
        yield self._compared(sent)
        yield from self._answered()

    @property
    def summary(self) -> dict[str, Any]:
        """Figures of the whole run, with the keys that `--json` prints."""
        return {
            "rows": self._rows,
            "bytes": self._size,
            "kills": self._kills,
            "answers": [answer.values() for answer in self._answers],
            "equal": len({(answer.rows, answer.digest) for answer in self._answers}) == 1,
            "seconds": round(time.perf_counter() - self._began, 3),
        }

    # ---- scenes -------------------------------------------------------------------------------------

    def _create(self, files: dict[str, list[Path]]) -> None:
        with open_client(self._addresses()) as client:
            for table, key in KEYS.items():
                schema = pq.read_schema(files[table][0])
                client.create_topic(
                    table, schema=schema, key=[key], partitions=PARTITIONS, replication=REPLICATION
                )

    def _ingested(self) -> Iterator[Scene]:
        with ExitStack() as stack:
            job = self._job = stack.enter_context(self._start("ingest", "spark-1"))
            yield self._executor_killed(job)
            self._until(self._stored_share(SHARES["node"]), "the streams to write")
            scene, name = self._node_killed(job)
            yield scene
            self._until(self._stored_share(SHARES["driver"]), "the streams to continue")
            with self._tasks_held(job, 1, "the driver"):
                before = self._stored()
                job.kill_driver()
                self._kills["driver"] += 1
            yield self._scene("kill -9 of the driver", f"{before:,} rows are stored")
            self._cluster.restart(name)
            self._job = stack.enter_context(self._start("ingest", "spark-2"))
            code = self._job.wait(WAIT_S)
            if code != 0:
                raise StoryError(f"the streams failed with {code}: {self._job.last_lines()}")
            self._job = None
        yield self._scene(
            "a second driver continues from the checkpoints", f"{self._stored():,} rows are stored"
        )

    def _executor_killed(self, job: SparkProcess) -> Scene:
        with self._tasks_held(job, EXECUTORS, "an executor"):
            self._kills["executor"] += job.kill_executor() > 0
            self._until(lambda: job.count(TASK_LOST) > 0, "the scheduler to report a lost task")
        lost = job.count(TASK_LOST)
        return self._scene("kill -9 of an executor", f"tasks lost and run again: {lost}")

    def _node_killed(self, job: SparkProcess) -> tuple[Scene, str]:
        """Return the step and the name of the node, which restarts after the kill of the driver."""
        with self._tasks_held(job, 1, "a node"):
            parts = self._partitions()
            owners = [part["owner"] for part in parts]
            victim = max(set(owners), key=owners.count)
            name = self._name(victim)
            self._cluster.kill(name)
            self._kills["node"] += 1
        self._until(lambda: victim not in {part["owner"] for part in self._partitions()}, "new owners")
        result = f"new owners of its {counted(owners.count(victim), 'partition')}"
        return self._scene(f"kill -9 of {name}", result), name

    @contextmanager
    def _tasks_held(self, job: SparkProcess, tasks: int, target: str) -> Iterator[None]:
        """Hold at least `tasks` tasks before their writes. StoryError if all rows are stored already."""
        hold = self._root / HOLD
        hold.touch()
        try:
            self._until(lambda: job.tasks() >= tasks, f"{tasks} tasks before the kill of {target}")
            if self._stored() >= self._rows:
                raise StoryError(f"all rows were stored before the kill of {target}; pass a larger --scale")
            yield
        finally:
            hold.unlink()

    def _compared(self, sent: dict[str, Content]) -> Scene:
        with open_client(self._addresses()) as client:
            for table, expected in sent.items():
                content = self._content(client.read(table))
                if (content.rows, content.digest) != (expected.rows, expected.digest):
                    raise StoryError(
                        f"{table}: {content.rows:,} rows with hash {content.digest:016x} are in the topic, "
                        f"{expected.rows:,} with {expected.digest:016x} in the files"
                    )
        hashes = ", ".join(f"{each.digest:016x}" for each in sent.values())
        result = f"equal: {self._rows:,} rows, {format_bytes(self._size)}, hashes {hashes}"
        return self._scene("topics compared with files", result)

    def _answered(self) -> Iterator[Scene]:
        with self._start("answers", "spark-3") as job:
            for line in job.lines:
                values = msgspec.json.decode(line)
                if "digest" not in values:
                    size = format_bytes(values["bytes"])
                    result = f"{values['compacted']:,} rows in {values['files']} files, {size}"
                    yield Scene("the log as Parquet", result, values["seconds"])
                else:
                    yield self.add_answer(QueryAnswer(**values))
            code = job.wait(WAIT_S)
            if code != 0:
                raise StoryError(f"the answers failed with {code}: {job.last_lines()}")
        yield self.add_answer(_by_duckdb(self._root))
        self.check()

    def check(self) -> None:
        """Raise StoryError if the answers so far differ."""
        if not self.summary["equal"]:
            texts = "; ".join(f"{each.name}: {each.rows} rows, hash {each.digest}" for each in self._answers)
            raise StoryError(f"the answers differ: {texts}")

    def add_answer(self, answer: QueryAnswer) -> Scene:
        """Store an answer for the comparison with the others."""
        self._answers.append(answer)
        return Scene(f"query 3: {answer.name}", f"{answer.rows:,} rows, hash {answer.digest}", answer.seconds)

    # ---- parts --------------------------------------------------------------------------------------

    def _scene(self, title: str, result: str) -> Scene:
        """Return a step whose duration is the time since the previous step."""
        before, self._scene_began = self._scene_began, time.perf_counter()
        return Scene(title, result, self._scene_began - before)

    def _start(self, job: str, name: str) -> AbstractContextManager[SparkProcess]:
        return spark_process(self._root / name, JOBS, job, self._addresses(), str(self._root))

    def _content(self, batches: Iterable[Any]) -> Content:
        content = Content()
        for batch in batches:
            content.add(batch)
        return content

    def _stored_share(self, share: float) -> Callable[[], bool]:
        return lambda: self._stored() >= share * self._rows

    def _stored(self) -> int:
        with open_client(self._addresses()) as client:
            return sum(client.count(table) for table in KEYS)

    def _partitions(self) -> list[dict[str, Any]]:
        admin, partitions = self._admin(), []
        for table in KEYS:
            partitions += admin.get(f"/admin/topics/public/default/{table}/assignments")["partitions"]
        return partitions

    def _name(self, number: int) -> str:
        """Return the name of a node's process."""
        nodes = self._admin().get("/admin/nodes")["nodes"]
        listens = set(next(node["addresses"] for node in nodes if node["node"] == number))
        return next(node.name for node in self._cluster.nodes.values() if node.address in listens)

    def _admin(self) -> Admin:
        gone = self._cluster.ended()
        alive = [node.http for name, node in self._cluster.nodes.items() if name not in gone]
        return Admin(",".join(alive), None, WAIT_S)

    def _addresses(self) -> str:
        return ",".join(node.address for node in self._cluster.nodes.values())

    def _until(self, condition: Callable[[], bool], description: str) -> None:
        end = time.monotonic() + WAIT_S
        while not _holds(condition):
            if self._job is not None and not self._job.is_running:
                raise StoryError(f"the streams ended too early: {self._job.last_lines()}")
            if time.monotonic() > end:
                raise StoryError(f"after {WAIT_S:g} s the demo still waits for: {description}")
            time.sleep(POLL_S)


def _holds(condition: Callable[[], bool]) -> bool:
    """Return the condition's value; False while no node answers, as for a moment after a kill."""
    try:
        return condition()
    except RingfenceError:
        return False


def _batches(files: Iterable[Path]) -> Iterator[Any]:
    for file in files:
        with Source(str(file)) as rows:
            yield from rows


def _by_duckdb(root: Path) -> QueryAnswer:
    """Run query 3 with DuckDB on the files of the manifests."""
    import duckdb  # noqa: PLC0415 - optional dependency of this demo

    began = time.perf_counter()
    places = [[str(root / "source" / "customer" / "*.parquet")]]
    places += [files_of(root / "parquet" / table) for table in KEYS]
    query = query3(*(f"read_parquet({place!r})" for place in places))
    with duckdb.connect() as database:
        rows, hashed = digest(database.execute(query).fetchall())
    return QueryAnswer("DuckDB, compacted Parquet", rows, hashed, time.perf_counter() - began)
