"""Layouts change under load in a cluster of real processes: each row once and, of a key, in order."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

import ringfence
from ringfence.cluster.table_cache import TableCache
from ringfence.network import peers
from tests.harness.admin_cluster import AdminCluster
from tests.harness.cluster import MEMORY
from tests.harness.layout_load import (
    SCHEMA,
    Following,
    NamedSender,
    OnceCheck,
    OrderCheck,
    Sender,
    TransactionSender,
    check_all,
    connected,
    finish,
    repartitioned,
    rows,
    rows_grow,
)
from tests.harness.processes import NodeProcess, cli, until
from tests.harness.random_layout import changed_at_random

COUNTS = (2, 4, 16, 3)
RANDOM_CHANGES = 10
"""`--soak 10` makes a hundred of them."""
SLOW_S = 0.1
WAIT_S = 60.0
IDLE = 99
"""The producer that sends one row."""


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[AdminCluster]:
    made = AdminCluster(tmp_path)
    try:
        made.three.start()
        made.configure(hold_timeout_ms=60_000)  # no change ends because the machine is busy
        yield made
    finally:
        made.three.kill_all()


def keyed_load(address: str) -> tuple[list[Sender], list[Following]]:
    """All kinds of producers of topic `t`; a reader that keeps up, and a slow one."""
    senders = [Sender(address, "t", 0), NamedSender(address, "t", 1), TransactionSender(address, "t", 2)]
    return senders, [Following(address, "t", OrderCheck(), pause_s=pause_s) for pause_s in (0.0, SLOW_S)]


def started(*groups: Sequence[Sender | Following]) -> None:
    for group in groups:
        for one in group:
            one.start()


@pytest.mark.timeout(400)
def test_one_partition_becomes_2_4_16_and_3_and_producers_and_readers_notice_nothing(
    desk: AdminCluster,
) -> None:
    address = desk.three.addresses
    with connected(address) as client:
        client.create_topic("t", schema=SCHEMA, key=["key"], partitions=1, replication=3)
        client.create_topic("k", schema=SCHEMA, partitions=1, replication=3)
        keyed, in_order = keyed_load(address)
        keyless = [Sender(address, "k", 3), Sender(address, "k", 4), NamedSender(address, "k", 5)]
        once = [Following(address, "k", OnceCheck())]
        started(keyed, keyless, in_order, once)
        rows_grow([*keyed, *keyless])
        for count in COUNTS:
            for topic in "tk":
                done = client.admin.repartition(topic, count, wait_s=WAIT_S)
                assert [len(client.layout(topic).active), len(done.partitions)] == [count] * 2
                print(f"{topic}: {count} partitions, gap {done.gap_us / 1e3:.0f} ms")
            rows_grow([*keyed, *keyless])
        check_all(address, "t", finish(keyed, in_order), OrderCheck())
        check_all(address, "k", finish(keyless, once), OnceCheck())
        for topic in "tk":
            until(lambda topic=topic: not client.admin.transitions(topic), 90, "the end of all changes")
        longest = max(sender.longest_s for sender in (*keyed, *keyless))
        print(f"longest wait of a producer {longest * 1e3:.0f} ms")


@pytest.mark.timeout(0)
def test_random_layout_changes_under_load_lose_double_and_reorder_nothing(
    desk: AdminCluster, soak: int
) -> None:
    """F11. The readers are slow: they read sealed partitions, whose children have rows already."""
    address, dice = desk.three.addresses, random.Random(11)
    with connected(address) as client:
        client.create_topic("t", schema=SCHEMA, key=["key"], partitions=3, replication=3)
        senders, readers = keyed_load(address)
        senders.append(Sender(address, "t", 3))
        readers.append(Following(address, "t", OrderCheck(), pause_s=3 * SLOW_S))
        started(senders, readers)
        rows_grow(senders)
        for number in range(RANDOM_CHANGES * soak):
            print(f"{number}: {changed_at_random(client, 't', dice, WAIT_S)}")
            assert [reader.errors for reader in readers] == [[]] * len(readers)
            rows_grow(senders, 100)
        counts = finish(senders, readers)
        check_all(address, "t", counts, OrderCheck())
        longest = max(sender.longest_s for sender in senders)
        print(f"{sum(counts.values())} rows, longest wait of a producer {longest * 1e3:.0f} ms")


@pytest.mark.timeout(400)
def test_without_any_push_order_holds_and_an_idle_client_learns_of_the_layout(
    desk: AdminCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F32."""
    address = desk.three.addresses
    monkeypatch.setattr(TableCache, "pushed", lambda *_: None)
    with connected(address) as client, connected(address) as idle:
        client.create_topic("t", schema=SCHEMA, key=["key"], partitions=1, replication=3)
        with idle.producer("t") as producer:
            producer.send(rows(IDLE, 0, 1)).result(WAIT_S)
            senders, readers = keyed_load(address)
            started(senders, readers)
            rows_grow(senders)
            for count in COUNTS:
                client.admin.repartition("t", count, wait_s=WAIT_S)
                rows_grow(senders)
            newest = client.layout("t")

            def version() -> int:
                held = idle._tables.held(newest.topic)
                return 0 if held is None else held.version

            assert version() < newest.version, "a push was not lost"
            counts = finish(senders, []) | {IDLE: 1}
            for reader in readers:
                reader.finish(counts)
            until(lambda: version() == newest.version, 120, "the layout at a client that sends nothing")
        check_all(address, "t", counts, OrderCheck())


