"""Producers at the nodes of a cluster, moves meanwhile, and the check of every acknowledged row."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import ringfence
from ringfence.native.messages import TopicInfo
from tests.harness.cluster import ThreeNodes
from tests.harness.load import Load
from tests.harness.processes import SCHEMA, check_identity, cli, read_ids, until


def create(
    three: ThreeNodes, partitions: int, replication: int, retention_bytes: int | None = None
) -> TopicInfo:
    with ringfence.connect(three.nodes[0].address, timeout_s=30) as client:
        return client.create_topic(
            "t",
            schema=SCHEMA,
            key=["id"],
            partitions=partitions,
            replication=replication,
            retention_bytes=retention_bytes,
        )


def publishing(three: ThreeNodes, places: list[int]) -> list[Load]:
    loads = [Load(three.nodes[place].address, "t", place).start() for place in places]
    until(lambda: all(len(load.acknowledged) > 500 for load in loads), what="rows")
    return loads


def moved(three: ThreeNodes, *arguments: str) -> dict[str, Any]:
    """A run of moves by the command line, to its end; it must be done."""
    done = cli(*arguments, "--control", three.controls[0], "--wait", "--json", timeout_s=120)
    assert done.returncode == 0, done.stdout + done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    assert told["outcome"] == "DONE", told
    return told


def grown(loads: list[Load], rows: int) -> Callable[[], bool]:
    """Whether each producer got so many more rows acknowledged since now, or has failed."""
    before = [len(load.acknowledged) for load in loads]
    return lambda: all(
        load.errors or len(load.acknowledged) > count + rows
        for load, count in zip(loads, before, strict=True)
    )


def check(three: ThreeNodes, loads: list[Load], place: int) -> int:
    """No producer saw an error; every acknowledged row once and in order, read from the node at `place`."""
    for load in loads:
        load.finish()
    assert [load.errors for load in loads] == [[] for _ in loads]
    with ringfence.connect(three.nodes[place].address, timeout_s=30) as client:
        rows = read_ids(client, "t")
    acknowledged = {load.producer: load.acknowledged for load in loads}
    check_identity(rows, acknowledged, {load.producer: load.sent for load in loads})
    return sum(map(len, acknowledged.values()))
