"""Which routing table a client uses, of those that nodes give in any order."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence.common.adoption import Held, Offer, Verdict, adopted, judge
from ringfence.common.routing import Layout, layout_of
from tests.fakes.routing_tables import table

APPLY, KEEP, DOUBT = Verdict.APPLY, Verdict.KEEP, Verdict.DOUBT


def layout(made: int, version: int = 1, load: int = 0) -> Layout:
    return layout_of(table([], generation=made, version=version, loads=[load]))


HELD = Held(layout(5), 5)


def test_the_first_table_is_used_as_of_its_frame() -> None:
    assert judge(None, Offer(layout(5), 9)) is APPLY
    held = adopted(None, Offer(HELD.layout, 9), APPLY)
    assert held == Held(HELD.layout, 9)
    assert adopted(None, Offer(HELD.layout), APPLY) == HELD


def test_a_newer_table_is_used_and_an_older_one_is_not() -> None:
    assert judge(HELD, Offer(layout(6), 6)) is APPLY
    assert judge(HELD, Offer(layout(4), 4)) is KEEP
    assert judge(HELD, Offer(layout(5), 5)) is KEEP
    assert adopted(HELD, Offer(layout(4), 4), KEEP) == HELD


def test_other_loads_of_one_generation_are_news() -> None:
    assert judge(HELD, Offer(layout(5, load=9), 5)) is APPLY
    assert judge(HELD, Offer(layout(4, load=9), 4)) is KEEP


def test_a_table_that_is_unchanged_up_to_a_later_generation_raises_what_is_acknowledged() -> None:
    assert adopted(HELD, Offer(layout(5), 8), KEEP) == Held(HELD.layout, 8)
    assert adopted(HELD, Offer(layout(3), 8), KEEP) == Held(HELD.layout, 8), "made earlier by another node"


def test_a_newer_table_never_lowers_what_is_acknowledged() -> None:
    held = Held(layout(5), 20)
    offer = Offer(layout(12), 13)
    assert judge(held, offer) is APPLY
    assert adopted(held, offer, APPLY) == Held(offer.layout, 20)


@pytest.mark.parametrize(
    "offer",
    [
        Offer(layout(9), 8),
        Offer(dataclasses.replace(layout(9), history=b"other"), 9),
        Offer(dataclasses.replace(layout(9), topic=8), 9),
        Offer(layout(9, version=0), 9),
        Offer(layout(5, version=2), 5),
        Offer(layout(4, version=2), 8),
    ],
    ids=["future", "history", "topic", "version back", "version of one generation", "version of a span"],
)
def test_what_contradicts_the_held_table_or_its_frame_is_doubted_and_changes_nothing(offer: Offer) -> None:
    assert judge(HELD, offer) is DOUBT
    assert adopted(HELD, offer, DOUBT) is HELD


# ---- nodes that apply one log ---------------------------------------------------------------------------

LOG = 40


def content(changes: list[int], applied: int) -> int:
    """The version of the table of a node that has applied so much."""
    return 1 + sum(change <= applied for change in changes)


def offer_of(changes: list[int], applied: int, lag: int) -> Offer:
    """The table of a node: the bytes were made when the content changed, or up to `lag` entries later."""
    last = max((change for change in changes if change <= applied), default=0)
    made = min(applied, last + lag)
    return Offer(layout(made, content(changes, applied)), applied)


def walk(
    changes: list[int], offers: list[tuple[int, int]], decide: Callable[[Held | None, Offer], Verdict]
) -> Held:
    held: Held | None = None
    highest = 0
    for applied, lag in offers:
        offer = offer_of(changes, applied, lag)
        verdict = decide(held, offer)
        assert verdict is not DOUBT, "nodes that work are never doubted"
        held = adopted(held, offer, verdict)
        assert held is not None
        highest = max(highest, applied)
        assert held.layout.version == content(changes, highest), "the newest table that any node gave"
        assert held.layout.version == content(changes, held.generation), "what is acknowledged is used"
    assert held is not None
    return held


CHANGES = st.lists(st.integers(1, LOG), unique=True, max_size=8)
OFFERS = st.lists(st.tuples(st.integers(1, LOG), st.integers(0, 10)), min_size=1, max_size=20)


@given(CHANGES, OFFERS)
def test_of_tables_in_any_order_from_any_nodes_the_newest_is_used_and_acknowledged(
    changes: list[int], offers: list[tuple[int, int]]
) -> None:
    walk(changes, offers, judge)


def test_the_walk_finds_a_client_that_takes_whatever_comes() -> None:
    with pytest.raises(AssertionError, match="newest table"):
        walk([3, 6], [(7, 0), (4, 0)], lambda *_: APPLY)


def test_the_walk_finds_a_client_that_acknowledges_what_it_does_not_use() -> None:
    with pytest.raises(AssertionError):
        walk([3, 6], [(4, 0), (7, 0)], lambda held, _: APPLY if held is None else KEEP)
