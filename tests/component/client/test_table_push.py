"""Pushed tables on real sockets: producers and readers re-route, and lost pushes are made up for."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import ringfence
from ringfence.cluster import table_cache
from ringfence.common import routing
from ringfence.common.adoption import Verdict
from ringfence.native import wire
from ringfence.native.wire import Opcode
from tests.fakes.client_topic import SCHEMA, rows, until
from tests.fakes.push_node import PushNode
from tests.fakes.socket_node import Refuse

TOPIC = "public/default/t"


@contextmanager
def topic(
    *, partitions: int = 1, key: tuple[str, ...] = ("id",), pushes: bool = True
) -> Iterator[tuple[PushNode, ringfence.Client]]:
    with PushNode(pushes=pushes) as node, ringfence.connect(node.address, timeout_s=10) as client:
        client.create_topic("t", schema=SCHEMA, key=key, partitions=partitions)
        node.topic_of("t").version = 1
        yield node, client
        node.hook = None


def held(client: ringfence.Client, node: PushNode) -> int:
    layout = client._tables.held(node.topic_of("t").topic)
    return 0 if layout is None else layout.version


def acknowledged(node: PushNode) -> list[int]:
    number = node.topic_of("t").topic
    return [one.generation for one in list(node.acknowledged) if one.topic == number]


def requests(node: PushNode, opcode: Opcode) -> int:
    return len(node.sent(opcode))


# ---- adoption -------------------------------------------------------------------------------------------


def test_the_first_table_is_acknowledged_before_anything_changes() -> None:
    with topic() as (node, client), client.producer("t"):
        until(lambda: node.generation in acknowledged(node))


def test_a_pushed_table_moves_an_idle_producer_which_then_is_not_redirected() -> None:
    with topic() as (node, client), client.producer("t") as producer:
        producer.send(rows(0, 20)).result(10)
        asked = requests(node, Opcode.TABLE)
        node.split("t")
        until(lambda: held(client, node) == 2)
        until(lambda: node.generation in acknowledged(node))
        sealed = {log.partition for log in node.topic_of("t").logs.values() if node.cut(log.partition).sealed}
        before = len(node.seen)
        producer.send(rows(20, 20)).result(10)
        sent = [one for one in node.seen[before:] if one.opcode == Opcode.PUBLISH]
        assert {one.layout_version for one in sent} == {2}
        assert not sealed & {one.partition for one in sent}
        assert requests(node, Opcode.TABLE) == asked, "a push needs no fetch"


def test_a_push_is_acknowledged_only_after_the_producers_route_by_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with topic() as (node, client), client.producer("t") as producer:
        until(lambda: node.generation in acknowledged(node))
        seen: list[tuple[int, list[int]]] = []
        table = producer._sender.table

        def noted(layout: Any) -> None:
            time.sleep(0.1)  # an acknowledgement that went out before would be there by now
            seen.append((layout.generation, acknowledged(node)))
            table(layout)

        monkeypatch.setattr(producer._sender, "table", noted)
        node.split("t")
        until(lambda: node.generation in acknowledged(node))
        assert [generation for generation, _ in seen] == [node.generation]
        assert node.generation not in seen[0][1]


def test_pushes_out_of_order_leave_the_newest() -> None:
    with topic() as (node, client), client.producer("t") as producer:
        producer.send(rows(0)).result(10)
        way, number = node.ways[-1], node.topic_of("t").topic
        tables = []
        for _ in range(3):
            node.generation += 1
            tables.append(node.table(node.topic_of("t")))
        before = len(acknowledged(node))
        for table in (tables[0], tables[2], tables[1]):
            node.send(way, Opcode.TABLE_PUSH, table, number, table.generation)
        low, middle, high = [table.generation for table in tables]
        until(lambda: len(acknowledged(node)) == before + 3)
        assert acknowledged(node)[before:] == [low, high, high], middle


def test_pushes_right_after_the_handshake_are_used() -> None:
    for _ in range(20):
        with topic() as (node, client), client.producer("t") as producer:
            node.split("t")
            until(lambda node=node, client=client: held(client, node) == 2)  # type: ignore[misc]
            producer.send(rows(0, 20)).result(10)


def test_a_push_before_the_first_table_is_looked_at_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """The caller of a slow machine reads the answer after the I/O thread has seen the push."""
    real = routing.layout_of
    with topic() as (node, client):
        pushed: list[bool] = []

        def slow(table: Any) -> Any:
            if not pushed and threading.current_thread() is threading.main_thread():
                pushed.append(True)
                node.split("t")
                until(lambda: held(client, node) == 2)
            return real(table)

        monkeypatch.setattr(table_cache, "layout_of", slow)
        with client.producer("t") as producer:
            assert pushed
            assert held(client, node) == 2, "the older table that was fetched before does not replace it"
            producer.send(rows(0, 20)).result(10)


# ---- no storm -------------------------------------------------------------------------------------------


def test_ten_thousand_sends_in_flight_over_a_split_open_nothing_and_fetch_few_tables(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """One split, 2,958 opens in a second."""
    with topic(partitions=4) as (node, client):
        producer = client.producer("t")
        futures = [producer.send(rows(number)) for number in range(5000)]
        opens, asked = requests(node, Opcode.PRODUCER_OPEN), requests(node, Opcode.TABLE)
        for first in (0, 2, 4):
            node.split("t", first=first)
        futures += [producer.send(rows(number)) for number in range(5000, 10_000)]
        producer.flush(120)
        assert all(future.exception(1) is None for future in futures)
        assert requests(node, Opcode.PRODUCER_OPEN) == opens
        assert requests(node, Opcode.TABLE) - asked <= 12, "at most a few of each layout"
        assert len(caplog.records) < 10
        producer.close()
        assert client.count("t") == 10_000


def test_a_close_in_the_middle_of_a_change_takes_no_time() -> None:
    with topic() as (node, client):
        producer = client.producer("t", timeout_s=60)
        node.hold("t")
        for number in range(2000):
            producer.send(rows(number))
        began = time.monotonic()
        with pytest.raises(ringfence.RingfenceError):
            producer.close(timeout_s=0.1)
        assert time.monotonic() - began < 5, "1 s, on a machine with nothing else to do"


def test_many_users_of_one_topic_cause_one_fetch_at_a_lost_push() -> None:
    with topic(partitions=8, pushes=False) as (node, client):
        producers = [client.producer("t") for _ in range(8)]
        for number, producer in enumerate(producers):
            producer.send(rows(number * 100, 100)).result(10)
        asked = requests(node, Opcode.TABLE)
        for first in range(0, 16, 2):
            node.split("t", first=first)
        futures = [producer.send(rows(1000 + number * 100, 100)) for number, producer in enumerate(producers)]
        for future in futures:
            future.result(20)
        assert requests(node, Opcode.TABLE) - asked <= 6
        for producer in producers:
            producer.close()
        assert client.count("t") == 1600


# ---- lost pushes ----------------------------------------------------------------------------------------


def test_an_idle_client_converges_though_all_pushes_are_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_cache, "REFRESH_S", 0.2)
    with topic(pushes=False) as (node, client), client.producer("t"):
        until(lambda: node.unchanged >= 2)
        node.split("t")
        until(lambda: held(client, node) == 2)
        until(lambda: node.generation in acknowledged(node))
        asked = node.unchanged
        until(lambda: node.unchanged > asked)
        assert node.sent(Opcode.TABLE)[-1].sequence >= node.changed_at[node.topic_of("t").topic]


def test_doubtful_pushes_change_nothing_and_are_answered_by_one_fetch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(table_cache, "DOUBT_S", 0.2)
    with topic() as (node, client), client.producer("t") as producer:
        producer.send(rows(0)).result(10)
        way, number, asked = node.ways[-1], node.topic_of("t").topic, requests(node, Opcode.TABLE)
        node.generation += 5
        future = node.table(node.topic_of("t"))
        node.generation -= 5
        for _ in range(50):
            node.send(way, Opcode.TABLE_PUSH, future, number, node.generation)
        until(lambda: requests(node, Opcode.TABLE) > asked)
        producer.send(rows(1)).result(10)
        assert requests(node, Opcode.TABLE) - asked <= 2
        assert max(acknowledged(node)) <= node.generation


def test_a_client_that_took_any_table_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_cache, "judge", lambda *_: Verdict.APPLY)
    with pytest.raises(AssertionError):
        test_doubtful_pushes_change_nothing_and_are_answered_by_one_fetch(monkeypatch)


# ---- readers --------------------------------------------------------------------------------------------


def test_a_pushed_table_wakes_a_reader_that_waits() -> None:
    with topic(partitions=2) as (node, client), client.producer("t") as producer:
        producer.send(rows(0, 10)).result(10)
        found: list[int] = []

        def follow() -> None:
            for batch in reader:
                found.extend(batch.column("id").to_pylist())

        reader = client.read("t", follow=True)
        thread = threading.Thread(target=follow, daemon=True)
        thread.start()
        until(lambda: len(found) == 10)
        fetched = requests(node, Opcode.TABLE)
        node.topic_of("t").version += 1
        node.change("t")
        until(lambda: reader._layout.generation == node.generation)
        assert requests(node, Opcode.TABLE) == fetched
        producer.send(rows(10, 10)).result(10)
        until(lambda: len(found) == 20)
        reader.close()
        thread.join(10)
        assert sorted(found) == list(range(20))


def test_a_reader_that_ended_follows_no_table() -> None:
    with topic() as (node, client):
        number = node.topic_of("t").topic
        reader = client.read("t", follow=True)
        until(lambda: number in client._tables._listeners)
        reader.close()
        until(lambda: number not in client._tables._listeners)
        dropped = client.read("t", follow=True)
        until(lambda: number in client._tables._listeners)
        del dropped
        until(lambda: number not in client._tables._listeners)


# ---- topics without key ---------------------------------------------------------------------------------


def test_sends_without_key_shift_to_the_less_loaded_partitions_also_after_a_split() -> None:
    with topic(partitions=2, key=()) as (node, client), client.producer("t") as producer:
        first, second = (log.partition for log in node.active("t"))
        node.loads = {first: 900_000, second: 100_000}
        node.change("t")
        until(lambda: dict(client._tables.held(node.topic_of("t").topic).loads) == node.loads)  # type: ignore[union-attr]
        sent = [producer.send(rows(number)).result(10)[0].partition for number in range(40)]
        assert sent.count(second) > 2 * sent.count(first) > 0
        # The busy one is split; its children have no load yet, and count as the average.
        children = [log.partition for log in node.split("t")]
        node.loads = {second: 100_000}
        until(lambda: held(client, node) == 2)
        sent = [producer.send(rows(100 + number)).result(10)[0].partition for number in range(40)]
        assert set(sent) == {*children, second}
        assert first not in sent


def test_a_batch_without_key_keeps_its_partition_over_its_retries() -> None:
    with topic(partitions=3, key=()) as (node, client), client.producer("t") as producer:
        refused: list[tuple[int, int]] = []

        def hook(header: wire.RequestHeader) -> Any:
            if header.opcode != Opcode.PUBLISH or len(refused) >= 4:
                return None
            refused.append((header.partition, header.send))
            return Refuse(wire.Code.OVERLOADED, 5)

        node.hook = hook
        assert producer.send(rows(0)).result(10)[0].partition == refused[0][0]
        assert len(set(refused)) == 1
