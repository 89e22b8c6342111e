"""Layout changes of three nodes: what excludes what, what every node shows, and when a change is over.

One cluster serves the whole file, and every test leaves it whole. Its disks are slow, so that each phase
lasts long enough to be seen.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import ringfence
from ringfence.arrow.keys import slots
from ringfence.control.model.ids import Epoch, NodeId, PartitionId, TopicId
from ringfence.control.model.log_end import LogEnd
from ringfence.control.model.reassignments import ChangeId
from ringfence.control.model.topics import Replica
from ringfence.control.runtime.rpc import messages as messages_of_nodes
from ringfence.control.runtime.rpc.messages import ExecuteOrder
from ringfence.control.state_machines.layout.messages import (
    CreateChild,
    Created,
    Inherit,
    Inherited,
    Seal,
    SealedEnds,
)
from ringfence.control.transport.question import ask_address
from ringfence.native import messages, wire
from ringfence.native.errors import NotFoundError, UnknownOutcomeError
from tests.fakes.admin_api import Answer
from tests.harness.admin_cluster import CRAWL_BYTES_S, AdminCluster
from tests.harness.admin_http import ask
from tests.harness.layouts_seen import Layouts, layouts_seen
from tests.harness.processes import SCHEMA, batch, cli, until
from tests.harness.raw_client import RawClient

SLOW = ("--faults", "slow_sync_ms=40")
TOPICS = "/admin/topics/public/default"
PHASES = ["PREPARED", "HELD", "COMMITTED", "OPENED"]
TIMEOUT_MS = 4_000
WAIT_S = 60.0


@pytest.fixture(scope="module")
def started(module_folder: Path) -> Iterator[AdminCluster]:
    made = AdminCluster(module_folder, *SLOW)
    try:
        made.three.start()
        # Neither a change nor a node ends because the machine is busy; no change waits long without clients.
        patient = {"hold_timeout_ms": 60_000, "failure_ms": 10_000}
        made.configure(repartition_adoption_timeout_ms=TIMEOUT_MS, **patient)
        yield made
    finally:
        for place in range(3):
            if made.three.alive(place):
                made.three.nodes[place].wake()
        made.three.kill_all()


@pytest.fixture
def desk(started: AdminCluster) -> AdminCluster:
    for place in range(3):
        if not started.three.alive(place):  # a test has failed meanwhile
            started.three.nodes[place].start()
    started.three.until_whole()
    return started


def connected(desk: AdminCluster, *places: int) -> ringfence.Client:
    nodes = [desk.three.nodes[place].address for place in places or range(3)]
    return ringfence.connect(",".join(nodes), timeout_s=WAIT_S)


def create(desk: AdminCluster, topic: str, partitions: int, replication: int = 3) -> int:
    """The id of the topic; every node knows it."""
    with connected(desk) as client:
        made = client.create_topic(
            topic, schema=SCHEMA, key=["id"], partitions=partitions, replication=replication
        )
    for place in range(3):
        until(lambda place=place: shown(desk, place, topic) is not None, what=f"{topic} at node {place}")
    return made.topic


def shown(desk: AdminCluster, place: int, topic: str) -> Any:
    answer = ask(desk.doors[place], "GET", f"{TOPICS}/{topic}/layout")
    return answer.body if answer.status == 200 else None


def active(desk: AdminCluster, topic: str, place: int = 0) -> list[dict[str, Any]]:
    answer = ask(desk.doors[place], "GET", f"{TOPICS}/{topic}/layout?linearizable=true")
    assert answer.status == 200, answer
    parts = [part for part in answer.body["partitions"] if part["state"] == "ACTIVE"]
    return sorted(parts, key=lambda part: int(part["lo"]))


def change(desk: AdminCluster, place: int, topic: str, path: str, **given: Any) -> Answer:
    return ask(desk.doors[place], "POST", f"{TOPICS}/{topic}/{path}", given)


def transition(desk: AdminCluster, place: int, topic: str) -> dict[str, Any] | None:
    """The open change of the topic, as the node at `place` shows it."""
    answer = ask(desk.doors[place], "GET", "/admin/transitions")
    assert answer.status == 200, answer
    for one in answer.body["transitions"]:
        if one["name"].endswith(f"/{topic}"):
            found: dict[str, Any] = one
            return found
    return None


def ended(desk: AdminCluster, place: int, number: int) -> dict[str, Any]:
    """What a node tells of a change that is over."""
    found: dict[str, Any] = {}

    def is_told() -> bool:
        told = ask(desk.doors[place], "GET", "/admin/transitions").body["ended"]
        found.update(next((one for one in told if one["change"] == number), {}))
        return bool(found)

    until(is_told, 60, f"the end of change {number}")
    return found


# ---- what excludes what -----------------------------------------------------------------------------------


def test_of_two_repartitions_at_two_nodes_at_once_one_wins(desk: AdminCluster) -> None:
    """F9. One that comes when the other is over is no rival."""
    create(desk, "rivals", 2)
    rivals = 0
    with ThreadPoolExecutor(2) as pool:
        for wanted in ((5, 7), (3, 4), (8, 6), (2, 9)):
            until(lambda: transition(desk, 0, "rivals") is None, 60, "the end of the changes before")
            asked = [
                pool.submit(change, desk, place, "rivals", "repartition", partitions=count, wait_s=30)
                for place, count in zip((1, 2), wanted, strict=True)
            ]
            answers = [one.result(WAIT_S) for one in asked]
            assert {answer.status for answer in answers} <= {200, 409}, answers
            won = [count for count, answer in zip(wanted, answers, strict=True) if answer.status == 200]
            assert len(active(desk, "rivals")) in won
            rivals += len(won) == 1
            for answer in answers:
                assert answer.status == 200 or answer.slug in {"already-exists", "conflict"}, answer
    assert rivals, "no two were under way at once"


def test_eight_splits_at_once_of_one_topic_take_effect(desk: AdminCluster) -> None:
    """P6: at all nodes."""
    create(desk, "eight", 8)
    parts = [part["partition"] for part in active(desk, "eight")]
    with ThreadPoolExecutor(8) as pool:
        asked = [
            pool.submit(change, desk, number % 3, "eight", f"split/{part}", wait_s=50)
            for number, part in enumerate(parts)
        ]
        assert [one.result(WAIT_S).status for one in asked] == [200] * 8
    after = active(desk, "eight")
    assert {part["parents"][0] for part in after} == {*parts}
    assert len(after) == 16
    ranges = [(part["lo"], part["hi"]) for part in after]
    assert (ranges[0][0], ranges[-1][1]) == (0, 65_535)
    assert all(before[1] + 1 == later[0] for before, later in pairwise(ranges))
    for place in range(3):
        until(lambda place=place: shown(desk, place, "eight")["version"] == 9, what="version 9 everywhere")


def test_a_merge_takes_parents_of_two_nodes_in_either_order_and_refusals_change_nothing(
    desk: AdminCluster,
) -> None:
    """P3 and P27, over HTTP at each node, by the command line and the library."""
    create(desk, "apart", 4, replication=1)
    for turned in (False, True):
        parts = active(desk, "apart")
        pair = next(two for two in pairwise(parts) if two[0]["owner"] != two[1]["owner"])
        one, other = (part["partition"] for part in (reversed(pair) if turned else pair))
        done = change(desk, 1, "apart", f"merge/{one}/{other}", wait_s=30)
        assert done.status == 200, done
        [child] = done.body["partitions"]
        assert (child["lo"], child["hi"]) == (pair[0]["lo"], pair[1]["hi"])
        assert sorted(child["parents"]) == sorted((one, other))
    left, right = active(desk, "apart")
    [gone, *_] = [part for part in shown(desk, 0, "apart")["partitions"] if part["state"] == "SEALED"]
    before = states(desk)
    check_refused(desk, 404, "missing", f"split/{left['partition']}")
    check_refused(desk, 422, "apart", f"split/{left['partition']}", at=[left["lo"]])
    check_refused(desk, 422, "apart", f"merge/{left['partition']}/{left['partition']}")
    check_refused(desk, 409, "apart", f"split/{gone['partition']}")
    check_refused(desk, 409, "apart", f"split/{gone['name']}")
    assert states(desk) == before, "a refusal changed the metadata"
    desk.configure(1, layout_changes_enabled=0)
    try:
        off = states(desk)
        check_refused(desk, 409, "apart", f"split/{left['partition']}")
        check_refused(desk, 409, "apart", f"merge/{left['partition']}/{right['partition']}")
        check_refused(desk, 409, "apart", "repartition", partitions=9)
        told = cli("topic", "repartition", "apart", "9", "--http", desk.doors[2])
        assert (told.returncode != 0, "switched off" in told.stdout + told.stderr) == (True, True), told
        with connected(desk) as client:
            with pytest.raises(ringfence.RingfenceError, match="switched off"):
                client.admin.repartition("apart", 9)
            assert states(desk) == off
            with client.producer("apart") as producer:  # serving goes on
                producer.send(batch(0, 100)).result(WAIT_S)
    finally:
        desk.configure(2, layout_changes_enabled=1)
    assert change(desk, 0, "apart", "repartition", partitions=3, wait_s=30).status == 200


def check_refused(desk: AdminCluster, status: int, topic: str, path: str, **given: Any) -> None:
    for place in range(3):
        answer = change(desk, place, topic, path, **given)
        assert answer.status == status, (place, answer)
        assert answer.slug


def states(desk: AdminCluster) -> list[Layouts]:
    """All layouts, as each node shows them; they are equal."""

    def is_quiet() -> bool:
        found = ask(desk.doors[0], "GET", "/admin/transitions?linearizable=true").body["count"]
        return bool(found == 0)

    def seen() -> list[Layouts]:
        return [layouts_seen(door) for door in desk.doors]

    until(is_quiet, 60, "the end of all changes")
    until(lambda: all(one == first for first, *others in [seen()] for one in others), what="equal nodes")
    return seen()


def test_a_move_a_split_and_a_repartition_exclude_each_other_by_partition(desk: AdminCluster) -> None:
    """Z20: 409 for the partition that moves, other partitions of the topic go on."""
    moving, _, target = desk.create("busy")
    assert change(desk, 0, "busy", "repartition", partitions=1).body["change"] is None
    desk.configure(sync_bytes_per_s=CRAWL_BYTES_S)
    begun = desk.start(0, (moving, target))
    assert begun.status == 201, begun
    until(lambda: [move["state"] for move in desk.shown()["moves"]] == ["COPYING"], what="a copy")
    number = ask(desk.doors[1], "GET", f"/admin/partitions/{moving}").body["change"]["change"]
    for path, given in ((f"split/{moving}", {}), ("repartition", {"partitions": 2})):
        refused = change(desk, 1, "busy", path, **given)
        assert (refused.status, str(number) in refused.body["detail"]) == (409, True), refused
    create(desk, "beside", 2)
    other = active(desk, "beside")[0]["partition"]
    assert change(desk, 2, "beside", f"split/{other}", wait_s=30).status == 200
    assert desk.shown()["state"] == "RUNNING", "the move goes on meanwhile"
    desk.configure(sync_bytes_per_s=0)
    assert desk.ended()["counts"] == {"COMMITTED": 1}
    done = change(desk, 1, "busy", f"split/{moving}", wait_s=30)
    assert done.status == 200, done
    refused = desk.start(2, (moving, (target + 1) % 3))
    assert refused.status in {201, 409, 422}, "a sealed partition may move, too"
    if refused.status == 201:
        desk.ended()
    with connected(desk) as client:
        assert client.count("busy") == 4_000


def test_orders_of_changes_that_are_over_or_never_were_do_nothing(desk: AdminCluster) -> None:
    """P23: orders are what nodes tell each other; a copy of one, or a forged one, alters no byte anywhere."""
    create(desk, "orders", 2)
    [first, _] = active(desk, "orders")
    done = change(desk, 0, "orders", f"split/{first['partition']}", wait_s=30)
    assert done.status == 200, done
    until(lambda: transition(desk, 0, "orders") is None, 60, "the end of the change")
    before, term = states(desk), desk.three.listed(0)["term"]
    hosted = [desk.counter(place, "partitions") for place in range(3)]
    topic = TopicId(shown(desk, 0, "orders")["topic"])
    end = LogEnd(Epoch(1), 1, 0, 7)
    for place, node in enumerate(desk.three.nodes):
        to = Replica(NodeId(int(node.ready["node"])), bytes.fromhex(node.ready["store"]))
        sent = [(done.body["change"], of_term) for of_term in (0, term - 1, term, term + 1_000)]
        for number, of_term in (*sent, (3, term), (1 << 40, term)):
            over: dict[str, Any] = {"to": to, "topic": topic, "change": ChangeId(number)}
            inherit = Inherit(**over, ends=((PartitionId(first["partition"]), end),))
            for order in (CreateChild(**over), Inherit(**over), inherit, Seal(**over)):
                call = messages_of_nodes.encode(ExecuteOrder(term=of_term, order=order))
                body = ask_address(desk.three.controls[place], call, 20.0)
                answer = messages_of_nodes.decode_reply(body)
                assert not isinstance(answer, Created | Inherited | SealedEnds), (order, answer)
    assert states(desk) == before
    assert [desk.counter(place, "partitions") for place in range(3)] == hosted
    assert change(desk, 1, "orders", "repartition", partitions=2, wait_s=30).status == 200


# ---- what every node shows, and when a change is over -----------------------------------------------------


@contextmanager
def silent(desk: AdminCluster, place: int, topic: int) -> Iterator[RawClient]:
    """A connection that has acknowledged the table of now, and will acknowledge no other."""
    with RawClient(desk.three.nodes[place].address) as raw:
        assert raw.hello().status == wire.Status.READY
        held = raw.ask(wire.Opcode.TABLE, topic=topic)
        assert held.status == wire.Status.OK, held
        raw.send(wire.Opcode.TABLE_ACK, topic=topic, sequence=held.header.generation)
        assert raw.ask(wire.Opcode.STATUS).status == wire.Status.OK
        yield raw


def followers(desk: AdminCluster) -> tuple[int, int, int]:
    """The place of the leader, and the others'."""
    leader = desk.three.leader()
    one, other = (place for place in range(3) if place != leader)
    return leader, one, other


