"""Consume, transform, publish exactly once over three real nodes: killed owners, members, splits."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

import ringfence
from tests.harness.cluster import ThreeNodes
from tests.harness.deliveries import Feed, publish
from tests.harness.processes import SCHEMA, until
from tests.harness.transformer import SOURCE, TARGET, Transformer, check_output, count_rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

GRACE_S = 12.0
ROUNDS = 20


@pytest.fixture
def three(tmp_path: Path) -> Iterator[ThreeNodes]:
    cluster = ThreeNodes(tmp_path, options=("--session-grace-s", str(GRACE_S)))
    try:
        yield cluster.start()
    finally:
        cluster.kill_all()


def begin(three: ThreeNodes) -> list[Transformer]:
    """Topics, rows, and two members that both have committed something."""
    with ringfence.connect(three.addresses, timeout_s=60) as client:
        for topic, partitions in ((SOURCE, 4), (TARGET, 3)):
            client.create_topic(topic, schema=SCHEMA, key=["producer"], partitions=partitions, replication=3)
        publish(client, SOURCE, range(ROUNDS))
    members = [Transformer(three.addresses, name, rows=40).start() for name in ("m0", "m1")]
    feed = Feed(three.addresses, SOURCE, start=ROUNDS, pause_s=0.05).start()
    until(lambda: all(one.committed for one in members), what="both have committed rows")
    feed.finish()
    return members


def end(three: ThreeNodes, members: Sequence[Transformer]) -> None:
    """Each row comes out once, and rows of a key in order."""
    with ringfence.connect(three.addresses, timeout_s=60) as client:
        until(lambda: count_rows(client, TARGET) >= count_rows(client, SOURCE), 90, "all rows are copied")
        check_output(client)
    for member in members:
        if member.process.poll() is None:
            member.stop()
        assert member.errors == []


@pytest.mark.timeout(300)
def test_a_killed_owner_and_a_killed_member(three: ThreeNodes) -> None:
    members = begin(three)
    feed = Feed(three.addresses, SOURCE, start=1_000, pause_s=0.05).start()
    victim = next(place for place in range(3) if place != three.leader())
    time.sleep(1)
    three.nodes[victim].kill()
    time.sleep(6)
    members[0].kill()
    time.sleep(2)
    feed.finish()
    end(three, members)


@pytest.mark.timeout(300)
def test_splits_of_the_source_and_of_the_target_in_the_middle(three: ThreeNodes) -> None:
    members = begin(three)
    feed = Feed(three.addresses, SOURCE, start=1_000, pause_s=0.05).start()
    with ringfence.connect(three.addresses, timeout_s=60) as client:
        for topic in (SOURCE, TARGET):
            time.sleep(1)
            client.admin.split(topic, client.layout(topic).active[0].partition, wait_s=60)
    time.sleep(2)
    feed.finish()
    end(three, members)
