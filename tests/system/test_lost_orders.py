"""Orders between nodes that are lost, that come twice, or that no store can carry out any more (J4, J12)."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread
from typing import Any, Self

import pytest

import ringfence
from ringfence.control.model.ids import Epoch, NodeId, PartitionId, TopicId
from ringfence.control.model.reassignments import ChangeId
from ringfence.control.model.topics import Replica
from ringfence.control.runtime.rpc import messages
from ringfence.control.state_machines.reassignment.messages import (
    Fence,
    LookOpen,
    Prove,
    ReassignmentOrder,
    Receive,
    Sync,
)
from ringfence.control.transport.question import ask_address
from ringfence.native.errors import ConnectError
from ringfence.native.wire import Code
from tests.harness.admin_cluster import ROWS, AdminCluster
from tests.harness.admin_http import ask
from tests.harness.cluster import MEMORY, ThreeNodes
from tests.harness.load import Load
from tests.harness.loaded_cluster import grown
from tests.harness.network import Network
from tests.harness.processes import NodeProcess, batch, check_identity, cli, free_port, read_ids, until

PARTITIONS = 6
ROUNDS_MAX, LOST_MIN = 6, 10
"""Moves of all partitions until each kind of order has come twice, and packets that must be lost by then."""
LOST_PERCENT = 3
"""Of the packets between control addresses: each of them ends a connection with what is under way on it."""


@pytest.fixture
def network() -> Iterator[Network]:
    with Network(3) as made:
        yield made


@pytest.fixture
def lossy(tmp_path: Path, network: Network) -> Iterator[ThreeNodes]:
    options = ("--insecure", "--segment-bytes", "4MiB", "--faults", "slow_sync_ms=80")
    three = ThreeNodes(tmp_path, hosts=network.hosts, prefixes=network.prefixes, options=options)
    try:
        yield three.start()
    finally:
        network.heal()
        three.kill_all()


def asked(three: ThreeNodes, place: int, call: messages.Call) -> messages.Reply | None:
    """The reply of the node at `place`; None if none came."""
    with suppress(ConnectError):
        return messages.decode_reply(ask_address(three.controls[place], messages.encode(call), 3.0))
    return None


class Repeater:
    """Sends the orders of open changes once more, early and late ones, and in the end all of them again."""

    def __init__(self, three: ThreeNodes, topic: int) -> None:
        self._three, self._topic = three, topic
        self.orders: dict[ReassignmentOrder, int] = {}
        """With the times that each was carried out."""
        self._places = {node: place for place, node in enumerate(map(_replica, three.nodes))}
        self._over = Event()
        self._thread = Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(60)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        while not self._over.is_set():
            shown = asked(self._three, 0, messages.ShowRebalance())
            moves = shown.value["moves"] if isinstance(shown, messages.Document) else []
            for move in moves:
                if move["state"] in {"DUAL_WRITE", "COPYING", "VERIFYING"}:
                    self._learn(move["partition"])

    def _learn(self, partition: int) -> None:
        shown = asked(self._three, 0, messages.ShowPartition(partition=partition, here=True))
        change = shown.value["change"] if isinstance(shown, messages.Document) else None
        if change is None or change["kind"] != "MOVE":
            return
        assert isinstance(shown, messages.Document)
        replicas = {place.node: place for place in self._places}
        source, target = replicas[shown.value["owner"]], replicas[change["owner"]]
        if source == target:  # it is committed
            return
        common: dict[str, Any] = {
            "topic": TopicId(self._topic),
            "partition": PartitionId(partition),
            "change": ChangeId(change["change"]),
            "attempt": change["attempt"],
        }
        orders: tuple[ReassignmentOrder, ...] = (
            Receive(to=target, owner=source, **common),
            Sync(to=source, target=target, **common),
            Fence(to=source, **common),
            Prove(to=target, records=1, **common),
            LookOpen(to=target, epoch=Epoch(change["change"]), **common),
        )
        self._send(orders)

    def done(self) -> dict[str, int]:
        """How many orders of each kind were carried out once more."""
        counts = dict.fromkeys(("Receive", "Sync", "Fence", "Prove", "LookOpen"), 0)
        for order, times in list(self.orders.items()):
            counts[type(order).__name__] += times
        return counts

    def repeat(self) -> None:
        """Every order once more."""
        self._send(list(self.orders)[-5 * PARTITIONS :])

    def _send(self, orders: Iterable[ReassignmentOrder]) -> None:
        term = max(self._three.listed(place)["term"] for place in range(3))
        for order in orders:
            reply = asked(self._three, self._places[order.to], messages.ExecuteOrder(term=term, order=order))
            self.orders[order] = self.orders.get(order, 0) + isinstance(reply, messages.OrderAnswer)


def _replica(node: NodeProcess) -> Replica:
    return Replica(NodeId(int(node.ready["node"])), bytes.fromhex(node.ready["store"]))


def move_all(three: ThreeNodes) -> None:
    """Move every partition of `t` to another node, in one run."""
    moves = []
    for part, (node, _) in three.placed(1, "t").items():
        away = next(three.id(place) for place in range(3) if three.id(place) != node)
        moves += ["--move", f"{part}:{away}"]
    started = cli("rebalance", "start", "move", *moves, "--control", three.controls[1])
    assert started.returncode == 0, started
    status: dict[str, Any] = {}

    def is_shown() -> bool:
        """Also the command's questions get lost."""
        shown = cli("rebalance", "status", "--json", "--control", three.controls[1])
        if shown.returncode == 0:
            status.update(json.loads(shown.stdout))
        return shown.returncode == 0

    until(is_shown, 120, "the status of the run")
    run = status["run"]
    ended: dict[str, Any] = {}

    def is_over() -> bool:
        shown = asked(three, 1, messages.ShowRebalance())
        ended.update(shown.value if isinstance(shown, messages.Document) else {"state": ""})
        return bool(ended["state"] == "IDLE" and ended["run"] == run)

    until(is_over, 120, "the end of the moves")
    assert (ended["outcome"], ended["counts"]) == ("DONE", {"COMMITTED": PARTITIONS}), ended