@pytest.mark.timeout(400)
def test_a_node_leaves_between_layout_changes_and_clients_close_their_connections_to_it(
    desk: AdminCluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """F31: no outcome is lost."""
    monkeypatch.setattr(peers, "UNUSED_S", 2.0)
    three = desk.three
    address = three.addresses
    with NodeProcess(tmp_path / "d", options=("--join", three.controls[0], *MEMORY)) as fourth:
        gone = int(fourth.ready["node"])
        until(lambda: any(one["node"] == gone and one["in_ring"] for one in three.listed(0)["nodes"]))
        with connected(address) as client, connected(address) as other:
            client.create_topic("t", schema=SCHEMA, key=["key"], partitions=8, replication=1)
            assert gone in {entry.owner for entry in client.layout("t").active}
            senders, readers = keyed_load(address)
            started(senders, readers)
            with other.producer("t") as producer:
                producer.send(rows(IDLE, 0, 500)).result(WAIT_S)
                assert gone in {peer.node for peer in other._io_thread.peers()}
                rows_grow(senders)
                client.admin.repartition("t", 6, wait_s=WAIT_S)
                for arguments in (("drain", str(gone), "--wait"), ("remove", str(gone))):
                    done = cli("node", *arguments, "--control", three.controls[0], timeout_s=120)
                    assert done.returncode == 0, done.stdout + done.stderr
                fourth.stop()
                client.admin.repartition("t", 4, wait_s=WAIT_S)
                rows_grow(senders)

                def nodes() -> set[int | None]:
                    return {peer.node for one in (client, other) for peer in one._io_thread.peers()}

                until(lambda: gone not in nodes(), what="no connection to the node that left")
                producer.send(rows(IDLE, 500, 500)).result(WAIT_S)
            counts = finish(senders, []) | {IDLE: 1_000}
            for reader in readers:
                reader.finish(counts)
            check_all(address, "t", counts, OrderCheck())


@pytest.mark.timeout(300)
def test_watches_and_the_description_of_the_cluster_follow_topics_and_layouts_though_a_node_dies(
    desk: AdminCluster,
) -> None:
    three = desk.three
    victim = next(place for place in range(3) if place != three.leader())
    order = [victim, *(place for place in range(3) if place != victim)]
    own = ",".join(three.nodes[place].address for place in order)
    with connected(three.addresses) as client, connected(own) as watcher:
        client.create_topic("w-one", schema=SCHEMA, key=["key"], partitions=1, replication=3)
        client.create_topic("v-other", schema=SCHEMA, key=["key"], partitions=1, replication=3)
        topics, layouts = watcher.watch(prefix="public/default/w-"), watcher.watch("w-one")
        assert told(topics) == ("present", "public/default/w-one")
        assert told(layouts) == ("layout", "public/default/w-one")
        client.admin.repartition("w-one", 6)
        until(lambda: newest_version(layouts) == 2, what="the layout of the change")
        assert three.id(victim) in owners(layouts), "children are on all nodes"
        three.nodes[victim].kill()
        until(lambda: three.id(victim) not in owners(layouts), what="new owners, told by another node")
        client.create_topic("w-two", schema=SCHEMA, key=["key"], partitions=1)
        three.nodes[victim].start()
        three.until_whole()
        repartitioned(client, "w-one", 4)
        newest = client.layout("w-one").version
        until(lambda: newest_version(layouts) == newest, what="the newest layout")
        assert told(topics) == ("created", "public/default/w-two")
        client.delete_topic("w-one")
        assert told(topics) == ("deleted", "public/default/w-one")
        until(lambda: layouts.next(0.1) is None and layouts.is_ended, what="the end of the topic's watch")
        known = watcher.cluster()
        assert set(known.nodes) == {three.id(place) for place in range(3)}
        assert set(known.topics) == {"public/default/v-other", "public/default/w-two"}


def told(watch: ringfence.Watch) -> tuple[str, str]:
    """Kind and topic of the next event."""
    event = watch.next(WAIT_S)
    assert event is not None, "no event came"
    return event.kind.value, event.topic


def owners(watch: ringfence.Watch) -> set[int]:
    newest_version(watch)
    return set() if watch.layout is None else {entry.owner for entry in watch.layout.active}


def newest_version(watch: ringfence.Watch) -> int:
    """The newest version that the watch knows; its events are taken."""
    while watch.try_next() is not None:
        pass
    return 0 if watch.layout is None else watch.layout.version