def test_a_follower_shows_the_marker_of_a_change_in_each_phase(desk: AdminCluster) -> None:
    """F10: {version, from, to, adoption_generation}, stamped with the generation of the COMMIT itself."""
    topic = create(desk, "marker", 3)
    _, here, other = followers(desk)
    markers: dict[str, tuple[int, ...]] = {}
    with silent(desk, other, topic):
        begun = change(desk, here, "marker", "repartition", partitions=5, wait_s=0)
        assert begun.status == 202, begun

        def is_open() -> bool:
            one = transition(desk, here, "marker")
            if one is not None:
                assert one["change"] == begun.body["change"]
                marker = (one["version"], one["from"], one["to"], one["adoption_generation"])
                assert markers.setdefault(one["phase"], marker) == marker
            return "OPENED" in markers

        until(is_open, what="a change that is OPENED")
    before = {phase: marker for phase, marker in markers.items() if phase in PHASES[:2]}
    assert before
    assert {*before.values()} == {(0, 0, 0, 0)}
    marker = markers["OPENED"]
    assert marker[:3] == (2, 3, 5)
    assert markers.get("COMMITTED", marker) == marker
    assert marker[3] > begun.body["change"]
    with RawClient(desk.three.nodes[here].address) as raw:
        raw.hello()
        table = raw.ask(wire.Opcode.TABLE, topic=topic).read(messages.Table)
    assert table.generation == marker[3], "the entry that made this layout"
    assert ended(desk, here, begun.body["change"])["result"] == "finalized"


