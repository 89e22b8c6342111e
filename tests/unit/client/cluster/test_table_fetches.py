"""One fetch of a table serves everybody who waits, and asks the next node where one is behind."""

from __future__ import annotations

import time
from typing import Any

import pytest

from ringfence.cluster import table_fetches
from ringfence.cluster.table_cache import TableCache
from ringfence.common.routing import Layout
from ringfence.native.errors import ConnectError, NotFoundError, RetriableError, RingfenceError
from ringfence.native.wire import Code
from ringfence.network.request import Request
from tests.fakes.routing_tables import table
from tests.fakes.still_thread import StillThread, answer

Told = list[tuple[int | None, str | None]]


def cache(*nodes: int) -> tuple[StillThread, TableCache]:
    thread: Any = StillThread(*nodes)
    return thread, TableCache(thread)


def note(told: Told) -> Any:
    def done(layout: Layout | None, error: RingfenceError | None) -> None:
        told.append((None if layout is None else layout.version, None if error is None else error.message))

    return done


def versions(thread: StillThread) -> list[int]:
    return [request.fields["layout_version"] for request in thread.requests]


def asked(thread: StillThread) -> list[int | None]:
    return [request.node for request in thread.requests]


def give(request: Request, version: int, generation: int) -> None:
    request.future.set_result(answer(table([], version=version, generation=generation, nodes=(1, 2, 3))))


def test_those_who_wait_share_one_request() -> None:
    thread, tables = cache()
    told: Told = []
    for _ in range(50):
        tables.fetch(7, note(told), 2)
    assert versions(thread) == [2]
    give(thread.requests[0], 2, 6)
    assert told == [(2, None)] * 50
    tables.fetch(7, note(told))
    assert versions(thread) == [2, 0], "the next one asks again"


def test_who_needs_more_than_the_request_under_way_named_is_asked_for_again() -> None:
    thread, tables = cache()
    first, later = Told(), Told()
    tables.fetch(7, note(first))
    tables.fetch(7, note(later), 3)
    tables.fetch(7, note(later), 2)
    give(thread.requests[0], 1, 6)
    assert (first, later) == ([(1, None)], [])
    assert versions(thread) == [0, 3], "both share the next request"
    give(thread.requests[1], 3, 9)
    assert later == [(3, None), (3, None)]


def test_a_node_that_does_not_know_the_version_is_not_asked_in_a_loop() -> None:
    """The caller pauses: the table is not new enough."""
    thread, tables = cache()
    told: Told = []
    tables.fetch(7, note(told), 3)
    give(thread.requests[0], 1, 6)
    assert told == [(1, None)]
    assert len(thread.requests) == 1


def test_an_error_is_told_to_all() -> None:
    thread, tables = cache()
    told: Told = []
    tables.fetch(7, note(told))
    tables.fetch(7, note(told), 4)
    thread.requests[0].future.set_exception(ConnectError("no node"))
    assert told == [(None, "no node")] * 2


# ---- several nodes --------------------------------------------------------------------------------------


def test_a_frozen_node_that_gives_the_same_old_table_does_not_keep_a_fetch() -> None:
    """Reject, refresh, same stale table, reject."""
    thread, tables = cache(2, 3)
    told: Told = []
    tables.fetch(7, note(told), 2)
    give(thread.requests[0], 1, 6)
    assert told == []
    give(thread.requests[1], 1, 6)
    give(thread.requests[2], 2, 9)
    assert asked(thread) == [None, 2, 3]
    assert told == [(2, None)]


def test_who_waits_for_a_version_gets_it_from_the_node_that_has_it() -> None:
    """A reader at a sealed end, a count: `get_by_id` with a version."""
    thread, tables = cache(2)
    enqueue = thread.enqueue

    def answered(request: Request) -> None:
        enqueue(request)
        if request.node is None:
            give(request, 1, 6)
        elif len(thread.requests) < 4:
            request.future.set_exception(RetriableError("ahead", code=Code.AHEAD))
        else:
            give(request, 2, 9)

    thread.enqueue = answered  # type: ignore[method-assign]
    assert tables.get_by_id(7, time.monotonic() + 30, version=2).version == 2
    assert asked(thread) == [None, 2, None, 2]


def test_who_waits_for_a_version_waits_until_its_deadline_only() -> None:
    _, tables = cache()
    began = time.monotonic()
    with pytest.raises(RetriableError, match="version 2 of the layout"):
        tables.get_by_id(7, began + 0.1, version=2)
    assert time.monotonic() - began < 5


