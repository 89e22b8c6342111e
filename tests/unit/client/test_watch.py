"""Watches of topics and of prefixes, against a node that pushes."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import ringfence
from ringfence import EventKind
from ringfence.cluster import watches
from ringfence.native.wire import Code, Opcode
from ringfence.watch import Watch
from tests.fakes.client_topic import SCHEMA, rows, until
from tests.fakes.push_node import PushNode
from tests.fakes.socket_node import Refuse
from tests.harness.proxy import Proxy

LAYOUT, PRESENT, CREATED, DELETED = EventKind.LAYOUT, EventKind.PRESENT, EventKind.CREATED, EventKind.DELETED


@contextmanager
def cluster(*, page: int = 1000, proxied: bool = False) -> Iterator[tuple[PushNode, ringfence.Client, Proxy]]:
    with (
        PushNode(page=page) as node,
        Proxy(node.address) as proxy,
        ringfence.connect(proxy.address if proxied else node.address, timeout_s=10) as client,
    ):
        client.create_topic("t", schema=SCHEMA, key=("id",), partitions=1)
        node.topic_of("t").version = 1
        yield node, client, proxy
        node.hook = None


def told(watch: Watch, count: int) -> list[tuple[EventKind, str]]:
    found = list[tuple[EventKind, str]]()
    for _ in range(count):
        event = watch.next(10)
        assert event is not None, found
        found.append((event.kind, event.topic.rpartition("/")[2]))
    return found


def versions(watch: Watch, count: int) -> list[int]:
    found = list[int]()
    for _ in range(count):
        event = watch.next(10)
        assert event is not None
        assert event.layout is not None, event
        found.append(event.layout.version)
    return found


# ---- one topic ------------------------------------------------------------------------------------------


def test_a_watch_of_a_topic_begins_with_its_layout_and_tells_each_newer_one_with_the_lineage() -> None:
    with cluster() as (node, client, _), client.watch("t") as watch:
        assert versions(watch, 1) == [1]
        (child, _) = node.split("t")
        event = watch.next(10)
        assert event is not None
        assert event.layout is not None
        assert (event.kind, event.topic, event.layout.version) == (LAYOUT, "public/default/t", 2)
        assert event.layout.partitions[child.partition].parents
        node.merge("t")
        assert versions(watch, 1) == [3]
        assert watch.layout is not None
        assert (watch.layout.version, watch.controller) == (3, 1)
        assert watch.next(0.1) is None
        assert repr(watch) == "<ringfence.Watch of public/default/t>"


def test_what_a_watch_looked_at_is_acknowledged_and_used_by_producers() -> None:
    with cluster() as (node, client, _), client.producer("t") as producer, client.watch("t") as watch:
        versions(watch, 1)
        node.split("t")
        versions(watch, 1)
        until(lambda: node.generation in {one.generation for one in node.acknowledged})
        assert producer._sender.layout.version == 2


def test_a_deleted_topic_is_one_typed_end_to_its_watch() -> None:
    with cluster() as (node, client, _), client.watch("t") as watch:
        node.delete("t")
        assert told(watch, 2) == [(LAYOUT, "t"), (DELETED, "t")]
        assert watch.next(None) is None
        assert watch.is_ended
        assert list(watch) == []
        with pytest.raises(ringfence.NotFoundError):
            client.watch("t")


def test_a_topic_that_was_deleted_while_the_connection_was_away_ends_the_watch() -> None:
    with cluster(proxied=True) as (node, client, proxy), client.watch("t") as watch:
        versions(watch, 1)
        until(lambda: len(node.opened) == 1)
        proxy.cut()
        node.sessions.clear()
        node.delete("t")
        assert told(watch, 1) == [(DELETED, "t")]


def test_an_idle_client_reconnects_for_its_watch_and_misses_no_state() -> None:
    with cluster(proxied=True) as (node, client, proxy), client.watch("t") as watch:
        versions(watch, 1)
        until(lambda: len(node.opened) == 1)
        for version in (2, 3):
            proxy.cut()
            node.sessions.clear()
            node._followers.clear()
            node.split("t")
            assert versions(watch, 1) == [version]
            until(lambda version=version: len(node.opened) == version)  # type: ignore[misc]
        assert len({opened.session for opened in node.opened}) == 3, "each connection has its own session"


def test_a_node_that_serves_no_watches_leaves_those_of_topics_to_the_routing_table() -> None:
    with cluster() as (node, client, _):
        node.serves_watches = False
        with client.watch("t") as watch, client.watch(prefix="") as catalogue:
            versions(watch, 1)
            node.split("t")
            assert versions(watch, 1) == [2]
            with pytest.raises(ringfence.RefusedError):
                catalogue.next(10)


# ---- prefixes -------------------------------------------------------------------------------------------


def test_a_watch_of_a_prefix_hears_of_topics_that_are_made_and_deleted() -> None:
    with cluster() as (node, client, _), client.watch(prefix="public/") as watch:
        assert told(watch, 1) == [(PRESENT, "t")]
        node.make("u", "t")
        client.create_topic("v", schema=SCHEMA)
        node.make("w", "t")
        node.delete("u")
        assert told(watch, 4) == [(CREATED, "u"), (CREATED, "v"), (CREATED, "w"), (DELETED, "u")]
        assert set(watch.topics) == {f"public/default/{name}" for name in "tvw"}
        until(lambda: (0, node.generation) in {(one.topic, one.generation) for one in node.acknowledged})


def test_other_prefixes_are_not_told() -> None:
    with cluster() as (node, client, _), client.watch(prefix="acme/") as watch:
        node.make("u", "t")
        assert watch.next(0.3) is None
        assert watch.topics == {}


def test_a_catalogue_of_many_pages_is_told_as_one() -> None:
    with cluster(page=3) as (node, client, _):
        for number in range(10):
            node.make(f"n{number}", "t")
        with client.watch(prefix="") as watch:
            kinds = told(watch, 11)
            assert {kind for kind, _ in kinds} == {PRESENT}
            assert len(set(kinds)) == 11


def test_what_changed_while_the_connection_was_away_comes_as_differences() -> None:
    with cluster(proxied=True) as (node, client, proxy), client.watch(prefix="") as watch:
        assert told(watch, 1) == [(PRESENT, "t")]
        node.make("u", "t")
        assert told(watch, 1) == [(CREATED, "u")]
        proxy.cut()
        node.sessions.clear()
        node.delete("u")
        node.make("v", "t")
        assert sorted(told(watch, 2), key=str) == [(CREATED, "v"), (DELETED, "u")]
        assert watch.next(0.2) is None
        assert node.opened[-1].held > 0


def test_a_refusal_for_now_is_asked_again() -> None:
    refusals = [Refuse(Code.OVERLOADED), Refuse(Code.OVERLOADED)]
    with cluster() as (node, client, _):
        node.hook = lambda header: refusals.pop() if header.opcode == Opcode.WATCH_OPEN and refusals else None
        with client.watch(prefix="") as watch:
            assert told(watch, 1) == [(PRESENT, "t")]
        assert refusals == []


# ---- ends -----------------------------------------------------------------------------------------------


def test_the_iteration_ends_when_nothing_happens_for_its_timeout() -> None:
    with cluster() as (node, client, _), client.watch("t", timeout_s=0.3) as watch:
        assert [event.kind for event in watch] == [LAYOUT]
        node.split("t")
        assert [event.kind for event in watch] == [LAYOUT], "a new loop goes on"


def test_a_watch_that_is_closed_ends_its_session_and_a_loop_in_another_thread() -> None:
    with cluster() as (node, client, _):
        watch = client.watch("t")
        found: list[EventKind] = []
        loop = threading.Thread(target=lambda: found.extend(event.kind for event in watch))
        loop.start()
        until(lambda: len(node.sessions) == 1)
        until(lambda: found == [LAYOUT] or not loop.is_alive())
        watch.close()
        loop.join(10)
        assert not loop.is_alive()
        until(lambda: not node.sessions)
        assert node.topic_of("t").topic not in client._tables._listeners
        watch.close()


def test_a_watch_without_references_ends() -> None:
    with cluster() as (node, client, _):
        watch = client.watch("t")
        until(lambda: len(node.sessions) == 1)
        del watch
        gc.collect()
        until(lambda: not node.sessions)


def test_closing_the_client_ends_its_watches_with_an_error() -> None:
    with cluster() as (_, client, _):
        watch = client.watch(prefix="")
        told(watch, 1)
        client.close()
        with pytest.raises(ringfence.ClosedError):
            watch.next(10)
        watch.close()


def test_one_client_has_at_most_64_watches() -> None:
    with cluster() as (node, client, _):
        opened = [client.watch(prefix=str(number)) for number in range(watches.WATCHES_MAX)]
        with client.watch(prefix="one more") as watch, pytest.raises(ringfence.InvalidArgumentError):
            watch.next(10)
        opened.pop().close()
        with client.watch(prefix="") as watch:
            told(watch, 1)
        until(lambda: len(node.sessions) == watches.WATCHES_MAX - 1)


def test_events_that_nobody_takes_are_bounded_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ringfence.common.watch_events, "EVENTS_MAX", 4)
    with cluster() as (node, client, _):
        watch = client.watch(prefix="")
        watch._queue._events_max = 4
        for number in range(20):
            node.make(f"n{number}", "t")
        until(lambda: len(watch.topics) == 21)
        events = [watch.next(1) for _ in range(4)]
        assert [event.missed for event in events if event is not None] == [17, 0, 0, 0]
        assert watch.next(0.1) is None


@pytest.mark.parametrize(
    "arguments", [{}, {"topic": "t", "prefix": "p"}, {"prefix": 7}, {"topic": "t", "timeout_s": 0}]
)
def test_bad_arguments_are_refused(arguments: dict[str, object]) -> None:
    with cluster() as (_, client, _), pytest.raises(ringfence.InvalidArgumentError):
        client.watch(**arguments)  # type: ignore[arg-type]


def test_a_watch_stays_in_its_process() -> None:
    with cluster() as (_, client, _), client.watch("t") as watch, pytest.raises(TypeError):
        watch.__reduce__()


def test_a_watch_next_to_sends_costs_no_turns_when_nothing_happens() -> None:
    with cluster() as (_, client, _), client.watch("t") as watch, client.producer("t") as producer:
        versions(watch, 1)
        producer.send(rows(0)).result(10)
        turns, io_thread = 0, client._io_thread
        turn = io_thread._turn

        def counted() -> None:
            nonlocal turns
            turns += 1
            turn()

        io_thread._turn = counted  # type: ignore[method-assign]
        time.sleep(1)
        assert turns < 20