def test_a_change_is_over_when_its_clients_have_the_table_whoever_uses_other_topics(
    desk: AdminCluster,
) -> None:
    """F12, F13, F29: cold and empty partitions, clients of another topic, a node that lost its client."""
    desk.configure(repartition_adoption_timeout_ms=120_000)
    _, here, other = followers(desk)
    topic, stranger = create(desk, "adopted", 6), create(desk, "strange", 1)
    with connected(desk, here) as client, client.producer("adopted") as producer:
        producer.send(batch(7, 1)).result(WAIT_S)  # one key: five partitions stay empty
        with silent(desk, other, stranger):
            done = change(desk, here, "adopted", "repartition", partitions=4, wait_s=30)
            over = ended(desk, here, done.body["change"])
            assert (over["result"], over["timed_out"]) == ("finalized", False), over
            assert over["waited_ms"] < 60_000
        with silent(desk, other, topic):
            done = change(desk, here, "adopted", "repartition", partitions=2, wait_s=30)
            waits = f"clients of nodes {desk.three.id(other)} that hold an older table"

            def is_waited_for() -> bool:
                one = transition(desk, here, "adopted")
                assert one is not None, "it has ended without this client"
                return waits in one["waits"]

            until(is_waited_for, what="the leader waits for the client")
            producer.send(batch(8, 1)).result(WAIT_S)
            assert transition(desk, here, "adopted") is not None
        over = ended(desk, here, done.body["change"])
        assert not over["timed_out"], "the connection is closed: nobody holds the older table"
    desk.configure(repartition_adoption_timeout_ms=TIMEOUT_MS)


