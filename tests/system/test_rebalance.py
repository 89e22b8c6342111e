"""Rebalances of running nodes over their admin API: paused, cancelled, begun at two nodes at once.

One cluster serves the whole file; each test waits until no run is under way.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

import ringfence
from ringfence.control.model.ids import NodeId, PartitionId, TopicId
from ringfence.control.model.reassignments import ChangeId
from ringfence.control.model.topics import Replica
from ringfence.control.runtime.rpc import messages
from ringfence.control.state_machines.reassignment.messages import Fence, ReassignmentOrder, Receive, Sync
from ringfence.control.transport.question import ask_address
from ringfence.native.wire import Code
from tests.harness.admin_cluster import (
    CRAWL_BYTES_S,
    FAST_BYTES_S,
    ROWS,
    SLOW_BYTES_S,
    STEP,
    TEXT,
    AdminCluster,
)
from tests.harness.admin_http import ask
from tests.harness.load import Load
from tests.harness.processes import (
    SCHEMA,
    NodeProcess,
    batch,
    check_identity,
    cli,
    free_port,
    read_ids,
    until,
)

LOOK_S = 2.0
QUICK_S = 0.02
"""An answer that takes longer tells of a moment that nobody knows."""


@pytest.fixture(scope="module")
def started(module_folder: Path) -> Iterator[AdminCluster]:
    desk = AdminCluster(module_folder)
    try:
        desk.three.start()
        yield desk
    finally:
        desk.three.kill_all()


@pytest.fixture
def desk(started: AdminCluster) -> AdminCluster:
    started.ended()
    started.configure(sync_bytes_per_s=0)
    return started


def paced(client: ringfence.Client, seconds: float) -> float:
    """Bytes a second of copies that leave a node."""

    def seen() -> tuple[float, int]:
        while True:
            asked = time.monotonic()
            count = int(client.status().counters["replicated_bytes"])
            if time.monotonic() - asked < QUICK_S:
                return time.monotonic(), count

    began, first = seen()
    time.sleep(seconds)
    ended, last = seen()
    return (last - first) / (ended - began)


def test_the_limit_of_a_copy_holds_within_a_tenth_and_changes_while_it_runs(desk: AdminCluster) -> None:
    """Z11; and Z15: nothing is forwarded before the move, and nothing after it, while rows come."""
    rows = 12 * ROWS
    partition, source, target = desk.create("paced", rows)
    assert desk.forwarded() == [0, 0, 0]
    desk.configure(sync_bytes_per_s=SLOW_BYTES_S)
    assert desk.start(source, (partition, target)).status == 201
    with ringfence.connect(desk.three.nodes[source].address, timeout_s=30) as client:
        for limit in (SLOW_BYTES_S, FAST_BYTES_S, SLOW_BYTES_S):
            desk.configure(target, sync_bytes_per_s=limit)
            rates: list[float] = []
            while not rates or abs(rates[-1] / limit - 1) > 0.1:
                # The first look may have begun under the limit before; a busy machine makes it slower.
                assert len(rates) < 2 or max(rates[1:]) / limit <= 1.1, (limit, rates)
                assert len(rates) < 5, (limit, rates)
                rates.append(paced(client, LOOK_S))
            print(f"limit {limit:,}: {', '.join(f'{rate:,.0f}' for rate in rates)} bytes a second")
    desk.configure(sync_bytes_per_s=0)
    ended = desk.ended()
    [move] = ended["moves"]
    assert (ended["outcome"], move["state"], move["attempts"]) == ("DONE", "COMMITTED", 1), ended
    assert move["rows"] == rows
    assert ended["reversible"], "its hold time is not over"
    before = desk.forwarded()
    with (
        ringfence.connect(desk.three.nodes[source].address, timeout_s=30) as client,
        client.producer("paced") as producer,
    ):
        producer.send(batch(rows, STEP, producer=1)).result(30)
    assert desk.forwarded() == before
    assert desk.owner("paced") == desk.three.id(target)


def test_a_pause_starts_nothing_and_a_cancel_leaves_no_copy_and_no_ring(desk: AdminCluster) -> None:
    """Z17, Z18, Z6: over HTTP at changing nodes, in the middle of a copy; `top` shows it."""
    first, source, target = desk.create("left")
    second, other, goal = desk.create("right")
    ring, held = desk.ring(), desk.counter(target, "partitions")
    desk.configure(sync_bytes_per_s=CRAWL_BYTES_S)
    started = desk.start(0, (first, target), (second, goal))
    assert started.status == 201, started

    def copied() -> int:
        return sum(move["bytes"] for move in desk.shown(1)["moves"] if move["state"] == "COPYING")

    until(lambda: copied() > 0, what="a copy")
    assert desk.counter(target, "partitions") > held, "it holds what it receives"
    assert [desk.steer(1, "pause"), desk.steer(2, "pause")] == [200, 200]
    so_far = copied()
    until(lambda: copied() > so_far, what="the running move goes on")
    shown = desk.shown(2)
    assert shown["state"] == "PAUSED"
    assert shown["counts"] == {"COPYING": 1, "PENDING": 1}
    assert [move["attempts"] for move in shown["moves"]] == [1, 0]
    for place in range(3):
        refused = desk.start(place, (second, goal))
        assert (refused.status, refused.slug) == (409, "already-exists"), refused
    top = cli("top", "--count", "2", "--interval", "0.5", "--json", "--http", desk.doors[2])
    look = json.loads(top.stdout.splitlines()[-1])
    [copying] = look["moves"]
    assert (copying["partition"], look["rebalance"]["state"]) == (first, "PAUSED"), look
    assert 0 < copying["bytes_s"] < 3 * CRAWL_BYTES_S
    assert [desk.steer(0, "resume"), desk.steer(1, "resume")] == [200, 200]
    assert desk.steer(2, "cancel") == 200
    ended = desk.ended()
    assert (ended["outcome"], sum(ended["counts"].values())) == ("CANCELLED", 2), ended
    assert "COMMITTED" not in ended["counts"]
    assert [desk.steer(place, verb) for place, verb in enumerate(("pause", "resume", "cancel"))] == [409] * 3
    until(lambda: desk.counter(target, "partitions") == held, what="a target without the copy")
    assert [desk.ring(place) for place in range(3)] == [ring] * 3
    assert [desk.owner("left"), desk.owner("right")] == [desk.three.id(source), desk.three.id(other)]
    history = ask(desk.doors[1], "GET", "/admin/rebalance/history").body["runs"]
    assert history[0]["outcome"] == "CANCELLED"
    desk.configure(sync_bytes_per_s=0)
    assert desk.start(1, (first, target), (second, goal)).status == 201
    assert desk.ended()["counts"] == {"COMMITTED": 2}
    desk.check("left")
    desk.check("right")


def test_starts_that_cannot_be_are_422_and_untimely_ones_409_and_change_nothing(desk: AdminCluster) -> None:
    """Z10: at every node, with the reason; neither run nor ring nor owner differs afterwards."""
    partition, source, target = desk.create("refused")
    spare = 3 - source - target
    run, ring = desk.shown()["run"], desk.ring()
    here, there, other = (desk.three.id(place) for place in (source, target, spare))

    def moves(*each: tuple[int, list[int]]) -> dict[str, Any]:
        return {"action": "move", "moves": [{"partition": number, "nodes": nodes} for number, nodes in each]}

    impossible: dict[str, Any] = {
        "body.action": {"action": "nonsense"},
        "Field required": {},
        "valid dictionary": "move",
        "body.extra": {**moves((partition, [there])), "extra": 1},
        "body.node": {"action": "drain", "node": "x"},
        "body.moves.0.nodes": moves((partition, [])),
        "body.moves.0.partition": moves((-1, [there])),
        "node 0 is not a member": {"action": "add_node"},
        "node 999 is not a member": {"action": "remove_node", "node": 999},
        "node 998 is not a member": moves((partition, [998])),
        "there is no partition 12345": moves((12_345, [there])),
        f"is already at [{here}]": moves((partition, [here])),
        "two moves in one plan": moves((partition, [there]), (partition, [other])),
        f"has 1 replicas, not [{there}, {here}]": moves((partition, [there, here])),
        "balance takes no node": {"action": "balance", "node": here},
        f"partition {partition} has no change that can": {"action": "reverse", "partitions": [partition]},
    }
    for place in range(3):
        for reason, given in impossible.items():
            refused = ask(desk.doors[place], "POST", "/admin/rebalance", given)
            assert refused.status == 422, (given, refused)
            assert reason in refused.body["detail"], refused
        assert ask(desk.doors[place], "POST", "/admin/rebalance/nonsense").status == 422
        for verb in ("pause", "resume", "cancel"):
            refused = ask(desk.doors[place], "POST", f"/admin/rebalance/{verb}")
            assert (refused.status, refused.slug) == (409, "already-exists"), refused
        shown = desk.shown(place)
        assert (shown["run"], shown["state"], desk.ring(place)) == (run, "IDLE", ring)
    desk.configure(sync_bytes_per_s=CRAWL_BYTES_S)
    assert desk.start(0, (partition, target)).status == 201
    run = desk.shown()["run"]
    for place in range(3):
        for given in (moves((partition, [other])), {"action": "balance"}, {"action": "drain", "node": there}):
            refused = ask(desk.doors[place], "POST", "/admin/rebalance", given)
            assert (refused.status, refused.slug) == (409, "already-exists"), (given, refused)
        assert desk.shown(place)["run"] == run
    assert desk.steer(1, "cancel") == 200
    assert desk.ended()["outcome"] == "CANCELLED"
    assert desk.owner("refused") == here
    desk.check("refused")


def test_of_two_starts_at_two_nodes_at_once_one_begins(desk: AdminCluster) -> None:
    partition, _, target = desk.create("twice")
    desk.configure(sync_bytes_per_s=CRAWL_BYTES_S)
    gate = Barrier(3)

    def start(place: int) -> Any:
        gate.wait(10)
        return desk.start(place, (partition, target))

    for _ in range(5):
        with ThreadPoolExecutor(3) as pool:
            told = list(pool.map(start, range(3)))
        assert sorted(answer.status for answer in told) == [201, 409, 409], told
        run = desk.shown()["run"]
        assert [answer.body["index"] for answer in told if answer.status == 201] == [run]
        assert desk.steer(1, "cancel") == 200
        desk.ended()
    desk.check("twice")


def test_orders_of_changes_that_are_over_and_of_older_terms_do_nothing(desk: AdminCluster) -> None:
    """Old control messages that come again: each is refused by name, and rows go in and out as before.

    Nothing is forwarded before the move, nor after it in the time in which it could be reversed (Z15).
    """
    none = desk.forwarded()
    partition, source, target = desk.create("replayed")
    assert desk.forwarded() == none
    assert desk.start(0, (partition, target)).status == 201
    ended = desk.ended()
    assert (ended["outcome"], [kept["partition"] for kept in ended["reversible"]][-1:]) == (
        "DONE",
        [partition],
    )
    moved = desk.forwarded()
    assert sum(moved) > sum(none) + ROWS * len(TEXT)
    load = Load(desk.three.nodes[0].address, "replayed", 1).start()
    told = ask(desk.doors[0], "GET", f"/admin/partitions/{partition}").body
    term = desk.three.listed(0)["term"]
    places = [_place(desk.three.nodes[place]) for place in range(3)]
    over: dict[str, Any] = {
        "topic": TopicId(told["topic"]),
        "partition": PartitionId(partition),
        "change": ChangeId(told["epoch"]),
    }
    orders: list[ReassignmentOrder] = [
        Fence(to=places[target], **over),
        Fence(to=places[source], **over),
        Receive(to=places[source], owner=places[target], **over),
        Sync(to=places[target], target=places[source], **over),
        Receive(to=places[3 - source - target], owner=places[target], **over),
    ]
    for order in orders:
        place = places.index(order.to)
        for number in (term, term - 1, 0):
            call = messages.encode(messages.ExecuteOrder(term=number, order=order))
            answer = messages.decode_reply(ask_address(desk.three.controls[place], call, 10.0))
            assert isinstance(answer, messages.Refusal), (order, number, answer)
            assert answer.code == Code.TOO_OLD, answer
    seen = len(load.acknowledged)
    until(lambda: load.errors or len(load.acknowledged) > seen + 500, what="rows after them")
    load.finish()
    assert load.errors == []
    assert desk.forwarded() == moved
    assert ask(desk.doors[0], "GET", f"/admin/partitions/{partition}").body == told
    with ringfence.connect(desk.three.nodes[0].address, timeout_s=30) as client:
        rows = read_ids(client, "replayed")
    check_identity(rows, {0: range(ROWS), 1: load.acknowledged}, {0: ROWS, 1: load.sent})


def _place(node: NodeProcess) -> Replica:
    return Replica(NodeId(int(node.ready["node"])), bytes.fromhex(node.ready["store"]))


def test_top_shows_rows_bytes_and_lag_of_each_partition(desk: AdminCluster) -> None:
    """One of three replicas stands still: rows are acknowledged without it, and its lag is told."""
    with ringfence.connect(desk.three.nodes[0].address, timeout_s=60) as client:
        [part] = client.create_topic("copied", schema=SCHEMA, partitions=1, replication=3).partitions

        def shown() -> dict[str, Any]:
            door = ",".join(desk.doors[at] for at in range(3) if at != frozen)
            top = cli("top", "--topic", "copied", "--count", "1", "--json", "--http", door)
            assert top.returncode == 0, top.stderr
            [found] = json.loads(top.stdout)["partitions"]
            return {
                name: found[name] for name in ("topic", "partition", "owner", "rows", "bytes", "lag_records")
            }

        frozen = next(at for at in range(3) if desk.three.id(at) != part.owner)
        place = {"topic": "public/default/copied", "partition": part.partition, "owner": part.owner}
        with client.producer("copied") as producer:
            producer.send(batch(0, STEP)).result(30)
            until(lambda: shown()["lag_records"] == 0, what="level replicas")
            desk.three.nodes[frozen].freeze()
            try:
                for start in range(STEP, 6 * STEP, STEP):
                    producer.send(batch(start, STEP)).result(30)
                behind = shown()
            finally:
                desk.three.nodes[frozen].wake()
        assert behind == {**place, "rows": 6 * STEP, "bytes": behind["bytes"], "lag_records": 5}
        assert behind["bytes"] > 6 * STEP * 10
        until(lambda: shown()["lag_records"] == 0, what="it caught up")
    desk.three.until_whole()


def test_joining_moves_nothing_and_the_policy_evens_loads_only_when_it_is_switched_on(
    desk: AdminCluster, tmp_path: Path
) -> None:
    """J7, Z12; then the new node is drained, comes back, and stays empty until it is undrained (F18)."""
    control = f"tcp://127.0.0.1:{free_port()}"
    spare = NodeProcess(tmp_path / "d", options=("--control", control, "--join", desk.three.controls[0]))
    with ringfence.connect(desk.three.nodes[0].address, timeout_s=30) as client:
        client.create_topic("loaded", schema=SCHEMA, key=["id"], partitions=6)
    run = desk.shown()["run"]

    def owners(topic: str = "loaded") -> list[int]:
        with ringfence.connect(desk.three.nodes[0].address, timeout_s=30) as client:
            return [part.owner for part in client.topic(topic).partitions]

    before = owners()
    load = Load(desk.three.nodes[0].address, "loaded", 0).start()
    with spare:
        number = int(spare.ready["node"])
        until(lambda: number in desk.ring()["members"], what="it is in the ring")
        limits = {"policy_grace_s": 0, "policy_check_interval_s": 1, "policy_cooldown_s": 0}
        desk.configure(**limits)
        time.sleep(2.5)  # two looks of a policy that would act
        shown = desk.shown()
        assert (shown["run"], shown["policy"], owners()) == (run, None, before)
        desk.configure(policy_enabled=1)
        until(lambda: desk.shown()["run"] > run and desk.shown()["state"] == "IDLE", what="its run")
        desk.configure(policy_enabled=0)
        shown = desk.ended()
        assert shown["why"].startswith("policy: loads node"), shown
        assert shown["outcome"] == "DONE"
        assert set(owners()) == {*before, number}, "the new one has its share, and nobody is empty"
        _drained_and_back(desk, spare, owners)
        load.finish()
        assert load.errors == []
        with ringfence.connect(desk.three.nodes[0].address, timeout_s=30) as client:
            check_identity(read_ids(client, "loaded"), {0: load.acknowledged}, {0: load.sent})


def _drained_and_back(desk: AdminCluster, spare: NodeProcess, owners: Callable[..., list[int]]) -> None:
    node = str(spare.ready["node"])
    door = ("--http", desk.doors[1])
    assert cli("node", "drain", node, "--wait", *door).returncode == 0
    assert int(node) not in owners()
    assert spare.stop() == 0
    spare.start()

    def told() -> Any:
        return ask(desk.doors[0], "GET", f"/admin/nodes/{node}").body

    until(lambda: told()["life"] == "LIVE", what="it is back")
    assert (told()["draining"], told()["replicas"]) == (True, 0)

    def placed(name: str) -> list[int]:
        with ringfence.connect(desk.three.nodes[0].address, timeout_s=30) as client:
            client.create_topic(name, schema=SCHEMA, key=["id"], partitions=8)
        return owners(name)

    assert int(node) not in placed("while-drained")
    assert cli("node", "undrain", node, *door).returncode == 0
    assert placed("undrained").count(int(node)) >= 2
