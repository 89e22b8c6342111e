"""The option `cohort`: a query is the one member of its cohort, with its lag, also after it was killed."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

import ringfence
from tests.conftest import ROOT
from tests.harness.admin_http import ask, with_http
from tests.harness.processes import SCHEMA, NodeProcess, batch, until
from tests.spark.driver import followed
from tests.spark.test_kills import killed

pytestmark = pytest.mark.filterwarnings("ignore")  # pyspark and pandas warn of each other
START_S = 180.0
"""For a Spark driver of its own to start, on a machine with other work."""
STATE_S = 60
COHORT = "/admin/topics/public/default/followed/subscriptions/loads"


class Followed:
    """A node with the topic `followed`, and what its admin API says of the cohort `loads`."""

    def __init__(self, folder: Path) -> None:
        self.node = NodeProcess(folder / "data", options=("--session-grace-s", "12"))
        self.door = with_http(self.node)
        self.rows = 0

    def publish(self, rows: int) -> None:
        with ringfence.connect(self.node.address) as client, client.producer("followed") as producer:
            producer.send(batch(self.rows, rows))
        self.rows += rows

    def ends(self) -> dict[int, int]:
        with ringfence.connect(self.node.address) as client:
            return {one.partition: one.end_offset for one in client.topic("followed").partitions}

    def cohort(self) -> dict[str, Any]:
        answer = ask(self.door, "GET", COHORT)
        return dict(answer.body) if answer.status == 200 else {"partitions": []}

    def lags(self) -> dict[int, int | None]:
        return {one["partition"]: one["lag_rows"] for one in self.cohort()["partitions"]}

    def members(self) -> dict[str, str]:
        """States by name."""
        shown = ask(self.door, "GET", f"{COHORT}/members").body
        return {one["member"]: one["state"] for one in shown["members"]}

    def is_through(self) -> bool:
        lags = self.lags()
        return len(lags) > 0 and set(lags.values()) == {0}


@contextmanager
def topic(folder: Path, partitions: int = 2) -> Iterator[Followed]:
    made = Followed(folder)
    with made.node:
        with ringfence.connect(made.node.address) as client:
            client.create_topic("followed", schema=SCHEMA, key=["id"], partitions=partitions)
        yield made


def last_offset(folder: Path) -> dict[str, Any]:
    newest = max((folder / "checkpoint" / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
    return dict(json.loads(newest.read_text().splitlines()[-1]))


@pytest.mark.timeout(600)
def test_a_killed_query_goes_on_under_its_name_and_its_lag_is_the_end_less_its_offsets(
    spark: SparkSession, tmp_path: Path
) -> None:
    with topic(tmp_path) as made:
        made.publish(1_000)
        first = subprocess.Popen(
            [sys.executable, "-m", "tests.spark.driver", "cohort", made.node.address, str(tmp_path)],
            cwd=ROOT,
            start_new_session=True,
            text=True,
        )
        try:
            until(made.is_through, START_S, "the cohort is at the end of all rows")
            name = f"spark-{last_offset(tmp_path)['query']}"
            assert made.members() == {name: "connected"}
        finally:
            killed(first)
        made.publish(500)
        offsets = {int(one): place["offset"] for one, place in last_offset(tmp_path)["partitions"].items()}
        lags = {partition: end - offsets[partition] for partition, end in made.ends().items()}
        until(lambda: made.lags() == lags, STATE_S, "the lag is the end less the offsets of the checkpoint")
        assert sum(lags.values()) == 500
        query = followed(spark, made.node.address, str(tmp_path))
        try:
            until(made.is_through, START_S, "the cohort is at the end again")
            assert made.members() == {name: "connected"}
        finally:
            query.stop()
        assert spark.read.parquet(str(tmp_path / "out")).select("id").distinct().count() == made.rows


@pytest.mark.timeout(600)
def test_a_second_query_on_a_cohort_is_refused_and_the_first_one_goes_on(
    spark: SparkSession, tmp_path: Path
) -> None:
    with topic(tmp_path) as made:
        made.publish(100)
        one = followed(spark, made.node.address, str(tmp_path / "one"))
        try:
            until(made.is_through, START_S, "the cohort is at the end")
            other = followed(spark, made.node.address, str(tmp_path / "other"))
            with pytest.raises(
                StreamingQueryException, match=r"MemberExistsError.*a query has a cohort of its"
            ):
                other.awaitTermination(int(STATE_S))
            made.publish(100)
            until(made.is_through, STATE_S, "the first one goes on")
            assert list(made.members().values()) == ["connected"]
            with ringfence.connect(made.node.address) as client:
                (whole,) = [part.partition for part in client.layout("followed").active][:1]
                client.admin.split("followed", whole, into=2)
            made.publish(100)
            until(made.is_through, STATE_S, "children are read once the end of their parent is told")
        finally:
            one.stop()


def test_names_that_cannot_be_and_batch_reads_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    with topic(tmp_path) as made:
        made.publish(1)
        source = spark.read.format("ringfence").option("address", made.node.address)
        with pytest.raises(Exception, match="options that a batch read does not have"):
            source.option("cohort", "loads").load("followed").count()
        query = followed(spark, made.node.address, str(tmp_path), cohort="no name")
        with pytest.raises(StreamingQueryException, match="the option cohort must have 1 to 64 letters"):
            query.awaitTermination(int(STATE_S))
