"""Sessions of watches: one for each connection, opened again until it is there, and ended with the watch."""

from __future__ import annotations

from typing import Any

import pytest

from ringfence.cluster.table_cache import TableCache
from ringfence.cluster.watches import AGAIN_S, LOOK_S, WATCHES_MAX, Watches, Watching
from ringfence.common.watch_events import EventKind, EventQueue
from ringfence.native import messages, wire
from ringfence.native.cluster_messages import Controller, WatchClose, WatchOpen, WatchUpdate
from ringfence.native.errors import (
    ClosedError,
    InvalidArgumentError,
    NotFoundError,
    OverloadedError,
    RefusedError,
    RetriableError,
    RingfenceError,
    UnknownOutcomeError,
)
from ringfence.native.wire import Code, Opcode
from ringfence.network.request import Request
from tests.fakes.routing_tables import table
from tests.fakes.still_thread import StillThread, answer, pushed

LEADER = Controller(node=3, addresses=[], http="")


class Client:
    """A client without sockets that watches topic 7 or a prefix."""

    def __init__(self) -> None:
        thread: Any = StillThread()
        self.thread = thread
        self.tables = TableCache(thread)
        self.watches = Watches(thread, self.tables)

    def watch(self, name: str | None = None, prefix: str = "") -> Watching:
        watching = Watching(EventQueue(), prefix=prefix)
        if name is not None:
            watching.topic, watching.name = 7, name
            self.tables.fetch(7, lambda *_: None)
            self.thread.requests.pop().future.set_result(answer(table([])))
        self.watches.begin(watching)
        return watching

    def opens(self) -> list[WatchOpen]:
        found = [one for one in self.thread.requests if one.opcode == Opcode.WATCH_OPEN]
        return [messages.decode(WatchOpen, one.body) for one in found]

    def last(self) -> Request:
        request: Request = self.thread.requests[-1]
        return request

    def update(self, session: bytes, *, topic: int = 0, generation: int = 9, **fields: Any) -> None:
        update = WatchUpdate(session=session, controller=LEADER, **fields)
        frame = pushed(update, generation, opcode=Opcode.WATCH_UPDATE, topic=topic)
        for handler in self.thread.on_push:
            handler(self.thread.connections()[0], frame)

    def reconnect(self) -> None:
        for note in self.thread.on_up:
            note(self.thread.first.up)


def kinds(watching: Watching) -> list[EventKind]:
    found = []
    while (event := watching.queue.take()) is not None:
        found.append(event.kind)
    return found


def test_a_watch_of_a_topic_names_what_is_held() -> None:
    client = Client()
    client.watch("t")
    (opened,) = client.opens()
    assert (opened.topic, opened.held, len(opened.session)) == ("t", 5, 16)
    assert not isinstance(opened.prefix, str)


def test_each_connection_gets_another_session_and_frames_of_an_older_one_count_no_more() -> None:
    client = Client()
    watching = client.watch(prefix="a")
    client.update(client.opens()[0].session, topics=[(1, "ab")], whole=True)
    client.reconnect()
    first, second = client.opens()
    assert first.session != second.session
    assert second.held == 9
    client.update(first.session, generation=12, topics=[(2, "ac")])
    client.update(second.session, generation=12, topics=[(3, "ad")])
    assert watching.catalogue.names == {1: "ab", 3: "ad"}


def test_without_a_connection_no_session_is_opened_until_it_comes_up() -> None:
    client = Client()
    up, client.thread.first.up = client.thread.first.up, None
    client.watch(prefix="a")
    assert client.opens() == []
    client.thread.first.up = up
    client.reconnect()
    assert len(client.opens()) == 1


def test_the_connection_of_an_owner_opens_no_sessions() -> None:
    client = Client()
    client.watch(prefix="a")
    for note in client.thread.on_up:
        note(object())
    assert len(client.opens()) == 1


@pytest.mark.parametrize(
    "error", [RetriableError("no"), OverloadedError("full"), UnknownOutcomeError("lost")]
)
def test_a_session_that_could_not_be_opened_is_opened_again_after_a_pause(error: RingfenceError) -> None:
    client = Client()
    client.watch(prefix="a")
    client.last().future.set_exception(error)
    assert len(client.opens()) == 1
    client.thread.pass_s(AGAIN_S + 0.01)
    assert len(client.opens()) == 2


def test_a_session_that_was_opened_meanwhile_is_not_opened_twice() -> None:
    client = Client()
    client.watch(prefix="a")
    client.last().future.set_exception(UnknownOutcomeError("lost"))
    client.reconnect()
    client.thread.pass_s(AGAIN_S * 4)
    assert len(client.opens()) == 2


def test_a_request_for_a_session_is_never_repeated_at_another_connection() -> None:
    client = Client()
    client.watch(prefix="a")
    assert client.last().once


