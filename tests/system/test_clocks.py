"""One node's wall clock is 400 days ahead: times of rows and of the metadata stay near the true time."""

from __future__ import annotations

import datetime as dt
import json
import time
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest

import ringfence
from tests.harness.clocks import CLOCK_READ_S, ProcessClock
from tests.harness.cluster import ThreeNodes
from tests.harness.processes import SCHEMA, NodeProcess, batch, free_port, until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

AHEAD_S = 400 * 86_400
BOUND_S = 300
"""How far a time may be from the cluster's."""
SLACK_S = 2.0
"""Clocks are read every second, and estimates come with heartbeats."""
ELECTIONS_MAX = 20
"""A leader that restarts leaves the choice to two nodes: each of them wins about every second time."""


class Clocked:
    """Three nodes with a wall clock each, and the admin API."""

    def __init__(self, root: Path) -> None:
        self.three = ThreeNodes(root, options=("--segment-bytes", "1MiB"))
        self.clocks = [ProcessClock(root / f"clock-{place}") for place in range(3)]
        self.https = [f"127.0.0.1:{free_port()}" for _ in range(3)]
        for node, clock, http in zip(self.three.nodes, self.clocks, self.https, strict=True):
            node.environment = clock.environment
            node.options = (*node.options, "--http", http)

    @property
    def addresses(self) -> str:
        return ",".join(node.address for node in self.three.nodes)

    def restart_ahead(self, place: int) -> None:
        """Restart a node with a clock that is 400 days ahead."""
        assert self.three.nodes[place].stop() == 0
        self.clocks[place].set(AHEAD_S)
        self.three.nodes[place].restart()
        self.three.until_whole()

    def make_leader(self, place: int) -> None:
        """Restart leaders until this node leads."""
        for _ in range(ELECTIONS_MAX):
            leader = self.three.leader()
            if leader == place:
                return
            # Killed: a leader that stops gives its place to a node of its choice, perhaps never to this one.
            self.three.nodes[leader].kill()
            self.three.nodes[leader].restart()
            self.three.until_whole()
        raise AssertionError(f"{ELECTIONS_MAX} elections, and another node leads")

    def create_as_leader(self, place: int, names: list[str]) -> bool:
        """Make this node the leader, and create topics. False: it did not lead the whole time."""
        self.make_leader(place)
        term = self.three.listed(place)["term"]
        with ringfence.connect(self.addresses, timeout_s=60) as client:
            for name in names:
                client.create_topic(name, schema=SCHEMA, key=["id"], partitions=1)
        after = self.three.listed(place)
        return bool((after["leader"], after["term"]) == (self.three.id(place), term))

    def reasons(self, place: int) -> str:
        with ringfence.connect(self.three.nodes[place].address, timeout_s=30) as client:
            return " ".join(client.status().reasons)


def metadata_s(http: str) -> float:
    """The time of the metadata."""
    with urllib.request.urlopen(f"http://{http}/admin/metadata", timeout=30) as answer:
        told: dict[str, Any] = json.load(answer)
    return float(told["time_ms"]) / 1000


def is_near(time_s: float, began_s: float, bound_s: float) -> bool:
    """Whether a time that was taken since `began_s` is within the bound of the true time."""
    return began_s - bound_s - SLACK_S <= time_s <= time.time() + bound_s + SLACK_S


@pytest.fixture
def clocked(tmp_path: Path) -> Iterator[Clocked]:
    cluster = Clocked(tmp_path)
    try:
        cluster.three.start()
        yield cluster
    finally:
        cluster.three.kill_all()


def row_times(client: ringfence.Client, topic: str) -> dict[int, list[tuple[int, float]]]:
    """Offset and time of each batch, by partition."""
    times: dict[int, list[tuple[int, float]]] = {}
    with client.read(topic) as reader:
        for _ in reader:
            place = reader.place
            assert place is not None
            times.setdefault(place.partition, []).append((place.first_offset, place.time_ms / 1000))
    return times


