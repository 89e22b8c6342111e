"""One fetch of a table serves everybody who waits, and names the version that is needed."""

from __future__ import annotations

from typing import Any

from ringfence.cluster.table_cache import TableCache
from ringfence.common.codec import Answer
from ringfence.common.routing import Layout
from ringfence.native import messages, wire
from ringfence.native.errors import ConnectError, RingfenceError
from ringfence.network.request import Request
from tests.fakes.routing_tables import table

Told = list[tuple[int | None, str | None]]


class Thread:
    """An I/O thread that keeps requests for the test to answer."""

    def __init__(self) -> None:
        self.now, self.requests = 0.0, list[Request]()

    def enqueue(self, request: Request) -> None:
        self.requests.append(request)

    def connections(self) -> list[Any]:
        return []

    def peers(self) -> list[Any]:
        return []

    def at(self, when: float, function: Any) -> None:
        del when, function


def cache() -> tuple[Thread, TableCache]:
    thread: Any = Thread()
    return thread, TableCache(thread)


def answer(version: int, generation: int) -> Answer:
    whole = table([], generation=generation)
    fields = {name: getattr(whole, name) for name in whole.__struct_fields__} | {"version": version}
    body = messages.encode(messages.Table(**fields))
    header = dict.fromkeys(wire.AnswerHeader._fields, 0) | {"status": wire.Status.OK}
    return Answer(wire.AnswerHeader(**header), memoryview(body))


def note(told: Told) -> Any:
    def done(layout: Layout | None, error: RingfenceError | None) -> None:
        told.append((None if layout is None else layout.version, None if error is None else error.message))

    return done


def versions(thread: Thread) -> list[int]:
    return [request.fields["layout_version"] for request in thread.requests]


def test_those_who_wait_share_one_request() -> None:
    thread, tables = cache()
    told: Told = []
    for _ in range(50):
        tables.fetch(7, note(told), 2)
    assert versions(thread) == [2]
    thread.requests[0].future.set_result(answer(2, 6))
    assert told == [(2, None)] * 50
    tables.fetch(7, note(told))
    assert versions(thread) == [2, 0], "the next one asks again"


def test_who_needs_more_than_the_request_under_way_named_is_asked_for_again() -> None:
    thread, tables = cache()
    first, later = Told(), Told()
    tables.fetch(7, note(first))
    tables.fetch(7, note(later), 3)
    tables.fetch(7, note(later), 2)
    thread.requests[0].future.set_result(answer(1, 6))
    assert (first, later) == ([(1, None)], [])
    assert versions(thread) == [0, 3], "both share the next request"
    thread.requests[1].future.set_result(answer(3, 9))
    assert later == [(3, None), (3, None)]


def test_a_node_that_does_not_know_the_version_is_not_asked_in_a_loop() -> None:
    """The caller pauses: the table is not new enough."""
    thread, tables = cache()
    told: Told = []
    tables.fetch(7, note(told), 3)
    thread.requests[0].future.set_result(answer(1, 6))
    assert told == [(1, None)]
    assert len(thread.requests) == 1


def test_an_error_is_told_to_all() -> None:
    thread, tables = cache()
    told: Told = []
    tables.fetch(7, note(told))
    tables.fetch(7, note(told), 4)
    thread.requests[0].future.set_exception(ConnectError("no node"))
    assert told == [(None, "no node")] * 2