def test_a_node_that_waits_for_the_version_has_a_second_while_there_are_others() -> None:
    thread, tables = cache(2)
    begun = time.monotonic()
    tables.fetch(7, note([]), 2)
    assert thread.requests[0].deadline - begun < 1.5
    thread.requests[0].future.set_exception(RetriableError("ahead", code=Code.AHEAD))
    assert thread.requests[1].deadline - begun > 5, "the last node has the rest of the time"


def test_for_a_version_nodes_of_the_table_are_asked_that_are_not_connected_yet() -> None:
    thread, tables = cache()
    tables.fetch(7, note([]))
    give(thread.requests[0], 1, 6)
    told: Told = []
    tables.fetch(7, note(told), 2)
    give(thread.requests[1], 1, 6)
    give(thread.requests[2], 1, 6)
    give(thread.requests[3], 2, 9)
    assert asked(thread) == [None, None, 1, 2]
    assert told == [(2, None)]


def test_no_more_than_a_few_nodes_are_asked() -> None:
    thread, tables = cache(*range(2, 30))
    told: Told = []
    tables.fetch(7, note(told), 2)
    for _ in range(table_fetches.NODES_MAX):
        give(thread.requests[-1], 1, 6)
    assert len(thread.requests) == table_fetches.NODES_MAX
    assert told == [(1, None)]


def test_a_fetch_names_what_is_held_so_that_a_node_that_lags_is_told_from_a_deleted_topic() -> None:
    thread, tables = cache(2)
    tables.fetch(7, note([]))
    give(thread.requests[0], 1, 6)
    told: Told = []
    tables.fetch(7, note(told))
    assert thread.requests[1].held == 6, "a node at a lower generation is behind: its answer is retriable"
    thread.requests[1].future.set_exception(RetriableError("behind", code=Code.UNKNOWN_TOPIC))
    assert told == []
    thread.requests[2].future.set_exception(NotFoundError("no such topic", code=Code.UNKNOWN_TOPIC))
    assert told == [(None, "no such topic")]
    assert tables.held(7) is None, "the topic was deleted"


@pytest.mark.parametrize("rounds", [6])
def test_refreshes_ask_the_connected_nodes_in_turn(rounds: int) -> None:
    thread, tables = cache(2, 3)
    tables.listen(7, lambda _: None)
    tables.fetch(7, note([]))
    give(thread.requests[0], 1, 6)
    for number in range(rounds):
        thread.pass_s(75.1)
        give(thread.requests[1 + number], 1, 6)
    assert asked(thread)[1:] == [2, 3, None] * (rounds // 3)


def test_a_refresh_names_what_is_held_and_an_answer_without_a_body_keeps_it() -> None:
    thread, tables = cache()
    tables.listen(7, lambda _: None)
    tables.fetch(7, note([]))
    give(thread.requests[0], 1, 6)
    thread.pass_s(75.1)
    assert [request.fields["sequence"] for request in thread.requests] == [0, 6]
    thread.requests[1].future.set_result(answer(None, 50))
    assert thread.connections()[0].acknowledged == [(7, 6), (7, 50)]
    thread.pass_s(75.1)
    assert thread.requests[2].fields["sequence"] == 50


def test_an_answer_without_a_body_is_no_use_when_nothing_is_held_any_more() -> None:
    thread, tables = cache(2)
    tables.listen(7, lambda _: None)
    tables.fetch(7, note([]))
    give(thread.requests[0], 1, 6)
    thread.pass_s(75.1)
    for forget in thread.on_history:
        forget()
    thread.requests[1].future.set_result(answer(None, 50))
    assert thread.requests[2].fields["sequence"] == 0, "the next node is asked for the whole table"


def test_a_redirect_asks_for_the_whole_table() -> None:
    """A node that has nothing newer would leave the sender at the table that it was redirected with."""
    thread, tables = cache()
    for _ in range(2):
        tables.fetch(7, note([]))
        give(thread.requests[-1], 1, 6)
    assert [request.fields["sequence"] for request in thread.requests] == [0, 0]


def test_the_loads_of_a_topic_without_key_come_with_the_whole_table() -> None:
    thread, tables = cache()
    tables.fetch(7, note([]))
    thread.requests[0].future.set_result(answer(table([], key=[], loads=[5])))
    tables.listen(7, lambda _: None)
    thread.pass_s(12.6)
    assert [request.fields["sequence"] for request in thread.requests] == [0, 0]
