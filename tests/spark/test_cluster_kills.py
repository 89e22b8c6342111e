"""A Spark cluster with executors of its own writes while it and nodes are harmed: each row once, by hash."""

from __future__ import annotations

import json
import select
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import ringfence
from ringfence.control.cli.demo_steps import Content
from ringfence.control.cli.spark_process import SparkProcess, spark_process
from ringfence.spark import arrow_schema
from tests.harness.cluster import ThreeNodes
from tests.harness.processes import cli, until
from tests.spark.cluster import READS

TIMEOUT_S = 400.0  # of one scenario on a machine ten times overbooked; seconds on a quiet one
ROWS = 20_000

STREAM_IS_LONG = pytest.mark.long("a batch is written by the same tasks and committed by the same driver")
BATCH_OR_STREAM = pytest.mark.parametrize(
    "stream", [pytest.param(False, id="batch"), pytest.param(True, id="stream", marks=STREAM_IS_LONG)]
)


class Bench:
    """Three nodes, and a Spark driver that writes into them."""

    def __init__(self, three: ThreeNodes, spark: SparkProcess, folder: Path) -> None:
        self.three, self._spark, self.folder, self.lines = three, spark, folder, spark.lines
        self.client = ringfence.connect(",".join(node.address for node in three.nodes), timeout_s=60)

    def marks(self, topic: str) -> Path:
        """Where the tasks of a topic's scenario leave their marks."""
        folder = self.folder / topic
        folder.mkdir(exist_ok=True)
        return folder

    def create(self, topic: str, replication: int) -> None:
        from pyspark.sql.types import LongType, StringType, StructField, StructType

        schema = StructType([StructField("id", LongType()), StructField("text", StringType())])
        self.client.create_topic(
            topic, schema=arrow_schema(schema), key=["id"], partitions=3, replication=replication
        )

    def begin(
        self, scenario: str, topic: str, *, rows: int = ROWS, stream: bool = False, source: str = ""
    ) -> None:
        told = {"scenario": scenario, "topic": topic, "folder": str(self.marks(topic))}
        self._spark.write_line(json.dumps({**told, "rows": rows, "stream": stream, "source": source}))

    @contextmanager
    def owner_killed(self, topic: str) -> Iterator[int]:
        """The owner of the topic's first partition, which is back at the end."""
        owner = self.client.topic(topic).partitions[0].owner
        place = next(place for place in range(3) if self.three.id(place) == owner)
        self.three.nodes[place].kill()
        try:
            yield owner
        finally:
            self.three.nodes[place].start()
            self.three.until_whole()

    def count(self, text: str) -> int:
        """Lines of the driver's log with this text."""
        return self._spark.count(text)

    def end(self, topic: str) -> int:
        """Wait for the scenario; compare the topic with what Spark wanted to write. Rows."""
        readable, _, _ = select.select([self._spark.lines], [], [], TIMEOUT_S)
        assert readable, self._spark.last_lines()
        told = json.loads(self._spark.lines.readline() or b'{"error": "the driver died"}')
        assert "error" not in told, told["error"] + self._spark.last_lines()
        content = Content()
        for batch in self.client.read(topic):
            content.add(batch)
        assert (content.rows, content.digest) == (told["rows"], told["digest"])
        return content.rows


@pytest.fixture(scope="module")
def bench(module_folder: Path) -> Iterator[Bench]:
    three = ThreeNodes(module_folder)
    try:
        three.start()
        addresses = ",".join(node.address for node in three.nodes)
        with spark_process(module_folder / "spark", "tests.spark.cluster", addresses) as spark:
            yield Bench(three, spark, module_folder)
    finally:
        three.kill_all()


@BATCH_OR_STREAM
def test_an_executor_killed_in_the_middle_of_its_tasks(bench: Bench, stream: bool) -> None:
    topic = f"executor-{stream}".lower()
    bench.create(topic, 3)
    bench.begin("executor", topic, stream=stream)
    assert bench.end(topic) == ROWS
    assert (bench.marks(topic) / "killed").exists(), "no executor was killed"


def test_a_stage_that_runs_again_because_a_shuffle_was_lost(bench: Bench) -> None:
    """C3: FetchFailed. The writing stage has a second attempt, whose tasks find stages of the first one."""
    bench.create("shuffled", 3)
    bench.begin("shuffle", "shuffled")
    assert bench.end("shuffled") == ROWS
    marks = bench.marks("shuffled")
    assert (marks / "killed").exists(), "no executor was killed"
    assert (marks / "stage-again").exists(), "the stage was not tried again"
    assert bench.count("FetchFailed") > 0


