"""Watches, pushes and the list of the cluster, between the library and a running node."""

from __future__ import annotations

import asyncio
import threading
import time

import pyarrow as pa
import pytest

import ringfence
import ringfence.aio
from ringfence import EventKind
from ringfence.watch import Watch
from tests.fakes.client_topic import until
from tests.harness.processes import NodeProcess

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False)])
WIDER = SCHEMA.append(pa.field("more", pa.string()))


def told(watch: Watch, count: int) -> list[tuple[EventKind, str]]:
    found = list[tuple[EventKind, str]]()
    for _ in range(count):
        event = watch.next(20)
        assert event is not None, found
        found.append((event.kind, event.topic.rpartition("/")[2]))
    return found


def test_followers_of_a_prefix_hear_of_topics_that_are_made_and_deleted(node: NodeProcess) -> None:
    with ringfence.connect(node.address) as client, ringfence.connect(node.address) as other:
        other.create_topic("watched/ns/first", schema=SCHEMA)
        with client.watch(prefix="watched/") as watch:
            assert told(watch, 1) == [(EventKind.PRESENT, "first")]
            for number in range(20):
                other.create_topic(f"watched/ns/t{number}", schema=SCHEMA)
            other.create_topic("elsewhere/ns/t", schema=SCHEMA)
            other.delete_topic("watched/ns/first")
            found = told(watch, 21)
            assert sorted(found[:20]) == sorted((EventKind.CREATED, f"t{number}") for number in range(20))
            assert found[20] == (EventKind.DELETED, "first")
            assert len(watch.topics) == 20
            until(lambda: watch.controller > 0, 60)


def test_a_change_right_after_the_handshake_is_told(node: NodeProcess) -> None:
    for number in range(20):
        name = f"early/ns/t{number}"
        with ringfence.connect(node.address) as client, client.watch(prefix=name) as watch:
            client.create_topic(name, schema=SCHEMA)
            assert {topic for _, topic in told(watch, 1)} == {f"t{number}"}


def test_a_watch_of_a_topic_tells_what_its_table_has_and_its_end(node: NodeProcess) -> None:
    with ringfence.connect(node.address) as client:
        client.create_topic("told", schema=SCHEMA, key=["id"], partitions=2)
        with client.watch("told") as watch, client.producer("told") as producer:
            assert told(watch, 1) == [(EventKind.LAYOUT, "told")]
            client.add_schema("told", WIDER)
            event = watch.next(20)
            assert event is not None
            assert event.layout is not None
            assert len(event.layout.schemas) == 2
            producer.send(pa.table({"id": [1]}, schema=SCHEMA)).result(20)
            with pytest.raises(ringfence.AlreadyExistsError):
                client.create_topic("told", schema=SCHEMA)
            deletion = threading.Timer(0.2, lambda: client.delete_topic("told"))
            deletion.start()
            assert told(watch, 1) == [(EventKind.DELETED, "told")]
            assert watch.is_ended
            deletion.join(20)
        with pytest.raises(ringfence.NotFoundError):
            client.watch("told")


def test_a_pushed_table_reaches_an_idle_client_without_a_request(node: NodeProcess) -> None:
    with ringfence.connect(node.address) as client, ringfence.connect(node.address) as other:
        client.create_topic("pushed", schema=SCHEMA, key=["id"])
        with client.producer("pushed") as producer:
            producer.send(pa.table({"id": [1]}, schema=SCHEMA)).result(20)
            other.add_schema("pushed", WIDER)
            until(lambda: len(producer._sender.layout.schemas) == 2, 60)


def test_one_request_tells_the_nodes_and_all_topics(node: NodeProcess) -> None:
    with ringfence.connect(node.address) as client:
        for number in range(5):
            client.create_topic(f"listed/ns/t{number}", schema=SCHEMA)
        found = client.cluster()
        status = client.status()
        assert found.nodes == {status.node: tuple(status.addresses)}
        assert {f"listed/ns/t{number}" for number in range(5)} <= found.topics.keys()
        assert found.topics["listed/ns/t3"] == client.layout("listed/ns/t3").topic
        assert 0 < found.generation <= client.status().index


def test_asyncio_tasks_watch_beside_each_other(node: NodeProcess) -> None:
    async def watched() -> list[str]:
        async with ringfence.aio.connect(node.address) as client:
            watches = [client.watch(prefix=f"many/ns/t{number}-") for number in range(30)]
            steps = [asyncio.create_task(watch.next(30)) for watch in watches]
            await asyncio.sleep(0.2)
            for number in range(30):
                await client.create_topic(f"many/ns/t{number}-x", schema=SCHEMA)
            events = await asyncio.gather(*steps)
            for watch in watches:
                await watch.close()
            return [event.topic for event in events if event is not None]

    began = time.monotonic()
    assert asyncio.run(watched()) == [f"many/ns/t{number}-x" for number in range(30)]
    assert time.monotonic() - began < 60
