"""Run `ringfence dev --demo-layout`: one partition becomes 2, 4, 16 and 3 while rows flow."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from ringfence.control.cli.cluster_load import FollowingReader, RowOrderCheck, Writer, topic_schema
from ringfence.control.cli.connection import open_client
from ringfence.control.cli.demo_steps import KEY, Content
from ringfence.control.cli.dev_story import Scene, StoryError
from ringfence.control.cli.layout_jobs import FILES, TOPIC
from ringfence.control.cli.layout_load import FileFeed, NamedWriter, TransactionWriter
from ringfence.control.cli.loaded_story import POLL_S, LoadedStory
from ringfence.control.cli.spark_process import SparkProcess, spark_process
from ringfence.native.errors import AlreadyExistsError, ConflictError, RetriableError

if TYPE_CHECKING:
    from ringfence import Client
    from ringfence.control.cli.local_cluster import LocalCluster
    from ringfence.layout_admin import LayoutChange

JOBS: Final = "ringfence.control.cli.layout_jobs"
REPLICATION: Final = 3
# Numbers of partitions, one after the other; a node is killed while the topic gets this one.
COUNTS: Final = (2, 4, 16, 3)
KILLED_AT: Final = 16
# Rate of the plain, the named and the transactional writer together; see the cluster demo.
BYTES_PER_S: Final = 6e6
# Seconds of undisturbed writes before the changes, and between two of them.
STEADY_S: Final = 3.0
# Pause of the slow reader after each batch: it reads parents while their children take rows.
SLOW_S: Final = 0.05
# Time limits: a change during an election; the start of Spark on a machine with ten times its load.
CHANGE_S: Final = 60.0
SPARK_S: Final = 300.0


class LayoutStory(LoadedStory):
    """The demo of a topic whose layout changes, in a cluster of three nodes."""

    def __init__(self, cluster: LocalCluster, root: Path) -> None:
        super().__init__(cluster)
        self._root = root

    def run(self, source: Path) -> Iterator[Scene]:
        """Run the demo and yield each step. Raises StoryError, RingfenceError."""
        self._load(source)
        began = time.perf_counter()
        self._until(self._all_voters, "all nodes are voters and in the ring")
        yield Scene("nodes agree on a leader", self._name(self._leader()), time.perf_counter() - began)
        with ExitStack() as stack:
            client = stack.enter_context(open_client(self._addresses(), CHANGE_S))
            client.create_topic(
                TOPIC,
                schema=topic_schema(self._source.schema),
                key=[KEY],
                partitions=1,
                replication=REPLICATION,
            )
            self._until(self._open, "the partition is open")
            began = time.perf_counter()
            self._feed = FileFeed(self._root / FILES, 3, self._source)
            job = stack.enter_context(
                spark_process(self._root / "spark", JOBS, self._addresses(), str(self._root))
            )
            self._wait_for_spark(client, job)
            yield Scene("a Spark stream writes into one partition", "", time.perf_counter() - began)
            yield self._flow()
            for count in COUNTS:
                change = self._killed if count == KILLED_AT else self._repartitioned
                yield change(client, count)
            yield self._spark_ended(job)
            yield from self._proved(KEY)
            yield self._handed_over()
            yield self._equal(client, job)
            yield self._finished(client)

    # ---- scenes -------------------------------------------------------------------------------------

    def _wait_for_spark(self, client: Client, job: SparkProcess) -> None:
        end = time.monotonic() + SPARK_S
        while client.count(TOPIC) == 0:
            if not job.is_running or time.monotonic() > end:
                raise StoryError(f"the Spark stream wrote nothing: {job.last_lines()}")
            time.sleep(10 * POLL_S)

    def _flow(self) -> Scene:
        kinds = (Writer, NamedWriter, TransactionWriter)
        rate = BYTES_PER_S / len(kinds)
        writers = [
            kind(self._addresses(), TOPIC, number, self._source, rate) for number, kind in enumerate(kinds)
        ]
        readers = [
            FollowingReader(self._addresses(), TOPIC, RowOrderCheck(KEY), pause_s)
            for pause_s in (0.0, SLOW_S)
        ]
        self._start_load(writers, readers)
        self._feed.start()
        self._writers.append(self._feed)
        time.sleep(STEADY_S)
        return self._scene(
            "writers (plain, named, transactional, Spark) and 2 readers, undisturbed", "", STEADY_S
        )

    def _repartitioned(self, client: Client, count: int) -> Scene:
        began = time.perf_counter()
        before = len(client.layout(TOPIC).active)
        change = self._change(client, count)
        title = f"1 partition becomes {count}" if before == 1 else f"{before} partitions become {count}"
        return self._changed(title, change, began)

    def _killed(self, client: Client, count: int) -> Scene:
        """Kill an owner as the change begins. A change that this ends is asked for again."""
        began = time.perf_counter()
        leader = self._leader()
        before = client.layout(TOPIC).active
        victim = next(part.owner for part in before if part.owner != leader)
        name = self._name(victim)
        client.admin.repartition(TOPIC, count, wait_s=0.0)
        self._cluster.kill(name)
        self._until(lambda: victim not in {part["owner"] for part in self._partitions()}, "new owners")
        self._until(self._open, "all partitions are open")
        is_done = len(client.layout(TOPIC).active) == count
        self._cluster.restart(name)
        self._until(lambda: self._node(victim)["life"] == "LIVE", f"{name} serves again")
        change = self._change(client, count)
        title = f"{len(before)} partitions become {count}, kill -9 of {name} meanwhile"
        text = "" if is_done else "the first try ended without effect, the second one is done; "
        return self._changed(title, change, began, text)

    def _spark_ended(self, job: SparkProcess) -> Scene:
        """End the files, and let the stream write those that are left."""
        began = time.perf_counter()
        self._feed.finish()
        job.write_line("end")
        job.read_line(SPARK_S)
        return Scene("the Spark stream ends", f"{self._feed.sent:,} rows", time.perf_counter() - began)

    def _handed_over(self) -> Scene:
        successors = sum(writer.successors for writer in self._writers if isinstance(writer, NamedWriter))
        result = f"{successors} successors, each from the resume point of the one before"
        return Scene("the writer with a name", result, 0.0)

    def _equal(self, client: Client, job: SparkProcess) -> Scene:
        """Compare the topic as Spark and as Python read it: sealed partitions and their children."""
        began = time.perf_counter()
        own = Content()
        with client.read(TOPIC) as reader:
            for batch in reader:
                own.add(batch)
        job.write_line("read")
        spark = msgspec.json.decode(job.read_line(SPARK_S))
        if (spark["rows"], spark["digest"]) != (own.rows, own.digest):
            raise StoryError(
                f"Spark reads {spark['rows']:,} rows with hash {spark['digest']:016x}, Python {own.rows:,} "
                f"with {own.digest:016x}"
            )
        result = f"{own.rows:,} rows, hash {own.digest:016x}"
        return Scene("Spark and Python read the same", result, time.perf_counter() - began)

    def _finished(self, client: Client) -> Scene:
        began = time.perf_counter()
        self._until(lambda: not client.admin.transitions(TOPIC), "clients hold the last layout")
        states = [part.state for part in client.layout(TOPIC).partitions.values()]
        result = f"{states.count('ACTIVE')} take rows, {len(states) - states.count('ACTIVE')} are sealed"
        return Scene("all changes are finished", result, time.perf_counter() - began)

    # ---- parts --------------------------------------------------------------------------------------

    def _change(self, client: Client, count: int) -> LayoutChange:
        """Give the topic this number of partitions.

        A change that an owner's end aborts, or that another change excludes, is asked for again. So is one
        that lacks a node which has just started.
        """
        end = time.monotonic() + CHANGE_S
        while True:
            try:
                return client.admin.repartition(TOPIC, count, wait_s=CHANGE_S)
            except (AlreadyExistsError, ConflictError, RetriableError) as error:
                self._check_failures()
                if time.monotonic() > end:
                    raise StoryError(f"no change to {count} partitions: {error}") from error
                time.sleep(10 * POLL_S)

    def _changed(self, title: str, change: LayoutChange, began: float, text: str = "") -> Scene:
        seconds = time.perf_counter() - began
        named = [writer for writer in self._writers if isinstance(writer, NamedWriter)]
        before = [writer.successors for writer in named]
        for writer in named:
            writer.hand_over()
        time.sleep(STEADY_S)
        self._until(lambda: before != [writer.successors for writer in named], "a successor of the name")
        gap = f"gap {change.gap_us / 1e3:,.0f} ms; " if change.gap_us else ""
        return self._scene(title, f"{text}{gap}", seconds)
