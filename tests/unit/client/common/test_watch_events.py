"""Events are differences of states, also over reconnects, and what is dropped is counted."""

from __future__ import annotations

import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence.common.watch_events import Catalogue, EventKind, EventQueue, WatchEvent
from ringfence.native.errors import ClosedError

PRESENT, CREATED, DELETED = EventKind.PRESENT, EventKind.CREATED, EventKind.DELETED


def told(events: list[WatchEvent]) -> list[tuple[EventKind, str]]:
    return [(event.kind, event.topic) for event in events]


def begun(*names: str) -> Catalogue:
    catalogue = Catalogue()
    catalogue.take(5, list(enumerate(names, 100)), [], whole=True, more=False)
    return catalogue


# ---- catalogues -----------------------------------------------------------------------------------------


def test_topics_that_exist_come_first_and_then_what_is_made_and_deleted() -> None:
    catalogue = Catalogue()
    events = catalogue.take(5, [(1, "a"), (2, "b")], [], whole=True, more=False)
    assert told(events) == [(PRESENT, "a"), (PRESENT, "b")]
    assert told(catalogue.take(6, [(3, "c")], [1], whole=False, more=False)) == [
        (DELETED, "a"),
        (CREATED, "c"),
    ]
    assert catalogue.names == {2: "b", 3: "c"}


def test_an_empty_catalogue_begins_too() -> None:
    catalogue = Catalogue()
    assert catalogue.take(5, [], [], whole=True, more=False) == []
    assert told(catalogue.take(6, [(3, "c")], [], whole=False, more=False)) == [(CREATED, "c")]


def test_pages_of_a_list_are_one_state() -> None:
    catalogue = begun("a", "b")
    assert catalogue.take(9, [(100, "a")], [], whole=True, more=True) == []
    assert catalogue.names == {100: "a", 101: "b"}, "the list is not complete"
    assert told(catalogue.take(9, [(7, "z")], [], whole=False, more=False)) == [
        (DELETED, "b"),
        (CREATED, "z"),
    ]


def test_a_list_that_was_cut_by_a_new_session_leaves_nothing() -> None:
    catalogue = begun("a", "b")
    catalogue.take(9, [(100, "a")], [], whole=True, more=True)
    catalogue.reopened()
    assert catalogue.take(9, [(7, "z")], [], whole=False, more=False) != []
    assert set(catalogue.names.values()) == {"a", "b", "z"}


def test_a_topic_that_was_made_again_is_another_one() -> None:
    catalogue = begun("a")
    events = catalogue.take(6, [(200, "a")], [100], whole=False, more=False)
    assert told(events) == [(DELETED, "a"), (CREATED, "a")]
    assert [event.topic_id for event in events] == [100, 200]


def test_a_node_that_is_behind_does_not_take_topics_away() -> None:
    catalogue = begun("a")
    catalogue.take(50, [(3, "new")], [], whole=False, more=False)
    assert catalogue.take(40, [(100, "a")], [], whole=True, more=False) == []
    assert catalogue.take(45, [(3, "new")], [], whole=False, more=False) == []
    assert set(catalogue.names.values()) == {"a", "new"}


LOG = st.lists(st.tuples(st.booleans(), st.integers(0, 5)), min_size=1, max_size=30)


@given(LOG, st.lists(st.tuples(st.integers(0, 30), st.integers(1, 8)), max_size=6), st.integers(1, 4))
def test_whichever_nodes_one_watches_the_events_lead_to_the_state_of_the_newest(
    log: list[tuple[bool, int]], sessions: list[tuple[int, int]], page: int
) -> None:
    """A session is a node that has applied so much, sends a list, and then so many changes."""
    states: list[dict[int, str]] = [{}]
    for index, (makes, number) in enumerate(log, 1):
        state = dict(states[-1])
        if makes:
            state[index] = f"t{number}"
        elif state:
            del state[sorted(state)[number % len(state)]]
        states.append(state)
    catalogue, mirror, newest = Catalogue(), dict[int, str](), 0
    for applied, changes in sessions:
        at = min(applied, len(log))
        catalogue.reopened()
        items = sorted(states[at].items())
        pages = [items[begin : begin + page] for begin in range(0, len(items), page)] or [[]]
        frames = [
            (at, part, list[int](), number == 0, number + 1 < len(pages)) for number, part in enumerate(pages)
        ]
        for later in range(at + 1, min(at + changes, len(log)) + 1):
            new = [one for one in states[later].items() if one[0] not in states[later - 1]]
            gone = [one for one in states[later - 1] if one not in states[later]]
            frames.append((later, new, gone, False, False))
        for generation, topics, gone, whole, more in frames:
            newest = max(newest, generation)
            for event in catalogue.take(generation, topics, gone, whole=whole, more=more):
                if event.kind is DELETED:
                    assert mirror.pop(event.topic_id) == event.topic
                else:
                    assert event.topic_id not in mirror
                    mirror[event.topic_id] = event.topic
        assert mirror == catalogue.names == states[newest]


# ---- the queue ------------------------------------------------------------------------------------------


def event(number: int) -> WatchEvent:
    return WatchEvent(CREATED, f"t{number}", number, number)


def test_events_that_are_not_taken_in_time_are_dropped_and_counted() -> None:
    queue = EventQueue(3)
    queue.put([event(number) for number in range(10)])
    taken = [queue.take() for _ in range(4)]
    assert [None if one is None else (one.topic_id, one.missed) for one in taken] == [
        (7, 7),
        (8, 0),
        (9, 0),
        None,
    ]
    queue.put([event(10)])
    assert queue.take() == event(10)


def test_what_waits_can_be_taken_after_the_end() -> None:
    queue = EventQueue()
    queue.put([event(1)])
    queue.end()
    queue.put([event(2)])
    assert not queue.is_ended
    assert queue.take() == event(1)
    assert (queue.take(), queue.take(None), queue.is_ended) == (None, None, True)


def test_an_error_comes_after_the_events_and_the_first_end_counts() -> None:
    queue = EventQueue()
    queue.put([event(1)])
    queue.end(ClosedError("closed"))
    queue.end()
    assert queue.take() == event(1)
    for _ in range(2):
        with pytest.raises(ClosedError):
            queue.take(None)


def test_take_waits_as_long_as_it_is_told_and_wakes_for_an_event() -> None:
    queue = EventQueue()
    began = time.monotonic()
    assert queue.take(0.05) is None
    assert time.monotonic() - began >= 0.05
    woken: list[int] = []
    queue.on_event = lambda: woken.append(1)
    threading.Timer(0.05, lambda: queue.put([event(1)])).start()
    assert queue.take(30) == event(1)
    assert woken == [1]