def test_an_owner_killed_while_rows_are_staged_at_it(bench: Bench) -> None:
    bench.create("failover", 3)
    bench.begin("waits", "failover")
    until((bench.marks("failover") / "waits").exists, TIMEOUT_S, "a task in its middle")
    with bench.owner_killed("failover") as owner:
        until(lambda: bench.client.topic("failover").partitions[0].owner != owner, what="a new owner")
        (bench.marks("failover") / "go").touch()
        assert bench.end("failover") == ROWS


def test_a_stream_reads_on_while_the_owner_of_what_it_reads_is_killed(bench: Bench) -> None:
    bench.create("read-source", 3)
    bench.begin("plain", "read-source")
    assert bench.end("read-source") == ROWS
    bench.create("read-sink", 3)
    bench.begin("waits", "read-sink", source="read-source")
    until((bench.marks("read-sink") / "waits").exists, TIMEOUT_S, "a task in its middle")
    with bench.owner_killed("read-source") as owner:
        # Two micro-batches more are read with that node gone; the one under way is in its middle.
        (bench.marks("read-sink") / "go").touch()
        assert bench.end("read-sink") == ROWS
        commits = bench.marks("read-sink") / "checkpoint" / "commits"
        assert len(list(commits.glob("[0-9]*"))) >= READS
        assert bench.client.topic("read-source").partitions[0].owner != owner


def test_a_partition_moves_while_rows_are_staged_in_it(bench: Bench) -> None:
    bench.create("moves", 1)
    bench.begin("waits", "moves")
    until((bench.marks("moves") / "waits").exists, TIMEOUT_S, "a task in its middle")
    for part in bench.client.topic("moves").partitions:
        target = next(bench.three.id(place) for place in range(3) if bench.three.id(place) != part.owner)
        move = ("rebalance", "start", "move", "--move", f"{part.partition}:{target}")
        done = cli(*move, "--control", bench.three.controls[0], "--wait", "--json", timeout_s=120)
        assert json.loads(done.stdout)["outcome"] == "DONE", done.stdout + done.stderr
    (bench.marks("moves") / "go").touch()
    assert bench.end("moves") == ROWS


def test_a_task_that_runs_twice_at_once_writes_once(bench: Bench) -> None:
    bench.create("doubled", 3)
    bench.begin("straggles", "doubled")
    assert bench.end("doubled") == ROWS
    marks = {path.name for path in bench.marks("doubled").iterdir()}
    assert marks == {"straggles", "doubled"}, "no second attempt ran beside the first, or it left the first"


@BATCH_OR_STREAM
def test_tasks_whose_rows_come_in_another_order_when_they_are_tried_again(bench: Bench, stream: bool) -> None:
    topic = f"reordered-{stream}".lower()
    bench.create(topic, 3)
    bench.begin("reorders", topic, stream=stream)
    assert bench.end(topic) == ROWS
    assert len(list(bench.marks(topic).glob("failed-*"))) >= 2
    if stream:  # the driver dies between commit and checkpoint: Spark runs the last micro-batch again
        commits = bench.marks(topic) / "checkpoint" / "commits"
        last = max(int(path.name) for path in commits.glob("[0-9]*"))
        (commits / f".{last}.crc").unlink(missing_ok=True)
        (commits / str(last)).unlink()
        bench.begin("reorders", topic, stream=stream)
        assert bench.end(topic) == ROWS
        assert (commits / str(last)).exists(), "the micro-batch was run again"


def test_nodes_that_are_slower_than_the_tasks(bench: Bench, soak: int) -> None:
    """Nodes that stand still four fifths of the time: tasks wait for room."""
    rows = 4 * ROWS * soak
    bench.create("slow", 3)
    over = threading.Event()

    def hold_up() -> None:
        while not over.is_set():
            for node in bench.three.nodes:
                node.freeze()
            over.wait(0.2)
            for node in bench.three.nodes:
                node.wake()
            over.wait(0.05)

    thread = threading.Thread(target=hold_up)
    bench.begin("plain", "slow", rows=rows)
    thread.start()
    try:
        until(lambda: select.select([bench.lines], [], [], 0)[0] != [], TIMEOUT_S, "the write")
    finally:
        over.set()
        thread.join()
    assert bench.end("slow") == rows
