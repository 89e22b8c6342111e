"""Partitions change their owners under load, planned and not, and no producer sees more than a pause."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import ringfence
from tests.system.cluster import Three
from tests.system.harness import SCHEMA, check_identity, cli, read_ids, until
from tests.system.load import Load


@pytest.fixture
def three(tmp_path: Path) -> Iterator[Three]:
    cluster = Three(tmp_path)
    try:
        yield cluster.start()
    finally:
        cluster.kill_all()


def create(three: Three, name: str, partitions: int, replication: int) -> list[Any]:
    with ringfence.connect(three.nodes[0].address, timeout_s=30) as client:
        made = client.create_topic(
            name, schema=SCHEMA, key=["id"], partitions=partitions, replication=replication
        )
        return list(made.partitions)


def rebalanced(three: Three, *arguments: str, place: int = 0) -> dict[str, Any]:
    done = cli("rebalance", *arguments, "--control", three.controls[place], "--json", timeout_s=120)
    assert done.returncode == 0, done.stdout + done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def grown(loads: list[Load], rows: int) -> Callable[[], bool]:
    """Whether each producer got so many more rows acknowledged since now."""
    before = [len(load.acknowledged) for load in loads]
    return lambda: all(
        len(load.acknowledged) > count + rows for load, count in zip(loads, before, strict=True)
    )


def check(three: Three, topic: str, loads: list[Load], place: int) -> None:
    """Every acknowledged row once and in order, read from the node at `place`."""
    with ringfence.connect(three.nodes[place].address, timeout_s=30) as client:
        rows = read_ids(client, topic)
    check_identity(
        rows,
        {load.producer: load.acknowledged for load in loads},
        {load.producer: load.sent for load in loads},
    )


def test_partitions_move_under_load_and_come_back(three: Three) -> None:
    """One replica: the target copies, and the source gives its rows back."""
    partitions = create(three, "t", 3, 1)
    loads = [Load(three.nodes[place].address, "t", place).start() for place in range(2)]
    until(lambda: all(len(load.acknowledged) > 500 for load in loads), what="rows")
    part = partitions[0]
    target = next(three.id(place) for place in range(3) if three.id(place) != part.owner)
    for node in (target, part.owner):
        told = rebalanced(three, "start", "move", "--move", f"{part.partition}:{node}", "--wait")
        assert told["outcome"] == "DONE", told
        until(grown(loads, 500), what="more rows")
    for load in loads:
        load.finish()
        assert load.errors == []
    check(three, "t", loads, 0)


def test_an_owner_is_killed_and_its_partitions_go_on_elsewhere(three: Three) -> None:
    """Three replicas: whoever has every acknowledged row takes over."""
    create(three, "t", 3, 3)
    leader = three.leader()
    victim = next(place for place in range(3) if place != leader)
    others = [place for place in range(3) if place != victim]
    loads = [Load(three.nodes[place].address, "t", place).start() for place in others]
    until(lambda: all(len(load.acknowledged) > 500 for load in loads), what="rows")
    three.nodes[victim].kill()
    until(grown(loads, 1_000), what="rows after the kill")
    for load in loads:
        load.finish()
        assert load.errors == []
    check(three, "t", loads, others[0])
