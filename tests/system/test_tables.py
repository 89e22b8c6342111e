"""Who owns what, as each node tells it to clients and administrators, while nodes come and stand still.

One cluster of three serves the whole file: every test leaves it whole.
"""

from __future__ import annotations

import re
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any, NamedTuple, Self

import pytest

import ringfence
from ringfence.native import messages, wire
from tests.fakes.admin_api import PLACE, TOPIC, send
from tests.harness.admin_http import ask, with_http
from tests.harness.cluster import ThreeNodes
from tests.harness.load import Load
from tests.harness.processes import SCHEMA, NodeProcess, batch, cli, until
from tests.harness.raw_client import RawClient, RawTopic

MIB = 1 << 20


class Cluster(NamedTuple):
    three: ThreeNodes
    http: list[str]

    def asked(self, place: int, path: str) -> Any:
        return asked(self.http[place], path)

    def limit(self, **values: int) -> None:
        changed = ask(self.http[self.three.leader()], "PATCH", "/admin/config", {"values": values})
        assert changed.status == 200, changed

    def follower(self) -> int:
        leader = self.three.leader()
        return next(place for place in range(3) if place != leader)


def asked(address: str, path: str) -> Any:
    answer = send(address, "GET", path)
    assert answer.status == 200, answer
    return answer.body


@pytest.fixture(scope="module")
def started(module_folder: Path) -> Iterator[Cluster]:
    three = ThreeNodes(module_folder)
    http = [with_http(node) for node in three.nodes]
    try:
        three.start()
        three.create(0, "t", partitions=6)
        yield Cluster(three, http)
    finally:
        for place in range(3):
            if three.alive(place):
                three.nodes[place].wake()
        three.kill_all()


@pytest.fixture
def cluster(started: Cluster) -> Cluster:
    started.three.until_whole()
    return started


def check_table(node: NodeProcess, http: str) -> None:
    """F1: the first request of a connection gives what administrators are shown at that node."""
    shown, placed = asked(http, f"{PLACE}/layout"), asked(http, f"{PLACE}/assignments")
    with RawClient(node.address) as fresh:
        table = fresh.ask(wire.Opcode.TABLE, topic=shown["topic"]).read(messages.Table)
    assert (table.version, table.history.hex()) == (shown["version"], asked(http, "/admin/status")["history"])
    described = ("partition", "lo", "hi", "state", "parents", "children", "created_version", "sealed_version")
    assert [{name: getattr(part, name) for name in described} for part in table.partitions] == [
        {name: part[name] for name in described} for part in shown["partitions"]
    ]
    assert [(part.partition, part.owner, part.epoch) for part in table.partitions] == [
        (part["partition"], part["owner"], part["epoch"]) for part in placed["partitions"]
    ]
    addresses = {one["node"]: one["addresses"] for one in asked(http, "/admin/nodes")["nodes"]}
    owners = {part.owner for part in table.partitions}
    assert {one.node: one.addresses for one in table.nodes} == {owner: addresses[owner] for owner in owners}


def went(address: str) -> dict[int, int]:
    """Of the same 600 rows: how many went to which partition."""
    with ringfence.connect(address, timeout_s=30) as client, client.producer("t") as producer:
        return {part.partition: part.rows for part in producer.send(batch(0, 600)).result(30)}


def test_a_node_that_joins_gives_the_same_table_and_moves_nothing(cluster: Cluster, tmp_path: Path) -> None:
    """J5, J6, J7: the fourth of four is a learner."""
    three = cluster.three
    before, run = cluster.asked(0, f"{PLACE}/assignments"), cluster.asked(0, "/admin/rebalance")["run"]
    rows = went(three.nodes[0].address)
    assert len(rows) == 6
    fourth = NodeProcess(tmp_path / "d", options=("--join", three.controls[0]))
    http = with_http(fourth)
    with fourth:
        number = fourth.ready["node"]
        every = [*zip(three.nodes, cluster.http, strict=True), (fourth, http)]
        for _, address in every:
            until(lambda address=address: number in asked(address, "/admin/ring")["members"], what="its ring")
        known = {one["node"]: one["role"] for one in asked(http, "/admin/nodes")["nodes"]}
        assert known[number] == "learner"
        for node, address in every:
            check_table(node, address)
        assert went(fourth.address) == rows
        assert asked(http, f"{PLACE}/assignments") == before
        assert asked(http, "/admin/rebalance")["run"] == run
        done = cli("node", "remove", str(number), "--control", three.controls[0])
        assert done.returncode == 0, done.stderr


