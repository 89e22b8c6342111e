"""Leases: counted from the request, renewed by beats, and looked at before rows are given."""

from __future__ import annotations

from ringfence.consumer.beats import BEATS_A_LEASE, MARGIN_S
from ringfence.consumer.calls import Beat, Fetch, Fetched, Refusal, Renewed, Why
from tests.fakes.consumer_alone import LEASE_S, Alone


def opened(**options: object) -> Alone:
    alone = Alone(1, **options)
    alone.open(1, rows=100)
    return alone


def beat_to(alone: Alone, node: int = 1) -> Beat:
    return next(one for one in alone.calls(Beat) if one.node == node)


def test_a_lease_counts_from_when_the_request_was_made() -> None:
    alone = Alone(1)
    call = alone.call(Fetch)
    alone.turn(4.0)
    alone.answer(call, Fetched(1, 0, 100, 1, bytes=100))
    assert alone.member.state.gates[1].lease_until == LEASE_S


def test_a_beat_counts_from_when_it_was_made() -> None:
    alone = opened()
    for call in alone.calls(Beat):  # those of before the hold
        alone.answer(call, Renewed(1, LEASE_S, frozenset()))
    alone.turn(LEASE_S / BEATS_A_LEASE)
    call, made_at = beat_to(alone), alone.now
    assert call.holds == ((1, 1),)
    alone.turn(5.0)
    alone.answer(call, Renewed(1, LEASE_S, frozenset()))
    assert alone.member.state.gates[1].lease_until == made_at + LEASE_S


def test_rows_are_given_until_the_lease_is_nearly_over_and_after_it_was_renewed() -> None:
    alone = opened()
    alone.turn(LEASE_S - MARGIN_S - 0.01)
    assert alone.give(10) is not None
    alone.turn(0.02)
    assert alone.give(10) is None
    for call in alone.calls(Beat):
        alone.answer(call, Refusal(Why.RETRY))
    alone.turn(0.3)
    alone.answer(beat_to(alone), Renewed(1, LEASE_S, frozenset()))
    assert alone.gave(10).first_offset == 10


def test_what_the_owner_did_not_renew_ends() -> None:
    alone = opened()
    for call in alone.calls(Beat):
        alone.answer(call, Renewed(1, LEASE_S, frozenset()))
    alone.turn(LEASE_S / BEATS_A_LEASE)
    alone.answer(beat_to(alone), Renewed(1, LEASE_S, frozenset({1})))
    assert alone.member.state.gates[1].lease_until == LEASE_S


def test_a_partition_that_was_taken_away_is_not_renewed() -> None:
    alone = opened()
    alone.gave(10)
    alone.turn(LEASE_S / BEATS_A_LEASE)
    call = beat_to(alone)
    alone.plan(generation=2)
    alone.answer(call, Renewed(2, LEASE_S, frozenset()))
    assert alone.member.state.gates[1].lease_until == LEASE_S


def test_one_beat_of_a_node_is_under_way() -> None:
    alone = opened()
    for _ in range(20):
        alone.turn(1.0)
    assert len([one for one in alone.calls(Beat) if one.node == 1]) == 1


def test_a_new_connection_is_told_without_delay() -> None:
    alone = opened()
    alone.turn()
    alone.member.down(1, alone.now)
    alone.member.up(1)
    alone.turn(0.5)
    alone.answer(alone.made_attach(), alone.attached())
    assert beat_to(alone).holds == ((1, 1),)