def test_a_silent_client_holds_a_change_until_the_timeout_and_never_less_after_a_change_of_leader(
    desk: AdminCluster,
) -> None:
    """F13, F33; F8: a node that dies takes what its clients hold with it."""
    topic = create(desk, "silent", 2)
    leader, here, other = followers(desk)
    with silent(desk, other, topic):
        done = change(desk, here, "silent", "repartition", partitions=3, wait_s=30)
        over = ended(desk, here, done.body["change"])
        assert over["timed_out"], over
        assert TIMEOUT_MS <= over["waited_ms"] <= TIMEOUT_MS + 5_000, over
    with silent(desk, other, topic):
        begun = change(desk, here, "silent", "repartition", partitions=2, wait_s=0)
        not_yet_s = until_opened(desk, here, "silent")
        desk.three.nodes[leader].kill()
        until(lambda: desk.three.led_by_one_of([here, other]), what="another leader")
        until(lambda: transition(desk, here, "silent") is None, 60, "the end of the change")
        assert time.monotonic() - not_yet_s >= TIMEOUT_MS / 1_000, "too early"
        desk.three.nodes[leader].start()
        desk.three.until_whole()
    assert begun.status == 202
    desk.configure(repartition_adoption_timeout_ms=120_000)
    leader, here, other = followers(desk)
    with connected(desk, here) as client, client.producer("silent"), silent(desk, other, topic):
        begun = change(desk, here, "silent", "repartition", partitions=4, wait_s=0)
        until_opened(desk, here, "silent")
        desk.three.nodes[other].kill()
        over = ended(desk, here, begun.body["change"])
        assert not over["timed_out"], "its client has gone with it"
        desk.three.nodes[other].start()
        desk.three.until_whole()
    desk.configure(repartition_adoption_timeout_ms=TIMEOUT_MS)


