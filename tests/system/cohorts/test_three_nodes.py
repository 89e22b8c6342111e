"""A cohort over three real nodes that are killed: what is acknowledged lasts, all else comes again."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

import ringfence
from tests.harness.cluster import ThreeNodes
from tests.harness.deliveries import Feed, check_deliveries, publish, until_all_acked
from tests.harness.processes import SCHEMA, read_ids, until

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tests.harness.member import Begun, Member

PARTITIONS = 6
GRACE_S = 12.0
LOADED_S = 1.0
"""Of a machine on which other work goes on: three nodes, members and a producer are ten processes."""


@pytest.fixture
def three(tmp_path: Path) -> Iterator[ThreeNodes]:
    cluster = ThreeNodes(tmp_path, options=("--session-grace-s", str(GRACE_S)))
    try:
        yield cluster.start()
    finally:
        cluster.kill_all()


def begin(three: ThreeNodes, begun: Begun, replication: int = 3) -> list[Member]:
    """A topic with rows, and three members of a cohort that all have partitions of it."""
    with ringfence.connect(three.addresses, timeout_s=30) as client:
        client.create_topic(
            "t", schema=SCHEMA, key=["producer"], partitions=PARTITIONS, replication=replication
        )
        publish(client, "t", range(10))
    members = [begun(three.addresses, "t", "c", name) for name in ("m0", "m1", "m2")]
    feed = Feed(three.addresses, "t", start=10).start()
    until(lambda: all(len(one.partitions) for one in members), what="all have partitions")
    feed.finish()
    return members


def end(three: ThreeNodes, members: Sequence[Member], timeout_s: float = 90) -> None:
    """Each row is acknowledged, and the history holds."""
    with ringfence.connect(three.addresses, timeout_s=60) as client:
        stored = read_ids(client, "t")
        until_all_acked(members, stored, timeout_s)
    for member in members:
        if member.process.poll() is None:
            member.stop()
        assert member.errors == []
    check_deliveries(members, stored)


@pytest.mark.timeout(300)
def test_members_go_on_after_a_killed_owner(three: ThreeNodes, begun: Begun) -> None:
    members = begin(three, begun)
    victim = next(place for place in range(3) if place != three.leader())
    feed = Feed(three.addresses, "t", start=1_000).start()
    time.sleep(1)
    three.nodes[victim].kill()
    time.sleep(8)
    feed.finish()
    end(three, members)


@pytest.mark.timeout(300)
def test_partitions_of_a_killed_member_go_to_the_others(three: ThreeNodes, begun: Begun) -> None:
    members = begin(three, begun)
    feed = Feed(three.addresses, "t", start=1_000).start()
    time.sleep(1)
    killed = members[0]
    had = {one.partition for one in killed.given if one.at > time.monotonic() - 0.5}
    killed.kill()
    killed_at = time.monotonic()
    others = members[1:]
    until(
        lambda: had <= {one.partition for other in others for one in other.given if one.at > killed_at},
        GRACE_S + 20,
        "others read its partitions",
    )
    for partition in had:
        back = [given.at for one in others for given in one.given if given.partition == partition]
        assert min(at for at in back if at > killed_at) - killed_at <= GRACE_S + 1 + LOADED_S
    feed.finish()
    end(three, members)


@pytest.mark.timeout(300)
def test_members_go_on_while_the_leader_stands_still(three: ThreeNodes, begun: Begun) -> None:
    members = begin(three, begun)
    leader = three.leader()
    feed = Feed(three.addresses, "t", start=1_000).start()
    three.nodes[leader].freeze()
    time.sleep(12)
    three.nodes[leader].wake()
    time.sleep(2)
    feed.finish()
    end(three, members)


@pytest.mark.timeout(300)
def test_a_restart_of_all_nodes_keeps_what_was_acknowledged(three: ThreeNodes, begun: Begun) -> None:
    members = begin(three, begun)
    three.kill_all()
    three.restart_all()
    three.until_whole()
    with ringfence.connect(three.addresses, timeout_s=60) as client:
        publish(client, "t", range(1_000, 1_050))
    end(three, members)
