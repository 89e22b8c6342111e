"""Pushed tables and watches of a running node: who gets a frame, and who gets none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pyarrow as pa
import pytest

import ringfence
from ringfence.native import cluster_messages, messages, wire
from tests.harness.processes import SCHEMA, NodeProcess, batch, until
from tests.harness.raw_client import Answer, RawClient, RawTopic

Code, Op, Status = wire.Code, wire.Opcode, wire.Status
SESSION = bytes(range(16))

Connect = Callable[[], RawClient]


@pytest.fixture
def connect(node: NodeProcess) -> Iterator[Connect]:
    with ExitStack() as open_ones:

        def connected() -> RawClient:
            client = open_ones.enter_context(RawClient(node.address))
            ready = client.hello().read(messages.Ready)
            all_bits = wire.Features.RESUME_RANGES | wire.Features.LINEAGE | wire.Features.COHORTS
            assert ready.features == all_bits
            return client

        yield connected


def pushed(client: RawClient) -> list[Answer]:
    """The frames that nobody asked for, up to now: a connection gets all frames in their order."""
    client.send(Op.STATUS)
    found = []
    while (answer := client.receive()) is not None and answer.header.opcode != Op.STATUS:
        assert (answer.status, answer.header.request_id) == (Status.PUSH, 0)
        found.append(answer)
    assert answer is not None, "STATUS was not answered"
    return found


def awaited(client: RawClient, what: str) -> list[Answer]:
    """The next frames that nobody asked for."""
    found: list[Answer] = []

    def some() -> bool:
        found.extend(pushed(client))
        return bool(found)

    until(some, what=what)
    return found


def watch(client: RawClient, session: bytes = SESSION, **what: Any) -> Answer:
    return client.control(Op.WATCH_OPEN, cluster_messages.WatchOpen(session=session, **what))


def update(answer: Answer) -> cluster_messages.WatchUpdate:
    assert answer.header.opcode == Op.WATCH_UPDATE
    return answer.read(cluster_messages.WatchUpdate)


def follow(client: RawClient, topic: int) -> int:
    """Ask for a table and acknowledge it; the generation."""
    answer = client.ask(Op.TABLE, topic=topic)
    client.send(Op.TABLE_ACK, topic=topic, sequence=answer.header.generation)
    return answer.header.generation


def add_schema(client: RawClient, name: str, column: str) -> None:
    """A change of the topic's table."""
    schema = SCHEMA.append(pa.field(column, pa.int64()))
    added = client.control(
        Op.SCHEMA_ADD, messages.SchemaAdd(name=name, schema=schema.serialize().to_pybytes())
    )
    assert added.status == Status.OK, added


def test_a_change_is_told_to_those_who_use_the_topic_and_to_nobody_else(connect: Connect) -> None:
    admin, changer, user, other, idle, watcher = (connect() for _ in range(6))
    mine, theirs = (
        RawTopic(admin, "told-mine", SCHEMA, ["id"]),
        RawTopic(admin, "told-theirs", SCHEMA, ["id"]),
    )
    held = follow(user, mine.topic)
    follow(other, theirs.topic)
    assert watch(watcher, topic="told-mine").status == Status.OK
    first = awaited(watcher, "the first update")
    layout = update(first[0]).table
    assert isinstance(layout, messages.Table)
    newest = first[-1]
    while update(newest).controller.node == 0:  # the node tells its engine every second
        newest = awaited(watcher, "the leader")[-1]
    assert [one.partition for one in layout.partitions] == [one.partition for one in mine.table.partitions]
    watcher.send(Op.TABLE_ACK, topic=mine.topic, sequence=first[0].header.generation)
    for number in range(10):
        RawTopic(admin, f"told-{number}", SCHEMA, ["id"])
        assert theirs.publish(batch(number, 1), number).status == Status.OK
    assert [pushed(one) for one in (user, other, idle, watcher)] == [[], [], [], []]
    unchanged = user.ask(Op.TABLE, topic=mine.topic, sequence=held)
    assert (unchanged.status, unchanged.body) == (Status.OK, b"")
    assert unchanged.header.generation > held, "entries of other topics count"
    user.send(Op.TABLE_ACK, topic=mine.topic, sequence=unchanged.header.generation)
    add_schema(changer, "told-mine", "more")
    [push] = awaited(user, "the push")
    assert (push.header.opcode, push.header.topic) == (Op.TABLE_PUSH, mine.topic)
    assert push.body == changer.ask(Op.TABLE, topic=mine.topic).body, "the bytes of the answer"
    [told] = awaited(watcher, "the update")
    table = update(told).table
    assert isinstance(table, messages.Table)
    assert len(table.schemas) == 2
    assert [pushed(one) for one in (other, idle)] == [[], []]


