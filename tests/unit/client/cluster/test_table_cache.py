"""Which tables are used and acknowledged, of those that are pushed and fetched."""

from __future__ import annotations

import logging
from typing import Any

import msgspec
import pytest

from ringfence.cluster import table_cache
from ringfence.cluster.table_cache import TableCache
from ringfence.common.routing import Layout
from ringfence.native import messages
from ringfence.native.errors import ConnectError
from tests.fakes.routing_tables import table
from tests.fakes.still_thread import StillThread, answer, pushed

TURN_S = table_cache.REFRESH_S * 1.25


def following(*nodes: int, **fields: Any) -> tuple[StillThread, TableCache, list[int]]:
    """A client that follows topic 7; the generations that its user has routed by."""
    thread: Any = StillThread(*nodes)
    tables, used = TableCache(thread), list[int]()
    tables.listen(7, lambda layout: used.append(layout.generation))
    tables.fetch(7, lambda *_: None)
    thread.requests.pop().future.set_result(answer(table([], **fields)))
    for connection in thread.connections():
        assert connection.acknowledged == [(7, 5)]
        connection.acknowledged.clear()
    return thread, tables, used


# ---- acknowledgements -----------------------------------------------------------------------------------


def test_pushes_5_7_6_leave_7_and_are_acknowledged_as_5_7_7() -> None:
    thread, tables, used = following()
    (connection,) = {thread.push(table([], generation=generation)) for generation in (5, 7, 6)}
    assert [generation for _, generation in connection.acknowledged] == [5, 7, 7]
    held = tables.held(7)
    assert held is not None
    assert (held.generation, used) == (7, [5, 7])


def test_a_newer_table_is_acknowledged_on_every_connection_an_older_one_where_it_came_from() -> None:
    thread, _, _ = following(2, 3)
    thread.push(table([], generation=9), way=1)
    assert [one.acknowledged for one in thread.connections()] == [[(7, 9)]] * 3
    thread.push(table([], generation=8), way=2)
    assert [one.acknowledged for one in thread.connections()] == [[(7, 9)], [(7, 9)], [(7, 9)] * 2]


def test_nothing_is_acknowledged_before_all_users_of_the_topic_route_by_it() -> None:
    thread, tables, _ = following()
    (connection,) = thread.connections()
    seen: list[list[tuple[int, int]]] = []
    tables.listen(7, lambda _: seen.append(list(connection.acknowledged)))
    thread.push(table([], generation=9))
    assert seen == [[]]
    assert connection.acknowledged == [(7, 9)]


def test_what_is_acknowledged_is_the_generation_of_the_frame() -> None:
    """100 unrelated commits, then one push: the generation is that of the node, not that of the bytes."""
    thread, _, _ = following()
    connection = thread.push(table([], generation=9), 108)
    assert connection.acknowledged == [(7, 108)]


def test_a_push_that_comes_before_any_answer_is_not_of_a_topic_in_use() -> None:
    thread: Any = StillThread()
    tables = TableCache(thread)
    connection = thread.push(table([], generation=9))
    assert connection.acknowledged == []
    assert tables.held(7) is None


def test_a_push_to_a_topic_that_is_listened_to_is_used_though_no_answer_came_yet() -> None:
    thread: Any = StillThread()
    tables, used = TableCache(thread), list[Layout]()
    tables.listen(7, used.append)
    connection = thread.push(table([], generation=9))
    assert [layout.generation for layout in used] == [9]
    assert connection.acknowledged == [(7, 9)]


def test_a_user_that_fails_does_not_keep_the_table_from_the_others(caplog: pytest.LogCaptureFixture) -> None:
    thread, tables, used = following()
    broken: list[int] = []

    def fail(layout: Layout) -> None:
        broken.append(layout.generation)
        raise RuntimeError("a defect")

    tables.listen(7, fail)
    tables.listen(7, lambda layout: used.append(-layout.generation))
    with caplog.at_level(logging.ERROR):
        connection = thread.push(table([], generation=9))
    assert (broken, used) == ([9], [5, 9, -9])
    assert connection.acknowledged == [(7, 9)]


# ---- doubtful tables ------------------------------------------------------------------------------------


class Delta(messages.Message, frozen=True):
    """A difference from a table: this client does not ask for them."""

    topic: int
    base: int
    generation: int
    version: int
    changed: tuple[int, ...] = ()


