"""A node stands still (SIGSTOP; a lost host and a cut network look alike): nobody waits for the heartbeat.

Its connections stay open, so nothing but its silence tells. The cluster has other owners after 2 to 3 s.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import ringfence
from tests.harness.cluster import ThreeNodes
from tests.harness.processes import SCHEMA, batch, check_identity, read_ids

SOON_S = 15.0  # the failover, the client's own 3 s, and a slow machine; a heartbeat needs 29 s and more
OPENED, WHOLE = 7, 8  # producers of what transactions write


@pytest.fixture
def three(tmp_path: Path) -> Iterator[ThreeNodes]:
    cluster = ThreeNodes(tmp_path)
    try:
        yield cluster.start()
    finally:
        for place in range(3):
            if cluster.alive(place):
                cluster.nodes[place].wake()
        cluster.kill_all()


def timed(work: Callable[[], object]) -> float:
    began = time.monotonic()
    work()
    return time.monotonic() - began


@pytest.mark.timeout(300)
@pytest.mark.parametrize("own", [False, True], ids=["an owner", "the client's own node"])
def test_a_producer_and_a_transaction_go_on_within_seconds(three: ThreeNodes, *, own: bool) -> None:
    silent = next(place for place in range(3) if place != three.leader())
    order = [place for place in range(3) if place != silent]
    order.insert(0 if own else 2, silent)
    address = ",".join(three.nodes[place].address for place in order)
    with ringfence.connect(address, timeout_s=60) as client:
        client.create_topic("t", schema=SCHEMA, key=["id"], partitions=6, replication=3)
        with client.producer("t") as producer, ringfence.connect(address, timeout_s=60) as second:
            producer.send(batch(0, 60)).result(60)
            opened = second.transaction("t", scope="opened")
            opened.send(batch(0, 60, OPENED))
            opened.flush()

            def transaction() -> None:
                with second.transaction("t", scope="whole") as whole:
                    whole.send(batch(0, 60, WHOLE))

            def send() -> None:
                for number in range(1, 11):
                    producer.send(batch(60 * number, 60))
                producer.flush()

            three.nodes[silent].freeze()
            with ThreadPoolExecutor(3) as pool:
                took = list(pool.map(timed, (send, opened.commit, transaction)))
            print(f"silent: sends {took[0]:.1f} s, commit {took[1]:.1f} s, transaction {took[2]:.1f} s")
            assert max(took) < SOON_S, took
            three.nodes[silent].wake()
            producer.send(batch(660, 60)).result(60)
        three.until_whole()
        rows = read_ids(client, "t")
    sent = {0: 720, OPENED: 60, WHOLE: 60}
    check_identity(rows, {one: range(count) for one, count in sent.items()}, sent)


@pytest.mark.timeout(300)
def test_a_count_ends_once_others_hear_nothing_of_an_owner_either(three: ThreeNodes) -> None:
    silent = next(place for place in range(3) if place != three.leader())
    address = ",".join(three.nodes[place].address for place in range(3) if place != silent)
    with ringfence.connect(address, timeout_s=60) as client:
        for name, replication in (("one", 1), ("three", 3)):
            client.create_topic(name, schema=SCHEMA, key=["id"], partitions=6, replication=replication)
            with client.producer(name) as producer:
                producer.send(batch(0, 60)).result(60)
        lost = [part.partition for part in client.topic("one").partitions if part.owner == three.id(silent)]
        three.nodes[silent].freeze()

        def count() -> None:
            with pytest.raises(ringfence.ConnectError, match="does not answer") as caught:
                client.count("one")
            assert caught.value.partition in lost
            assert caught.value.details["node"] == three.id(silent)
            assert caught.value.details["addresses"] == [three.nodes[silent].address]
            assert f"node {three.id(silent)} is " in caught.value.message

        assert timed(count) < SOON_S
        assert client.count("three") == 60, "other replicas take over"
        held = [part.partition for part in client.topic("one").partitions if part.partition not in lost]
        assert 0 < client.count("one", partition=held) < 60
        three.nodes[silent].wake()
        three.until_whole()
        assert client.count("one") == 60