def test_a_split_is_told_to_those_who_use_the_topic_and_to_nobody_else(
    connect: Connect, node: NodeProcess
) -> None:
    """P: the layout changes with one entry, and unaffected connections get no frame of any of the five."""
    admin, user, other, idle = (connect() for _ in range(4))
    mine, theirs = (
        RawTopic(admin, "split-mine", SCHEMA, ["id"]),
        RawTopic(admin, "split-theirs", SCHEMA, ["id"]),
    )
    held = follow(user, mine.topic)
    follow(other, theirs.topic)
    assert [pushed(one) for one in (user, other, idle)] == [[], [], []]
    with ringfence.connect(node.address, timeout_s=60) as client:
        client.admin.split("split-mine", client.layout("split-mine").active[0].partition)
        pushes = awaited(user, "the push")
        for push in pushes:
            user.send(Op.TABLE_ACK, topic=mine.topic, sequence=push.header.generation)
        until(lambda: not client.admin.transitions("split-mine"), 60, "the end of the change")
    pushes += pushed(user)
    tables = [push.read(messages.Table) for push in pushes]
    assert [len(table.partitions) for table in tables] == [3] * len(tables), "the parent and its children"
    assert {table.version for table in tables} == {2}
    assert len(tables) == 1, "the other four entries change no table"
    assert pushes[0].header.generation > held
    assert [pushed(one) for one in (other, idle)] == [[], []]


def test_a_watch_names_the_leader_and_ends_with_its_topic(connect: Connect, node: NodeProcess) -> None:
    admin, watcher = connect(), connect()
    RawTopic(admin, "ends", SCHEMA, ["id"])
    watch(watcher, topic="ends")

    def leader() -> bool:
        for told in pushed(watcher):
            controllers.append(update(told).controller)
            watcher.send(Op.TABLE_ACK, topic=told.header.topic, sequence=told.header.generation)
        return bool(controllers) and controllers[-1].node == node.ready["node"]

    controllers: list[cluster_messages.Controller] = []
    until(leader, what="the leader in an update")
    assert controllers[-1].addresses == [node.address]
    assert watch(watcher, topic="ends").code == Code.ALREADY_EXISTS
    admin.control(Op.TOPIC_DELETE, messages.TopicName(name="ends"))
    [end] = awaited(watcher, "the end")
    assert update(end).deleted is True
    assert watch(watcher, topic="ends").code == Code.UNKNOWN_TOPIC
    closed = watcher.control(Op.WATCH_CLOSE, cluster_messages.WatchClose(session=SESSION))
    assert (closed.status, closed.body) == (Status.OK, b"")


def test_who_watches_a_prefix_hears_of_topics_made_and_deleted(connect: Connect) -> None:
    admin, watcher = connect(), connect()
    RawTopic(admin, "list-a", SCHEMA, ["id"])
    watch(watcher, prefix="list-")
    known: dict[int, str] = {}

    def names() -> list[str]:
        for told in pushed(watcher):
            news = update(told)
            if news.whole is True:
                known.clear()
            for gone in news.gone or ():
                known.pop(gone, None)
            known.update(news.topics or ())
            watcher.send(Op.TABLE_ACK, sequence=told.header.generation)
        return sorted(name.rpartition("/")[2] for name in known.values())

    until(lambda: names() == ["list-a"], what="the first list")
    RawTopic(admin, "list-b", SCHEMA, ["id"])
    RawTopic(admin, "unlisted", SCHEMA, ["id"])
    until(lambda: names() == ["list-a", "list-b"], what="the topic that was made")
    admin.control(Op.TOPIC_DELETE, messages.TopicName(name="list-a"))
    until(lambda: names() == ["list-b"], what="the topic that was deleted")


def test_tables_that_are_too_new_or_too_many_are_refused_by_name(connect: Connect) -> None:
    admin, client = connect(), connect()
    topic = RawTopic(admin, "too-new", SCHEMA, ["id"])
    ahead = client.ask(Op.TABLE, topic=topic.topic, layout_version=99, deadline_ms=100)
    assert ahead.code == Code.AHEAD
    client.send(Op.TABLE_ACK, topic=topic.topic, sequence=2**64 - 1)
    assert pushed(client) == [], "an acknowledgement is never answered"
    for number in range(64):
        assert watch(client, bytes([number]) * 16, topic="too-new").status in {Status.OK, Status.PUSH}
        client.receive()
    refused = watch(client, b"x" * 16, topic="too-new")
    assert refused.code == Code.OVERLOADED
