"""A cohort over three real nodes while its topic is split and merged, and processes are killed."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

import ringfence
from tests.harness.cluster import ThreeNodes
from tests.harness.deliveries import Feed, all_settled, check_keys, publish
from tests.harness.layout_load import repartitioned
from tests.harness.processes import SCHEMA, until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.harness.member import Begun, Member

GRACE_S = 12.0
ROUNDS = 10
CHANGE_S = 120.0


@pytest.fixture
def three(tmp_path: Path) -> Iterator[ThreeNodes]:
    cluster = ThreeNodes(tmp_path, options=("--session-grace-s", str(GRACE_S)))
    try:
        yield cluster.start()
    finally:
        cluster.kill_all()


def changed(client: ringfence.Client) -> None:
    """A split, a merge, and two repartitions; each is over before the next one begins."""
    first = client.layout("t").active[0]
    client.admin.split("t", first.partition, into=3, wait_s=CHANGE_S)
    one, other = sorted(client.layout("t").active, key=lambda part: part.lo)[:2]
    client.admin.merge("t", one.partition, other.partition, wait_s=CHANGE_S)
    for count in (7, 3):
        client.admin.repartition("t", count, wait_s=CHANGE_S)


def end(members: list[Member], numbers: list[int]) -> None:
    try:
        until(lambda: all_settled(members, numbers), 120, "each row is acknowledged")
    finally:
        print({one.name: (len(one.given), len(one.acked), one.errors) for one in members})
    for member in members:
        if member.process.poll() is None:
            member.stop()
        assert member.errors == []
    check_keys(members, numbers)


def begin(three: ThreeNodes, begun: Begun) -> tuple[list[Member], Feed]:
    """Members that all have partitions of a topic with replicas, and a producer that goes on."""
    with ringfence.connect(three.addresses, timeout_s=30) as client:
        client.create_topic("t", schema=SCHEMA, key=["producer"], partitions=3, replication=3)
        publish(client, "t", range(ROUNDS))
    members = [begun(three.addresses, "t", "c", name) for name in ("m0", "m1", "m2")]
    feed = Feed(three.addresses, "t", start=ROUNDS).start()
    until(lambda: all(len(one.acked) for one in members), what="all have partitions")
    return members, feed


@pytest.mark.timeout(400)
def test_each_row_comes_in_the_order_of_its_key_over_layout_changes(three: ThreeNodes, begun: Begun) -> None:
    members, feed = begin(three, begun)
    with ringfence.connect(three.addresses, timeout_s=60) as client:
        changed(client)
        time.sleep(1)
    feed.finish()
    end(members, [*range(feed.next)])


@pytest.mark.timeout(400)
def test_a_member_and_an_owner_are_killed_amid_layout_changes(three: ThreeNodes, begun: Begun) -> None:
    members, feed = begin(three, begun)
    leader = three.leader()
    victim = next(place for place in range(3) if place != leader)
    with ringfence.connect(three.addresses, timeout_s=60) as client:
        client.admin.repartition("t", 7, wait_s=0)
        members[0].kill()
        time.sleep(0.5)
        three.nodes[victim].kill()
        time.sleep(3)
        three.nodes[victim].start()
        three.until_whole()  # a topic with three replicas changes while there are three nodes
        members.append(begun(three.addresses, "t", "c", "m3"))
        for count in (7, 2, 5):
            repartitioned(client, "t", count)
        time.sleep(1)
    feed.finish()
    end(members, [*range(feed.next)])
