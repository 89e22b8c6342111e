"""One node of three is left: what it knows of topics is told within seconds, and as what one node knows."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import ringfence
from ringfence.control.cli.exit_codes import Exit
from tests.harness.admin_http import with_http
from tests.harness.cluster import ThreeNodes
from tests.harness.processes import SCHEMA, batch, cli

SOON_S = 15.0
"""The 5 s of a look that asks a majority, figures of two topics, and a slow machine; a command has 30 s."""


class Alone(NamedTuple):
    """The node that is left, and partitions of `t` whose owners are not."""

    address: str
    http: str
    lost: list[int]


@pytest.fixture(scope="module")
def alone(module_folder: Path) -> Iterator[Alone]:
    cluster = ThreeNodes(module_folder)
    http = [with_http(node) for node in cluster.nodes]
    try:
        cluster.start()
        left = next(place for place in range(3) if place != cluster.leader())
        with ringfence.connect(cluster.nodes[left].address, timeout_s=30) as client:
            for name in ("t", "u"):
                client.create_topic(name, schema=SCHEMA, key=["id"], partitions=6)
            with client.producer("t") as producer:
                producer.send(batch(0, 600)).result(30)
            parts = client.topic("t").partitions
        for place in range(3):
            if place != left:
                cluster.nodes[place].kill()
        lost = [part.partition for part in parts if part.owner != cluster.id(left)]
        assert 0 < len(lost) < len(parts)
        yield Alone(cluster.nodes[left].address, http[left], lost)
    finally:
        cluster.kill_all()


@pytest.mark.parametrize("door", ["socket", "http"])
@pytest.mark.parametrize("command", [("list",), ("show", "t")], ids=["list", "show"])
def test_topics_are_told_without_a_majority(alone: Alone, door: str, command: tuple[str, ...]) -> None:
    where = ("--address", alone.address) if door == "socket" else ("--http", alone.http)
    began = time.monotonic()
    ended = cli("topic", *command, *where, "--json")
    assert time.monotonic() - began < SOON_S
    assert ended.returncode == Exit.DEGRADED, ended
    topics = {topic["name"]: topic for topic in map(json.loads, ended.stdout.splitlines())}
    assert len(topics) == (2 if command[0] == "list" else 1)
    told = topics["public/default/t"]
    assert told["rows"] is None
    assert [part["partition"] for part in told["partitions"] if part["unknown"]] == alone.lost
    error = json.loads(ended.stderr)
    assert "rows and bytes are missing" in error["message"]
    if door == "http":
        assert "the answer is that of one node and may lack newer changes" in error["message"]
        assert "no majority of the voters" in error["message"]