def test_an_unknown_topic_ends_its_watch_with_its_deletion() -> None:
    client = Client()
    watching = client.watch("t")
    client.last().future.set_exception(NotFoundError("no such topic", code=Code.UNKNOWN_TOPIC))
    assert kinds(watching) == [EventKind.LAYOUT, EventKind.DELETED]
    assert watching.queue.is_ended
    assert 7 not in client.tables._listeners


@pytest.mark.parametrize("code", [Code.UNKNOWN_OPCODE, Code.NOT_SUPPORTED])
def test_a_node_that_serves_no_watches_ends_those_of_prefixes_only(code: wire.Code) -> None:
    client = Client()
    by_topic, by_prefix = client.watch("t"), client.watch(prefix="a")
    for request in client.thread.requests[-2:]:
        request.future.set_exception(RefusedError("not here", code=code))
    assert kinds(by_topic) == [EventKind.LAYOUT]
    assert not by_topic.queue.is_ended
    with pytest.raises(RefusedError):
        by_prefix.queue.take()


def test_an_update_of_the_controller_alone_is_no_event_and_raises_nothing() -> None:
    client = Client()
    watching = client.watch("t")
    kinds(watching)
    client.thread.connections()[0].acknowledged.clear()
    client.update(client.opens()[0].session, topic=7, generation=90)
    assert kinds(watching) == []
    assert watching.controller == LEADER
    assert client.thread.connections()[0].acknowledged == [(7, 5)], "a table may be on its way"


def test_a_table_of_a_watch_is_that_of_all_users_of_the_topic() -> None:
    client = Client()
    watching, used = client.watch("t"), list[int]()
    client.tables.listen(7, lambda layout: used.append(layout.version))
    newer = table([1000], generation=9, version=2)
    client.update(client.opens()[0].session, topic=7, table=newer)
    assert kinds(watching) == [EventKind.LAYOUT, EventKind.LAYOUT]
    assert used == [2]
    assert client.thread.connections()[0].acknowledged[-1] == (7, 9)


def test_a_topic_that_was_made_again_ends_the_watch_of_the_old_one() -> None:
    client = Client()
    watching = client.watch("t")
    client.update(client.opens()[0].session, topic=8)
    assert kinds(watching) == [EventKind.LAYOUT, EventKind.DELETED]


def test_other_loads_are_no_event() -> None:
    client = Client()
    watching = client.watch("t")
    client.thread.push(table([], loads=[77]))
    assert kinds(watching) == [EventKind.LAYOUT]


def test_an_update_that_cannot_be_read_hurts_no_other() -> None:
    client = Client()
    watching = client.watch(prefix="a")
    frame = pushed(table([]), opcode=Opcode.WATCH_UPDATE)
    with pytest.raises(RingfenceError):  # the I/O thread logs it and goes on
        client.watches.pushed(client.thread.connections()[0], frame)
    client.update(client.opens()[0].session, topics=[(1, "ab")], whole=True)
    assert kinds(watching) == [EventKind.PRESENT]


def test_the_end_of_a_watch_closes_its_session_and_lets_the_client_rest() -> None:
    client = Client()
    watching = client.watch(prefix="a")
    client.watches.end(watching)
    assert client.last().opcode == Opcode.WATCH_CLOSE
    assert messages.decode(WatchClose, bytes(client.last().body)).session == client.opens()[0].session
    client.update(client.opens()[0].session, topics=[(1, "ab")], whole=True)
    assert watching.catalogue.names == {}
    assert client.thread.members == []
    client.thread.pass_s(LOOK_S * 3)
    assert client.thread._timers == []


def test_watches_that_come_and_go_leave_one_timer() -> None:
    client = Client()
    for _ in range(50):
        client.watches.end(client.watch(prefix="a"))
    client.watch(prefix="a")
    assert len(client.thread._timers) == 1
    client.thread.pass_s(LOOK_S * 3)
    assert len(client.thread._timers) == 1


def test_another_history_ends_watches_of_topics_and_lists_prefixes_again() -> None:
    client = Client()
    by_topic, by_prefix = client.watch("t"), client.watch(prefix="a")
    client.update(client.opens()[1].session, generation=900, topics=[(1, "ab")], whole=True)
    client.watches.history_changed()
    kinds_of_topic = by_topic.queue.take()
    assert kinds_of_topic is not None
    with pytest.raises(RetriableError, match="restored from a backup"):
        by_topic.queue.take()
    client.reconnect()
    client.update(client.opens()[-1].session, generation=5, topics=[(4, "ac")], whole=True)
    assert kinds(by_prefix) == [EventKind.PRESENT, EventKind.DELETED, EventKind.CREATED]


def test_the_end_of_the_client_is_an_error_and_too_many_watches_are_refused() -> None:
    client = Client()
    watching = [client.watch(prefix=str(number)) for number in range(WATCHES_MAX)]
    refused = client.watch(prefix="more")
    with pytest.raises(InvalidArgumentError):
        refused.queue.take()
    client.watches.abandon(ClosedError("closed"))
    for one in watching:
        with pytest.raises(ClosedError):
            one.queue.take()
