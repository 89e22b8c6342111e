"""The tail that is not known to be durable: what is handed out, confirmed by index and term, or replaced."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ringfence.control.consensus.messages import ConfigurationState, Snapshot
from ringfence.control.consensus.trace import silent
from ringfence.control.consensus.unstable import UnstableTail
from tests.consensus.lab import entries


def tail(first: int, *terms: int) -> UnstableTail:
    made = UnstableTail(first, silent)
    if terms:
        made.append(entries(first, *terms))
    return made


def terms(of: UnstableTail) -> list[int]:
    return [entry.term for entry in of.entries]


def test_an_empty_tail_ends_where_storage_does_and_knows_no_term() -> None:
    made = tail(5)
    assert (made.last_index(), made.not_handed()) == (4, [])
    assert made.term(4) is None
    assert made.term(5) is None


def test_what_was_handed_out_is_not_handed_out_again() -> None:
    made = tail(5, 1, 1)
    made.hand_out()
    assert made.not_handed() == []
    made.append(entries(7, 2))
    assert [entry.index for entry in made.not_handed()] == [7]
    made.append(entries(6, 3, 3))
    assert [entry.index for entry in made.not_handed()] == [6, 7], "replaced ones are written again"


def test_a_confirmation_of_replaced_entries_confirms_nothing() -> None:
    made = tail(5, 1, 1, 1)
    made.append(entries(6, 2, 2))
    made.confirm(6, 1)
    assert (made.offset, terms(made)) == (5, [1, 2, 2])
    made.confirm(6, 2)
    assert (made.offset, terms(made)) == (7, [2])
    made.confirm(6, 2)
    assert (made.offset, terms(made)) == (7, [2]), "a second time changes nothing"


def test_a_snapshot_replaces_the_tail_and_ends_with_its_own_confirmation() -> None:
    made = tail(5, 1, 1)
    made.restore(Snapshot(9, 3, ConfigurationState(voters=(1,)), b""))
    assert (made.last_index(), made.term(9), made.offset, made.entries) == (9, 3, 10, [])
    made.confirm(9, 3)
    assert made.snapshot is not None, "that is of an entry"
    made.hand_out()
    assert made.snapshot_handed
    made.confirm_snapshot(8)
    assert made.snapshot is not None
    made.confirm_snapshot(9)
    assert made.last_index() == 9
    assert made.not_handed() == []


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(1, 3)), max_size=12))
def test_appends_leave_what_a_plain_list_would_have(steps: list[tuple[int, int]]) -> None:
    made, plain = tail(10), list[int]()
    for term, (back, count) in enumerate(steps, start=1):
        keep = max(0, len(plain) - back)
        plain = [*plain[:keep], *[term] * count]
        made.append(entries(10 + keep, *[term] * count))
        assert terms(made) == plain
        assert made.offset <= made.handed <= made.offset + len(plain)
        assert made.last_index() == 9 + len(plain)