def test_a_table_is_in_progress_while_a_node_is_held_back(cluster: Cluster) -> None:
    """J10: what is pending is named, with who is waited for."""
    three, held = cluster.three, cluster.follower()
    other, late = three.leader(), three.id(held)
    place = PLACE.removesuffix("t") + "held"

    def shown() -> Any:
        answer = send(cluster.http[other], "GET", f"{place}/assignments")
        return answer.body if answer.status == 200 else {"pending": [], "state": "", "partitions": []}

    with ThreadPoolExecutor(1) as pool:
        three.nodes[held].freeze()
        try:
            given = {**TOPIC, "name": "held", "partitions": 6}
            making = pool.submit(ask, cluster.http[other], "POST", "/admin/topics", given)
            until(lambda: [order["node"] for order in shown()["pending"]] == [late] * 2, what="two pending")
            told = shown()
            assert told["state"] == "IN_PROGRESS"
            assert [part["state"] for part in told["partitions"]] == [
                "ASSIGNED" if part["owner"] == late else "ONLINE" for part in told["partitions"]
            ]
            assert {order["partition"] for order in told["pending"]} == {
                part["partition"] for part in told["partitions"] if part["owner"] == late
            }
        finally:
            three.nodes[held].wake()
        assert making.result(30).status in {201, 202}
    until(lambda: (shown()["state"], shown()["pending"]) == ("ASSIGNED", []), what="all are open")
    assert {part["state"] for part in shown()["partitions"]} == {"ONLINE"}