def until_opened(desk: AdminCluster, place: int, topic: str) -> float:
    """Wait for OPENED; a moment when the change was not there yet."""
    not_yet_s = time.monotonic()

    def is_opened() -> bool:
        nonlocal not_yet_s
        asked_s, one = time.monotonic(), transition(desk, place, topic)
        if one is not None and one["phase"] == "OPENED":
            return True
        not_yet_s = asked_s
        return False

    until(is_opened, what="a change that is OPENED")
    return not_yet_s


# ---- nodes that lag ---------------------------------------------------------------------------------------


@contextmanager
def lagging(desk: AdminCluster) -> Iterator[tuple[int, int]]:
    """The places of a node that may stand still, since it does not lead, and of another one that does not."""
    _, lag, other = followers(desk)
    try:
        yield lag, other
    finally:
        desk.three.nodes[lag].wake()
        desk.three.until_whole()


def test_a_client_of_a_node_that_stands_still_gets_the_newest_table_in_time(desk: AdminCluster) -> None:
    """Reject, refresh, the same stale table, reject. The client asks elsewhere in time."""
    create(desk, "frozen", 4, replication=1)
    with lagging(desk) as (lag, _), connected(desk, lag) as client, client.producer("frozen") as producer:
        parts = active(desk, "frozen")
        pair = next(
            two for two in pairwise(parts) if desk.three.id(lag) not in {two[0]["owner"], two[1]["owner"]}
        )
        assert len(producer.send(batch(0, 400)).result(WAIT_S)) == 4, "every owner is connected"
        desk.three.nodes[lag].freeze()
        path = f"merge/{pair[0]['partition']}/{pair[1]['partition']}"
        done = change(desk, desk.three.leader(), "frozen", path, wait_s=30)
        assert done.status == 200, done
        [child] = done.body["partitions"]
        own = [
            row for row in range(400, 2_000) if child["lo"] <= slots(batch(row, 1), "id")[0] <= child["hi"]
        ]
        began = time.monotonic()
        futures = [producer.send(batch(row, 1)) for row in own[:50]]
        for future in futures:
            [place] = future.result(WAIT_S)
            assert place.partition == child["partition"]
        assert time.monotonic() - began < 20, "its sends wait for a node that says nothing"