@pytest.mark.timeout(300)
def test_moves_end_although_messages_are_lost_and_orders_come_twice(
    lossy: ThreeNodes, network: Network, soak: int
) -> None:
    """J4: retried until they are answered; a repeated order empties nothing, also after rows came in."""
    three = lossy
    topic = three.create(0, "t", partitions=PARTITIONS)
    loads = [Load(",".join(node.address for node in three.nodes), "t", place).start() for place in range(2)]
    until(grown(loads, 500), what="rows")
    ports = [int(control.rpartition(":")[2]) for control in three.controls]
    for place in range(3):
        network.lose(place, ports[place], LOST_PERCENT)
    done, lost = dict[str, int](), 0
    with Repeater(three, topic.topic) as repeater:
        for round_number in range(ROUNDS_MAX * soak):
            done = repeater.done()
            lost = sum(network.lost(place) for place in range(3))
            if (
                round_number >= soak
                and done["Receive"]
                and done["Sync"]
                and done["Fence"]
                and lost > LOST_MIN
            ):
                break
            move_all(three)
        network.heal()
        until(grown(loads, 500), what="rows after the moves")
        repeater.repeat()
    print(f"{lost} packets ended a connection; orders that were carried out again: {done}")
    assert lost > LOST_MIN, "too few messages were lost"
    assert done["Receive"] and done["Sync"] and done["Fence"], "orders did not come twice"
    until(grown(loads, 500), what="rows after the last orders")
    for load in loads:
        load.finish()
    assert [load.errors for load in loads] == [[], []]
    with ringfence.connect(three.nodes[2].address, timeout_s=30) as client:
        rows = read_ids(client, "t")
    acknowledged = {load.producer: load.acknowledged for load in loads}
    check_identity(rows, acknowledged, {load.producer: load.sent for load in loads})


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[AdminCluster]:
    made = AdminCluster(tmp_path)
    try:
        made.three.start()
        yield made
    finally:
        made.three.kill_all()


def move(desk: AdminCluster, place: int) -> dict[str, Any]:
    [shown] = desk.shown(place)["moves"]
    return dict(shown)


def orders_of(desk: AdminCluster, place: int, partition: int, to: Replica) -> list[ReassignmentOrder]:
    """Orders to a store about the partition, of the change that may be open and of its last one."""
    shown = ask(desk.doors[place], "GET", f"/admin/partitions/{partition}").body
    owner = _replica(desk.three.nodes[place])
    orders: list[ReassignmentOrder] = []
    for change in {shown["epoch"], (shown["change"] or {"change": shown["epoch"]})["change"]}:
        common: dict[str, Any] = {
            "to": to,
            "topic": TopicId(shown["topic"]),
            "partition": PartitionId(partition),
            "change": ChangeId(change),
        }
        orders += [
            Receive(owner=owner, **common),
            Sync(target=owner, **common),
            Fence(**common),
            Prove(records=1, **common),
        ]
    return orders


@pytest.mark.timeout(180)
def test_a_move_to_a_store_that_is_removed_under_it_fails_with_the_reason(
    desk: AdminCluster, tmp_path: Path
) -> None:
    """J12: an order for what a node lacks is refused, typed; the move fails, and its partition serves."""
    three = desk.three
    partition, source, target = desk.create("t")
    desk.configure(sync_bytes_per_s=300_000)
    if target == three.leader():
        target = 3 - source - target
    assert desk.start(source, (partition, target)).status == 201
    until(lambda: desk.shown(source)["counts"].get("COPYING") == 1, what="a copy")
    gone = three.nodes[target]
    gone.kill()
    shutil.rmtree(gone.data)
    number, old = three.id(target), _replica(gone)
    with (
        ringfence.connect(three.nodes[source].address, timeout_s=60) as client,
        client.producer("t") as producer,
    ):
        producer.send(batch(0, 100, producer=1)).result(30)
    control = f"tcp://127.0.0.1:{free_port()}"
    heir = NodeProcess(gone.data, options=("--control", control, "--join", three.controls[source], *MEMORY))
    with heir:
        assert int(heir.ready["node"]) != number, "another store is another node"
        until(lambda: "is FAILED" in move(desk, source)["error"], what="the end of the try")
        # What the removed store was ordered, the one at its place neither has nor does.
        assert move(desk, source)["state"] == "RETRYING"
        for to in (old, _replica(heir)):
            for order in orders_of(desk, source, partition, to):
                term = three.listed(source)["term"]
                call = messages.encode(messages.ExecuteOrder(term=term, order=order))
                reply = messages.decode_reply(ask_address(control, call, 10.0))
                assert isinstance(reply, messages.Refusal), (order, reply)
                assert reply.code == Code.TOO_OLD, reply
        removed = cli("node", "remove", str(number), "--control", three.controls[source])
        assert removed.returncode == 0, removed.stderr
        until(lambda: desk.shown(source)["state"] == "IDLE", what="the end of the run")
        ended = desk.shown(source)
        assert (ended["outcome"], ended["counts"]) == ("GIVEN_UP", {"FAILED": 1}), ended
        assert f"node {number}" in move(desk, source)["error"], ended
        with ringfence.connect(three.nodes[source].address, timeout_s=60) as client:
            assert client.topic("t").partitions[0].owner == three.id(source)
            rows = read_ids(client, "t")
        check_identity(rows, {0: range(ROWS), 1: range(100)}, {0: ROWS, 1: 100})
