"""An owner is down and nobody else has its rows: what readers and commands say, and that no count is a 0."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import ringfence
from ringfence.control.cli.exit_codes import Exit
from ringfence.native.errors import ConnectError
from tests.harness.admin_http import with_http
from tests.harness.cluster import ThreeNodes
from tests.harness.processes import PROGRAM, SCHEMA, batch, cli, until

ROWS = 600


class Down(NamedTuple):
    """Topic `t` of one replica: `lost` are the partitions of the node that was killed."""

    address: str
    http: str
    node: int
    node_address: str
    lost: list[int]
    held: int
    """Rows of the other partitions."""


@pytest.fixture(scope="module")
def down(module_folder: Path) -> Iterator[Down]:
    cluster = ThreeNodes(module_folder)
    http = [with_http(node) for node in cluster.nodes]
    try:
        cluster.start()
        killed = next(place for place in range(3) if place != cluster.leader())
        asked = next(place for place in range(3) if place != killed)
        address, node = cluster.nodes[asked].address, cluster.id(killed)
        with ringfence.connect(address, timeout_s=30) as client:
            client.create_topic("t", schema=SCHEMA, key=["id"], partitions=6)
            with client.producer("t") as producer:
                producer.send(batch(0, ROWS)).result(30)
            parts = client.topic("t").partitions
            assert sum(part.end_offset for part in parts) == ROWS
        lost = [part.partition for part in parts if part.owner == node]
        held = sum(part.end_offset for part in parts if part.owner != node)
        assert lost
        assert 0 < held < ROWS
        cluster.nodes[killed].kill()
        until(lambda: cluster.life(killed, seen_by=asked) == "FAILED", what="the death is noticed")
        yield Down(address, http[asked], node, cluster.nodes[killed].address, lost, held)
    finally:
        cluster.kill_all()


def doors(down: Down) -> dict[str, tuple[str, str]]:
    return {"socket": ("--address", down.address), "http": ("--http", down.http)}


def told(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_the_client_has_no_figures_of_its_partitions_and_says_why(down: Down) -> None:
    with ringfence.connect(down.address) as client:
        [listed], named = client.topics(), client.topic("t")
    for topic in (listed, named):
        unknown = {part.partition: part.unknown for part in topic.partitions if part.unknown}
        assert sorted(unknown) == down.lost
        for why in unknown.values():
            assert f"node {down.node} is FAILED ({down.node_address})" in why
        known = [part for part in topic.partitions if part.partition not in unknown]
        assert sum(part.end_offset - part.start_offset for part in known) == down.held


@pytest.mark.parametrize("door", ["socket", "http"])
@pytest.mark.parametrize("command", [("list",), ("show", "t")], ids=["list", "show"])
def test_a_count_that_is_missing_is_marked_and_told(down: Down, door: str, command: tuple[str, ...]) -> None:
    asked = ("topic", *command, *doors(down)[door])
    ended = cli(*asked)
    assert ended.returncode == Exit.DEGRADED, ended
    assert f"node {down.node} is FAILED ({down.node_address})" in ended.stderr
    for partition in down.lost:
        assert str(partition) in ended.stderr
    assert len(ended.stderr.splitlines()) == 1
    if command[0] == "list":
        assert f"{down.held} + ?" in ended.stdout
    else:
        rows = [line.split() for line in ended.stdout.splitlines()]
        unknown = [words for words in rows if words[5:8] == ["?", "?", "?"]]
        assert [int(words[1]) for words in unknown] == down.lost

    ended = cli(*asked, "--json")
    assert ended.returncode == Exit.DEGRADED, ended
    [topic] = told(ended.stdout)
    assert (topic["rows"], topic["bytes"]) == (None, None)
    for part in topic["partitions"]:
        figures = {part[name] for name in ("start_offset", "end_offset", "bytes")}
        assert (figures == {None}) is (part["partition"] in down.lost) is bool(part["unknown"])
    [error] = told(ended.stderr)
    assert (error["error"], error["exit"]) == ("CountsMissingError", Exit.DEGRADED)
    assert f"node {down.node}" in error["message"]


def test_a_read_names_the_owner_that_it_waits_for(down: Down) -> None:
    with ringfence.connect(down.address, timeout_s=3) as client:
        for read in (lambda: next(client.read("t")), lambda: client.count("t")):
            with pytest.raises(ConnectError, match=f"its owner, node {down.node}, does not answer") as caught:
                read()
            error = caught.value
            assert error.topic == "public/default/t"
            assert error.partition in down.lost
            assert error.details["node"] == down.node
            assert error.details["addresses"] == [down.node_address]
        held = [part.partition for part in client.topic("t").partitions if part.partition not in down.lost]
        assert sum(rows.num_rows for rows in client.read("t", partition=held)) == down.held


def test_the_command_says_after_two_seconds_for_whom_it_waits(down: Down) -> None:
    command = [str(PROGRAM), "read", "t", "--address", down.address, "--timeout", "7"]
    began = time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as running:
        assert running.stderr is not None
        line = running.stderr.readline()
        after_s = time.monotonic() - began
        error = running.stderr.read()
        assert running.wait(30) == Exit.UNREACHABLE
    assert 2.0 < after_s < 5.0, line
    [owner] = re.findall(rf"t: node {down.node}, which owns partition (\d+): {down.node_address} ", line)
    assert "retrying for" in line
    assert int(owner) in down.lost
    assert len(error.splitlines()) == 1
    [named] = re.findall(r"partition (\d+) cannot be read", error)
    assert int(named) in down.lost
    owned = ", ".join(map(str, down.lost))
    for text in (f"node {down.node}", down.node_address, owned, "--partition", "public/default/t"):
        assert text in error, error
    assert "END_OFFSETS" not in error


def test_a_drain_of_it_says_what_it_waits_for(down: Down) -> None:
    command = [str(PROGRAM), "node", "drain", str(down.node), "--http", down.http, "--wait"]
    reason = f"waiting for: partition {down.lost[0]} for node {down.node}, which is FAILED"
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as running:
        assert running.stderr is not None
        try:
            told = [
                running.stderr.readline() for _ in range(2)
            ]  # the node may hear of the run after the first
        finally:
            running.kill()
    assert reason in told[1], told
    status = cli("rebalance", "status", "--http", down.http)
    assert reason in status.stdout
    cancelled = cli("rebalance", "cancel", "--http", down.http)
    assert cancelled.returncode == Exit.OK, cancelled


def test_top_marks_what_its_owner_does_not_tell(down: Down) -> None:
    look = cli("top", "--topic", "t", "--count", "1", "--json", "--http", down.http)
    [told_by_all] = told(look.stdout)
    parts = {part["partition"]: part for part in told_by_all["partitions"]}
    assert sorted(number for number, part in parts.items() if part["rows"] is None) == down.lost
    assert sum(part["rows"] or 0 for part in parts.values()) == down.held
    shown = cli("top", "--topic", "t", "--count", "1", "--http", down.http)
    unknown = [line.split() for line in shown.stdout.splitlines() if " ? " in line]
    assert sorted(int(words[1]) for words in unknown) == down.lost
    at = next(
        n for n, line in enumerate(shown.stdout.splitlines()) if line.split()[:2] == ["topic", "partition"]
    )
    first = [line.split() for line in shown.stdout.splitlines()[at + 1 : at + 1 + len(down.lost)]]
    assert sorted(int(words[1]) for words in first) == down.lost, "what nobody serves comes first"


def test_top_of_a_topic_that_is_not_there_ends(down: Down) -> None:
    absent = cli("top", "--topic", "absent", "--http", down.http, timeout_s=20)
    assert absent.returncode == Exit.REFUSED, absent
    assert "there is no topic absent; `ringfence topic list` shows all" in absent.stderr
    with ringfence.connect(down.address) as client:
        client.create_topic("brief", schema=SCHEMA)
        command = [
            str(PROGRAM),
            "top",
            "--topic",
            "brief",
            "--json",
            "--interval",
            "0.2",
            "--http",
            down.http,
        ]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
            assert running.stdout is not None
            assert running.stderr is not None
            [part] = json.loads(running.stdout.readline())["partitions"]
            assert part["topic"] == "public/default/brief"
            client.delete_topic("brief")
            assert running.wait(20) == Exit.REFUSED
            [error] = told(running.stderr.read())
    assert "topic brief was deleted meanwhile" in error["message"]
