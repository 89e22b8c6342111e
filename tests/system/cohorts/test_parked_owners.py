"""COHORT_PARKED over three real nodes: any node lists, and exports and actions go on at the next owner."""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

import ringfence
from ringfence.native.cohort_messages import ParkedSettled
from ringfence.native.wire import Code, Status
from tests.harness.cluster import ThreeNodes
from tests.harness.deliveries import KEYS, publish
from tests.harness.parked import begun, commit, listed, settled
from tests.harness.processes import SCHEMA, until
from tests.harness.raw_client import RawClient

if TYPE_CHECKING:
    from pathlib import Path

ROUNDS = 6
BAD = 3
Rows = set[tuple[int, int]]


def taken(client: ringfence.Client, rows: int, *, parks: bool = False) -> Rows:
    """Rows (key, number) that a member gets and settles; with `parks` it parks those of round BAD."""
    got: Rows = set()
    with client.consumer("t", cohort="q", mode="queue") as consumer:
        end = time.monotonic() + 60
        while len(got) < rows and time.monotonic() < end:
            batch, delivery = consumer.next(0.2), consumer.delivery
            if batch is None or delivery is None:
                continue
            numbers = batch.column("id").to_pylist()
            got |= {*zip(batch.column("producer").to_pylist(), numbers, strict=True)}
            bad = [at for at, number in enumerate(numbers) if number == BAD and parks]
            if bad:
                delivery.park(bad, reason="bad")
        consumer.ack(wait=True)
    return got


@pytest.mark.timeout(300)
def test_parked_ranges_and_an_export_go_on_at_the_next_owner(tmp_path: Path) -> None:
    three = ThreeNodes(tmp_path)
    with ExitStack() as running:
        running.callback(three.kill_all)
        three.start()
        client = running.enter_context(ringfence.connect(three.addresses, timeout_s=60))
        client.create_topic("t", schema=SCHEMA, key=["producer"], partitions=3, replication=3)
        publish(client, "t", range(ROUNDS))
        assert len(taken(client, ROUNDS * KEYS, parks=True)) == ROUNDS * KEYS
        raws = [running.enter_context(RawClient(node.address)) for node in three.nodes]
        leader = three.leader()
        at_leader = raws[leader]
        until(lambda: sum(one.rows for one in listed(at_leader, "t").parked) == KEYS, what="all are parked")
        before = listed(at_leader, "t").parked
        assert [listed(raw, "t").parked for raw in raws] == [before] * 3
        owners = {part: owner for part, (owner, _) in three.placed(leader, "t").items()}
        away = next(place for place in range(3) if place != leader and three.id(place) in owners.values())
        one = next(line for line in before if owners[line.partition] == three.id(away))
        first, second = begun(at_leader, "t", one), begun(raws[away], "t", one)
        assert first.scope_id == second.scope_id, "all who export it meet in one scope"
        assert settled(at_leader, "t", "begin", one, scope=first.scope_id).done == 1
        three.nodes[away].kill()
        item = (one.partition, one.number)
        at_once = settled(at_leader, "t", "discard", one)
        assert at_once == ParkedSettled(done=0, unknown=[item]), "its owner does not answer"
        until(lambda: not listed(at_leader, "t").unknown, 60, "another owner")
        after = listed(at_leader, "t").parked
        assert [(line.partition, line.number, line.first) for line in after] == [
            (line.partition, line.number, line.first) for line in before
        ]
        # Numbers are those of a partition.
        (again,) = (line for line in after if (line.partition, line.number) == item)
        assert again.scope == first.scope_id
        assert commit(at_leader, first).code == Code.FENCED_PRODUCER, "one of two exporters"
        assert commit(at_leader, second).status == Status.OK
        assert settled(at_leader, "t", "retry") == ParkedSettled(done=len(before) - 1, exported=[item])
        rows = KEYS - one.rows
        back = taken(client, rows)
        assert len(back) == rows
        assert {number for _, number in back} == {BAD}
        assert listed(at_leader, "t").parked == []
        three.nodes[away].start()
        with RawClient(three.nodes[away].address) as returned:
            until(lambda: listed(returned, "t").unknown == [], 60, "it serves again")
            assert listed(returned, "t").parked == []