DOUBTFUL = {
    "from the future": pushed(table([], generation=99), 98),
    "of another history": pushed(table([], generation=9, history=b"other")),
    "whose version went back": pushed(table([], generation=9, version=0)),
    "on a base that is not held": pushed(Delta(topic=7, base=8, generation=9, version=1)),
    "with a gap": pushed(msgspec.structs.replace(table([], generation=9), partitions=[])),
    "of another topic than its frame": pushed(
        msgspec.structs.replace(table([], generation=9), topic=8), topic=7
    ),
}


@pytest.mark.parametrize("doubtful", DOUBTFUL.values(), ids=DOUBTFUL)
def test_many_doubtful_pushes_change_nothing_and_lead_to_one_fetch_from_another_node(doubtful: Any) -> None:
    thread, tables, used = following(2)
    held = tables.held(7)
    for _ in range(100):
        for handler in thread.on_push:
            handler(thread.connections()[0], doubtful)
    assert (tables.held(7), used, thread.requests) == (held, [5], [])
    assert all(one == (7, 5) for one in thread.connections()[0].acknowledged)
    thread.pass_s(table_cache.DOUBT_S)
    assert [(request.node, request.fields["sequence"]) for request in thread.requests] == [(2, 0)]
    thread.requests[0].future.set_result(answer(table([], generation=12)))
    assert used == [5, 12]


def test_doubtful_pushes_that_go_on_lead_to_a_fetch_now_and_then() -> None:
    thread, _, _ = following(2)
    fetches = 0
    for _ in range(100):
        thread.push(table([], generation=99), 98)
        thread.pass_s(table_cache.DOUBT_S / 20)
        while thread.requests:
            fetches += 1
            thread.requests.pop().future.set_result(answer(table([])))
    assert 3 <= fetches <= 10


def test_a_doubtful_table_is_no_answer_to_a_fetch() -> None:
    thread, tables, _ = following(2)
    got: list[Layout | None] = []
    tables.fetch(7, lambda layout, _: got.append(layout))
    thread.requests[0].future.set_result(answer(table([], generation=99), 98))
    assert got == []
    thread.requests[1].future.set_result(answer(table([], generation=12)))
    assert [layout.generation for layout in got if layout is not None] == [12]
    thread.pass_s(10)
    assert len(thread.requests) == 2, "a fetch that finds a doubtful table does not lead to the next fetch"


# ---- refresh --------------------------------------------------------------------------------------------


def test_a_client_whose_pushes_are_all_lost_converges() -> None:
    thread, _, used = following(2)
    thread.pass_s(TURN_S)
    assert [request.node for request in thread.requests] == [2]
    thread.requests[0].future.set_result(answer(table([], generation=30)))
    assert used == [5, 30]


def test_refreshes_are_spread_over_half_of_their_time() -> None:
    thread, tables, _ = following()
    due = set()
    for jitter in (0.0, 0.999):
        thread.jitter = lambda jitter=jitter: jitter  # type: ignore[method-assign,misc]
        due.add(round(tables._next_refresh(7) - thread.now))
    assert due == {45, 75}


def test_a_connection_that_came_up_is_asked_with_what_is_held() -> None:
    thread, _, _ = following()
    for note in thread.on_up:
        note(thread.connections()[0])
    assert [request.fields["sequence"] for request in thread.requests] == [5]


def test_loads_that_no_node_tells_any_more_are_not_used() -> None:
    thread: Any = StillThread()
    tables, used = TableCache(thread), list[dict[int, int]]()
    tables.fetch(7, lambda *_: None)
    given = answer(table([1000], key=[], loads=[900, 5]))
    thread.requests.pop().future.set_result(given)
    tables.listen(7, lambda layout: used.append(dict(layout.loads)))
    for _ in range(6):  # told again and again: they stay
        thread.pass_s(12.6)
        thread.requests.pop().future.set_result(given)
    assert used == []
    for _ in range(6):
        thread.pass_s(12.6)
        if thread.requests:
            thread.requests.pop().future.set_exception(ConnectError("no node answers"))
    assert used == [{}]
    thread.pass_s(12.6)
    thread.requests.pop().future.set_result(given)
    assert used[-1] == {100: 900, 101: 5}


# ---- nodes that left ------------------------------------------------------------------------------------


def test_nodes_of_the_tables_in_use_are_kept_and_no_others() -> None:
    thread, tables, _ = following(nodes=(1, 2, 3))
    assert thread.kept[-1] == {1, 2, 3}
    tables.fetch(8, lambda *_: None)
    other = msgspec.structs.replace(table([], nodes=(1, 9)), topic=8)
    thread.requests[-1].future.set_result(answer(other))
    assert thread.kept[-1] == {1, 2, 3}, "no user follows topic 8"
    thread.push(table([], generation=9, nodes=(1, 2)))
    assert thread.kept[-1] == {1, 2}