def test_an_owner_that_starts_400_days_ahead_stores_times_near_the_true_one(clocked: Clocked) -> None:
    three = clocked.three
    with ringfence.connect(clocked.addresses, timeout_s=60) as client:
        client.create_topic("t", schema=SCHEMA, key=["id"], partitions=6)
        with client.producer("t") as plain, client.producer("t", name="P") as named:
            plain.send(batch(0, 60, 1)).result(60)
            named.send(batch(0, 60, 2), note=b"first", number=1).result(60)
            wrong = {part for part, (owner, _) in three.placed(0, "t").items() if owner == three.id(2)}
            assert wrong, "node 3 owns no partition"
            firsts = {part: ends.end for part, ends in client.end_offsets("t").items()}
            last_s = max(found[-1][1] for found in row_times(client, "t").values())
            between = dt.datetime.fromtimestamp(last_s + 0.002, dt.UTC)
            clocked.restart_ahead(2)
            until(
                lambda: "ahead of the cluster's time" in clocked.reasons(2), what="node 3 compares its clock"
            )
            plain.send(batch(60, 60, 1)).result(60)
            named.send(batch(60, 60, 2), note=b"second", number=2).result(60)
            now_s = time.time()
            times = row_times(client, "t")
            newest = {part: found[-1][1] for part, found in times.items()}
            assert max(newest.values()) <= now_s + BOUND_S + SLACK_S
            assert all(newest[part] > now_s + BOUND_S / 2 for part in wrong), "the node's clock is wrong"
            assert client.offsets_at("t", between) == firsts

            clocked.clocks[2].set(0)
            until(lambda: "clock" not in clocked.reasons(2), what="the clock is right again")
            plain.send(batch(120, 60, 1)).result(60)
        # Named producers do not expire, and the live one above was not forgotten.
        with client.producer("t", name="P") as again:
            assert {point.send for point in again.resume.values()} == {2}
            again.send(batch(60, 60, 2), note=b"second", number=2).result(60)
            again.send(batch(120, 60, 2), note=b"third", number=3).result(60)
        assert client.count("t") == 2 * 180
        last = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=BOUND_S + SLACK_S)
        assert client.offsets_at("t", last) == {
            part: ends.end for part, ends in client.end_offsets("t").items()
        }


def test_a_leader_400_days_ahead_does_not_push_the_time_of_the_metadata(clocked: Clocked) -> None:
    clocked.restart_ahead(1)
    began_s = time.time()
    # On a loaded machine an election may come between: then the entries are not of this leader alone.
    rounds = ([f"t{turn}-{number}" for number in range(20)] for turn in range(5))
    names = next((names for names in rounds if clocked.create_as_leader(1, names)), None)
    assert names is not None, "five times another node was elected while topics were created"
    for http in clocked.https:
        assert is_near(metadata_s(http), began_s, BOUND_S)
    with ringfence.connect(clocked.addresses, timeout_s=60) as client:
        for name in names:
            with client.producer(name) as producer:
                producer.send(batch(0, 1)).result(60)
        for name in names:
            [found] = row_times(client, name).values()
            assert is_near(found[-1][1], began_s, BOUND_S)


def test_age_retention_goes_on_after_an_owner_was_400_days_ahead_for_seconds(clocked: Clocked) -> None:
    with ringfence.connect(clocked.addresses, timeout_s=60) as client:
        info = client.create_topic("aged", schema=SCHEMA, key=["id"], partitions=3, retention_ms=1_000)
        with client.producer("aged") as producer:
            producer.send(batch(0, 1_000)).result(60)
            for clock in clocked.clocks:
                clock.set(AHEAD_S)
            until(
                lambda: all("ahead of" in clocked.reasons(place) for place in range(3)),
                what="all clocks are wrong",
            )
            producer.send(batch(1_000, 1_000)).result(60)
            during = {part: ends.end for part, ends in client.end_offsets("aged").items()}
            for clock in clocked.clocks:
                clock.set(0)
            until(
                lambda: not any("ahead of" in clocked.reasons(place) for place in range(3)),
                what="all clocks are right",
            )
            # The file that is written to stays; these rows fill others.
            for start in range(2_000, 40_000, 1_000):
                producer.send(batch(start, 1_000, text="x" * 200)).result(60)
        for part in (one.partition for one in info.partitions):

            def starts_after(part: int = part) -> bool:
                return client.end_offsets("aged")[part].start >= during[part]

            until(starts_after, what=f"rows of partition {part} from the wrong time are removed")


def test_a_node_alone_keeps_the_time_of_its_metadata_when_its_clock_jumps_for_seconds(tmp_path: Path) -> None:
    clock, http = ProcessClock(tmp_path / "clock"), f"127.0.0.1:{free_port()}"
    node = NodeProcess(tmp_path / "data", options=("--http", http), environment=clock.environment)
    with node, ringfence.connect(node.address, timeout_s=30) as client:
        clock.set(AHEAD_S)
        until(lambda: "ahead of" in " ".join(client.status().reasons), what="the clock is wrong")
        began_s = time.time()
        client.create_topic("t", schema=SCHEMA, key=["id"], partitions=1)
        with client.producer("t") as producer:
            producer.send(batch(0, 1)).result(30)
        assert is_near(metadata_s(http), began_s, CLOCK_READ_S)
        [found] = row_times(client, "t").values()
        assert is_near(found[-1][1], began_s, CLOCK_READ_S)