def test_a_topic_that_is_made_again_while_a_replica_stands_still_mixes_no_incarnations(
    desk: AdminCluster,
) -> None:
    """A node that lags knows the old topic when the new one was split. A try there may have no answer."""
    old = create(desk, "again", 2)
    with lagging(desk) as (lag, other), connected(desk, lag) as client:
        before = client.producer("again")
        before.send(batch(0, 100, producer=old)).result(WAIT_S)
        desk.three.nodes[lag].freeze()
        until(lambda: desk.three.life(lag, seen_by=other) == "FAILED", what="it gets no partitions")
        with connected(desk, other, desk.three.leader()) as admin:
            admin.delete_topic("again")
            made = admin.create_topic("again", schema=SCHEMA, key=["id"], partitions=2, replication=1)
            with admin.producer("again") as producer:
                producer.send(batch(100, 100, producer=made.topic)).result(WAIT_S)
                admin.admin.repartition("again", 3, wait_s=WAIT_S)
                desk.three.nodes[lag].wake()
                with pytest.raises((NotFoundError, UnknownOutcomeError), match="no longer exists"):
                    before.send(batch(200, 100, producer=old)).result(WAIT_S)
                producer.send(batch(300, 100, producer=made.topic)).result(WAIT_S)
        with connected(desk, lag) as late:
            until(lambda: late.layout("again").topic == made.topic, what="the topic of now")
            until(lambda: late.count("again") == 200, what="its rows")
            found: list[tuple[int, int]] = []
            for part in late.read("again"):
                columns = (part[name].to_pylist() for name in ("id", "producer"))
                found += zip(*columns, strict=True)
        assert {topic for _, topic in found} == {made.topic}
        assert sorted(row for row, _ in found) == [*range(100, 200), *range(300, 400)]
        with pytest.raises((NotFoundError, UnknownOutcomeError)):
            before.close()
