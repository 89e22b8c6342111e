"""One follower's progress at the leader: when it may be sent to, and from which index."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence.control.consensus.progress import Progress, ProgressState
from ringfence.control.consensus.window import Window


def progress(*, match: int = 0, next_index: int = 1, messages: int = 3) -> Progress:
    return Progress(match=match, next_index=next_index, window=Window(messages, 1 << 20))


def test_a_probe_is_one_append_until_it_is_answered() -> None:
    made = progress(next_index=5)
    made.sent(0, 0)
    assert not made.is_paused(), "an empty append tells nothing that is waited for"
    made.sent(2, 10)
    assert (made.is_paused(), made.next) == (True, 5)
    assert made.maybe_update(6)
    assert (made.is_paused(), made.match, made.next) == (False, 6, 7)
    assert not made.maybe_update(6), "that is not new"


def test_replication_goes_on_without_answers_until_the_window_is_full() -> None:
    made = progress(match=4, next_index=9, messages=2)
    made.become_replicate()
    assert made.next == 5
    made.sent(3, 10)
    assert (made.next, made.is_paused()) == (8, False)
    made.sent(1, 10)
    assert (made.next, made.is_paused()) == (9, True)


def test_a_rejected_probe_goes_back_to_the_hint_and_an_old_rejection_is_ignored() -> None:
    made = progress(match=2, next_index=9)
    made.sent(1, 1)
    assert not made.maybe_decrease(7, 3), "not of the append that was sent last"
    assert made.is_paused()
    assert made.maybe_decrease(8, 5)
    assert (made.next, made.is_paused()) == (6, False)
    assert made.maybe_decrease(5, 0)
    assert made.next == 3, "never at or below what matches"


def test_a_rejection_while_replicating_goes_back_to_what_matches() -> None:
    made = progress(match=4)
    made.become_replicate()
    made.sent(5, 1)
    assert not made.maybe_decrease(4, 0)
    assert made.maybe_decrease(6, 0)
    assert made.next == 5


def test_nothing_but_heartbeats_goes_to_a_follower_that_gets_a_snapshot() -> None:
    made = progress(match=2, next_index=9)
    made.become_snapshot(20)
    assert (made.is_paused(), made.next, made.sent_commit) == (True, 21, 20)
    with pytest.raises(AssertionError, match="snapshot"):
        made.sent(1, 1)
    made.become_probe()
    assert (made.state, made.next, made.pending_snapshot) == (ProgressState.PROBE, 21, 0)


def test_a_commit_is_told_once_and_only_of_entries_that_were_sent() -> None:
    made = progress(match=4)
    made.become_replicate()
    assert made.may_tell_commit(3)
    made.sent_commit = 3
    assert not made.may_tell_commit(3)
    assert made.may_tell_commit(9)
    made.sent_commit = 4
    assert not made.may_tell_commit(9), "it has no entry beyond"


def test_a_copy_is_changed_alone() -> None:
    made = progress(match=2, next_index=9)
    twin = made.copy()
    twin.maybe_update(12)
    assert (made.match, twin.match) == (2, 12)


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["probe", "replicate", "snapshot", "sent", "update", "decrease"]), st.integers(0, 30)
    ),
    max_size=30,
)


@given(EVENTS)
def test_what_matches_stays_below_the_next_index(events: list[tuple[str, int]]) -> None:
    made = progress()
    for kind, number in events:
        before = made.match
        if kind == "probe":
            made.become_probe()
        elif kind == "replicate":
            made.become_replicate()
        elif kind == "snapshot":
            made.become_snapshot(max(made.match + 1, number))
        elif kind == "sent" and not made.is_paused():
            made.sent(number % 3, 1)
        elif kind == "update":
            made.maybe_update(number)
        elif kind == "decrease":
            made.maybe_decrease(number, number // 2)
        assert before <= made.match < made.next
