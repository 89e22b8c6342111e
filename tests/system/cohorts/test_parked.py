"""COHORT_PARKED at one real node: rows that a member parks are listed, put back, discarded and exported."""

from __future__ import annotations

import secrets
import time
from typing import TYPE_CHECKING

import pytest

import ringfence
from ringfence.native import messages
from ringfence.native.cohort_messages import CohortSeek, ParkedSettled
from ringfence.native.wire import SCOPE_EPOCH_MAX, Code, Opcode, Status
from tests.harness.deliveries import KEYS, publish
from tests.harness.parked import ask, begun, commit, listed, settled
from tests.harness.processes import SCHEMA, NodeProcess, until
from tests.harness.raw_client import RawClient

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ROUNDS = 4
ROWS = ROUNDS * KEYS
REASON = "no such column: caf\u00e9"


@pytest.fixture(scope="module")
def node(module_folder: Path) -> Iterator[NodeProcess]:
    with NodeProcess(module_folder / "data") as running:
        yield running


@pytest.fixture
def client(node: NodeProcess) -> Iterator[ringfence.Client]:
    with ringfence.connect(node.address, timeout_s=30) as connected:
        yield connected


@pytest.fixture
def raw(node: NodeProcess) -> Iterator[RawClient]:
    with RawClient(node.address) as connected:
        yield connected


def make_topic(client: ringfence.Client) -> str:
    name = f"t{secrets.token_hex(4)}"
    client.create_topic(name, schema=SCHEMA, key=["producer"], partitions=1)
    publish(client, name, range(ROUNDS))
    return name


@pytest.fixture
def topic(client: ringfence.Client) -> str:
    return make_topic(client)


def park(client: ringfence.Client, topic: str, rows: set[int]) -> None:
    """A member parks these rows, and acknowledges all others."""
    got: set[int] = set()
    with client.consumer(topic, cohort="q", mode="queue") as consumer:
        end = time.monotonic() + 30
        while len(got) < ROWS and time.monotonic() < end:
            batch, delivery = consumer.next(0.2), consumer.delivery
            if batch is None or delivery is None:
                continue
            first = delivery.place.first_offset
            there = range(first, first + batch.num_rows)
            got.update(there)
            bad = [row - first for row in there if row in rows]
            if bad:
                delivery.park(bad, reason=REASON)
        consumer.ack(wait=True)
    assert got == set(range(ROWS))


def rows_of(client: ringfence.Client, topic: str, count: int) -> list[int]:
    """Offsets that come to a member; so many, or what came in time."""
    got: list[int] = []
    with client.consumer(topic, cohort="q", mode="queue") as consumer:
        end = time.monotonic() + (20 if count else 2)
        while (len(got) < count or not count) and time.monotonic() < end:
            batch, delivery = consumer.next(0.2), consumer.delivery
            if batch is not None and delivery is not None:
                first = delivery.place.first_offset
                got += range(first, first + batch.num_rows)
        consumer.ack(wait=True)
    return sorted(got)


def test_what_a_member_parks_is_listed_put_back_and_discarded(
    client: ringfence.Client, raw: RawClient, topic: str
) -> None:
    park(client, topic, {5, 6, 40})
    until(lambda: len(listed(raw, topic).parked) == 2, what="both ranges are parked")
    one, two = listed(raw, topic).parked
    assert [(range_.first, range_.rows, range_.reason, range_.state) for range_ in (one, two)] == [
        (5, 2, REASON, "parked"),
        (40, 1, REASON, "parked"),
    ]
    assert abs(one.time_ms / 1000 - time.time()) < 60
    assert [line.number for line in listed(raw, topic, after=(one.partition, one.number)).parked] == [
        two.number
    ]
    assert rows_of(client, topic, 0) == []
    assert settled(raw, topic, "retry", one) == ParkedSettled(done=1)
    assert rows_of(client, topic, 2) == [5, 6]
    item = (one.partition, one.number)
    assert settled(raw, topic, "retry", one) == ParkedSettled(done=0, not_parked=[item])
    seek = CohortSeek(topic=topic, cohort="q", to="earliest")
    refused = raw.control(Opcode.COHORT_SEEK, seek)
    assert (refused.status, refused.read(messages.Refused).details["parked"]) == (Status.REFUSED, 1)
    assert settled(raw, topic, "discard") == ParkedSettled(done=1), "all"
    assert listed(raw, topic).parked == []
    assert rows_of(client, topic, 0) == []
    assert raw.control(Opcode.COHORT_SEEK, seek).status == Status.OK


def test_an_export_is_marked_by_its_committed_scope_and_ended_by_a_retry(
    client: ringfence.Client, raw: RawClient, topic: str
) -> None:
    park(client, topic, {5, 20, 40})
    until(lambda: len(listed(raw, topic).parked) == 3, what="the ranges are parked")
    one, two, three = listed(raw, topic).parked
    scopes = [begun(raw, topic, range_) for range_ in (one, two, three)]
    first = {"scope": scopes[0].scope_id}
    assert ask(raw, topic, "exported", items=[(one.partition, one.number)], **first).code == Code.CONFLICT
    for range_, scope in zip((one, two, three), scopes, strict=True):
        assert settled(raw, topic, "begin", range_, scope=scope.scope_id) == ParkedSettled(done=1)
    assert {(line.state, line.scope) for line in listed(raw, topic).parked} == {
        ("exporting", scope.scope_id) for scope in scopes
    }
    item = (one.partition, one.number)
    assert settled(raw, topic, "exported", one, **first) == ParkedSettled(done=0, exporting=[item])
    assert commit(raw, scopes[0]).status == Status.OK
    assert settled(raw, topic, "exported", one, **first) == ParkedSettled(done=1)
    assert commit(raw, scopes[1]).status == Status.OK
    done = settled(raw, topic, "retry", two, three)
    assert done == ParkedSettled(done=1, exported=[(two.partition, two.number)])
    assert commit(raw, scopes[2]).status == Status.REFUSED, "its export was ended"
    again = begun(raw, topic, three)
    assert (again.scope_id, again.decided, again.committed) == (scopes[2].scope_id, SCOPE_EPOCH_MAX, 0)
    assert rows_of(client, topic, 1) == [40]
    assert listed(raw, topic).parked == []


def test_parked_ranges_and_exports_outlive_a_killed_node(tmp_path: Path) -> None:
    with NodeProcess(tmp_path / "data") as node:
        with ringfence.connect(node.address, timeout_s=60) as client, RawClient(node.address) as raw:
            topic = make_topic(client)
            park(client, topic, {5, 40})
            until(lambda: len(listed(raw, topic).parked) == 2, what="both ranges are parked")
            one = listed(raw, topic).parked[0]
            scope = begun(raw, topic, one)
            assert settled(raw, topic, "begin", one, scope=scope.scope_id).done == 1
            before = listed(raw, topic).parked
        node.kill()
        node.start()
        with RawClient(node.address) as other:
            until(lambda: listed(other, topic).parked == before, 30, what="the same ranges, and the export")
            assert commit(other, scope).status == Status.OK
            assert settled(other, topic, "exported", one, scope=scope.scope_id).done == 1
            assert settled(other, topic, "discard").done == 1
            assert listed(other, topic).parked == []