def test_a_partition_is_shown_as_moving_by_every_node_until_it_has_moved(cluster: Cluster) -> None:
    three = cluster.three
    [part] = three.create(0, "moves", partitions=1).partitions
    target = next(three.id(place) for place in range(3) if three.id(place) != part.owner)
    place = PLACE.removesuffix("t") + "moves"
    with ringfence.connect(three.nodes[0].address, timeout_s=30) as client, client.producer("moves") as into:
        for start in range(0, 8_000, 1_000):
            into.send(batch(start, 1_000, text="x" * 500))

    def states() -> set[tuple[int, str]]:
        every = [asked(address, f"{place}/assignments")["partitions"] for address in cluster.http]
        return {(part["owner"], part["state"]) for [part] in every}

    cluster.limit(sync_bytes_per_s=MIB // 4)
    try:
        move = {"action": "move", "moves": [{"partition": part.partition, "nodes": [target]}]}
        started = ask(cluster.http[1], "POST", "/admin/rebalance", move)
        assert started.status in {200, 201, 202}, started
        until(lambda: states() == {(part.owner, "MOVING")}, 30, "every node says that it moves")
    finally:
        cluster.limit(sync_bytes_per_s=0)
    until(lambda: states() == {(target, "ONLINE")}, what="it has moved")


def test_how_long_a_node_may_be_silent_is_a_setting(cluster: Cluster) -> None:
    """J11: and one that failed owns what it owned, when it is heard again."""
    three, silent, leader = cluster.three, cluster.follower(), cluster.three.leader()
    shown = cluster.asked(leader, "/admin/config")["values"]
    assert (shown["heartbeat_ms"]["value"], shown["failure_ms"]["value"]) == (200, 2_000)
    before = three.placed(leader, "t")
    cluster.limit(failure_ms=60_000)
    three.nodes[silent].freeze()
    try:
        time.sleep(4)  # twice of what it is without the change
        assert three.life(silent, seen_by=leader) == "LIVE"
        cluster.limit(failure_ms=2_000)
        for place in range(3):
            if place != silent:
                until(lambda place=place: three.life(silent, seen_by=place) == "FAILED", what="it has failed")
    finally:
        three.nodes[silent].wake()
    until(lambda: three.life(silent, seen_by=silent) == "LIVE", what="it lives again")
    assert three.placed(silent, "t") == before


def test_loads_that_vary_leave_no_entry_in_the_log(cluster: Cluster) -> None:
    """F35: nodes tell of them every 2 s; an entry that came of it would be in every window of two of them."""
    three = cluster.three
    plan = cluster.asked(0, "/admin/rebalance/preview?action=balance")
    loads = [
        Load(three.nodes[place].address, "t", 70 + place, rows=20 + 200 * place, pause_s=0.0).start()
        for place in range(2)
    ]
    until(lambda: all(load.acknowledged for load in loads), what="all producers under way")

    def told() -> Any:
        return cluster.asked(0, "/admin/rebalance")["loads"]

    def is_quiet() -> bool:
        before, seen = three.listed(0)["index"], 0
        last, until_s = told(), time.monotonic() + 20
        while seen < 2 and time.monotonic() < until_s:
            time.sleep(0.1)
            now = told()
            seen, last = seen + (now != last), now
        return seen == 2 and three.listed(0)["index"] == before

    until(lambda: len(told()) == 3 and all(load["requests_s"] for load in told()), what="loads of all nodes")
    until(is_quiet, what="a window without an entry")
    loads[1].finish()
    until(is_quiet, what="another one, with another load")
    assert cluster.asked(0, "/admin/rebalance/preview?action=balance")["moves"] == plan["moves"]
    loads[0].finish()
    assert [load.errors for load in loads] == [[], []]


class Stopped(Event):
    """Something that runs beside a test, until it ends however it ends."""

    def __enter__(self) -> Self:
        self._pool = ThreadPoolExecutor(1)
        return self

    def run(self, what: Callable[[], None]) -> Future[None]:
        return self._pool.submit(what)

    def __exit__(self, *_: object) -> None:
        self.set()
        self._pool.shutdown()


def advertised(http: str, topic: str) -> dict[int, float]:
    """What a node's metrics say of a topic's partitions."""
    with urllib.request.urlopen(f"{http}/metrics", timeout=30) as answer:
        text = answer.read().decode()
    shown = r'^ringfence_advertised_load_bytes_per_second\{partition="(\d+)",topic="([^"]*)"\} (\S+)$'
    found = re.findall(shown, text, re.MULTILINE)
    return {int(part): float(load) for part, name, load in found if name == topic}


def test_whole_batches_go_where_less_is_written(cluster: Cluster) -> None:
    """F34: every node tells the load of each partition, in its metrics and in its tables, without a push."""
    three, name = cluster.three, "public/default/loose"
    with ringfence.connect(three.nodes[0].address, timeout_s=30) as client, Stopped() as stopped:
        client.create_topic("loose", schema=SCHEMA, partitions=3)
        producer = client.producer("loose")
        table = producer._encoder.layout
        busy = table.active[0]
        at = next(place for place in range(3) if three.id(place) == busy.owner)

        def write() -> None:
            with RawClient(three.nodes[at].address) as raw:
                topic = RawTopic.existing(raw, table.topic, "loose")
                index = [part.partition for part in topic.table.partitions].index(busy.partition)
                for number in range(3_000):
                    if stopped.wait(0.01):
                        return
                    answer = topic.publish(batch(number * 50, 50, text="y" * 200), number, index)
                    assert answer.status == wire.Status.OK, answer

        writing = stopped.run(write)

        def is_known() -> bool:
            told = [advertised(http, name) for http in cluster.http]
            return all(len(one) == 3 and one[busy.partition] > 4 * sum(one.values()) / 5 > 0 for one in told)

        until(is_known, 30, "every node advertises the load")

        def sent() -> Counter[int]:
            parts = [producer.send(batch(start, 1)).result(30)[0].partition for start in range(30)]
            return Counter(parts)

        assert not writing.done()
        others = [part.partition for part in table.active[1:]]

        def is_spared() -> bool:
            went = sent()
            return went[busy.partition] < min(went[other] for other in others) / 2

        until(is_spared, 30, "a producer that was there before prefers the others")
        stopped.set()
        writing.result(30)
        producer.close()
    until(lambda: not any(advertised(cluster.http[0], name).values()), 60, "the load is gone")
