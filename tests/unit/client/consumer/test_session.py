"""Joining, attaching and plans: the newest plan wins, and a session that is over ends everything."""

from __future__ import annotations

import pytest

from ringfence.consumer.calls import (
    HOME,
    Attach,
    Fetch,
    Join,
    Joined,
    Leave,
    Left,
    Plan,
    Refresh,
    Refusal,
    Settle,
    Settled,
    Why,
)
from ringfence.consumer.values import TaskKind
from ringfence.native.errors import FencedError, MemberError, MemberExistsError
from tests.fakes.consumer_alone import SESSION, Alone

TELLS = frozenset({TaskKind.LOST})


def test_an_answer_that_a_push_has_overtaken_changes_nothing() -> None:
    alone = Alone(1, 2)
    alone.member.state.heard(2)
    late = alone.call(Join)
    alone.plan(1, generation=3)
    alone.answer(late, alone.joined(1, 2, generation=2))
    assert sorted(alone.member.state.gates) == [1]
    assert alone.member.state.generation == 3


def test_a_plan_of_the_same_generation_changes_nothing() -> None:
    alone = Alone(1, 2)
    alone.plan(1, generation=1)
    assert sorted(alone.member.state.gates) == [1, 2]


def test_a_newer_plan_that_a_node_names_is_asked_for_until_it_comes() -> None:
    alone = Alone(1)
    alone.answer(alone.call(Fetch), Refusal(Why.NOT_ASSIGNED, generation=5))
    alone.answer(alone.call(Join), alone.joined(1, generation=4))
    alone.answer(alone.call(Join), alone.joined(2, generation=5))
    assert alone.calls(Join) == []
    assert sorted(alone.member.state.gates) == [2]


def test_pages_of_a_plan_are_used_when_the_last_one_is_there() -> None:
    alone = Alone(1)
    alone.member.state.heard(2)
    alone.answer(alone.call(Join), Joined(Plan(SESSION, 2, 1, (1, 2), more=True)))
    assert sorted(alone.member.state.gates) == [1]
    page = alone.call(Join)
    assert page.after_partition == 2
    alone.answer(page, Joined(Plan(SESSION, 2, 1, (3,))))
    assert sorted(alone.member.state.gates) == [1, 2, 3]


def test_pages_of_two_plans_are_not_mixed() -> None:
    alone = Alone(1)
    alone.member.state.heard(2)
    alone.answer(alone.call(Join), Joined(Plan(SESSION, 2, 1, (1, 2), more=True)))
    alone.answer(alone.call(Join), Joined(Plan(SESSION, 3, 1, (9,))))
    assert alone.call(Join).after_partition == 0
    assert sorted(alone.member.state.gates) == [1]


def test_a_push_that_names_another_session_is_ignored() -> None:
    alone = Alone(1)
    alone.member.pushed(Plan(SESSION + 1, 9, 1, ()))
    assert sorted(alone.member.state.gates) == [1]


def test_an_unknown_partition_makes_the_member_ask_for_a_table() -> None:
    alone = Alone(1)
    alone.plan(1, 5, generation=2)
    assert alone.made(Refresh) == [Refresh(2)]


def test_nothing_is_sent_on_a_connection_that_is_not_bound() -> None:
    alone = Alone(1)
    alone.member.down(1, alone.now)
    alone.turn(6.0)
    assert alone.calls(Fetch) == []
    alone.member.up(1)
    attach = alone.made_attach()
    assert alone.calls(Fetch) == []
    alone.answer(attach, alone.attached())
    assert alone.call(Fetch).node == 1


def test_a_node_that_lost_the_binding_is_bound_again() -> None:
    alone = Alone(1)
    alone.answer(alone.call(Fetch), Refusal(Why.NOT_ATTACHED))
    alone.turn(0.3)
    alone.answer(alone.made_attach(), alone.attached())
    assert alone.call(Fetch).node == 1


def test_a_new_session_ends_all_that_the_old_one_had() -> None:
    alone = Alone(1, tells=TELLS)
    alone.open(1)
    alone.gave(5)
    alone.answer(alone.call(Fetch), Refusal(Why.NOT_ATTACHED))
    alone.turn(0.3)
    alone.answer(alone.made_attach(), Refusal(Why.NOT_ATTACHED))
    alone.answer(alone.call(Join), alone.joined(1, session=SESSION + 1))
    assert alone.member.state.session == SESSION + 1
    assert alone.tasks() == ["lost 1"]
    assert alone.member.state.gates[1].hold == 0
    alone.turn(0.3)
    assert [call.session for call in alone.calls(Attach)] == [SESSION + 1] * 2


def test_the_same_session_goes_on_after_it_was_asked_for() -> None:
    alone = Alone(1)
    alone.open(1)
    alone.answer(alone.call(Fetch), Refusal(Why.NOT_ATTACHED))
    alone.turn(0.3)
    alone.answer(alone.made_attach(), Refusal(Why.NOT_ATTACHED))
    alone.answer(alone.call(Join), alone.joined(1))
    alone.turn(0.3)
    alone.answer(alone.made_attach(), alone.attached())
    assert alone.member.state.gates[1].hold == 1
    assert alone.call(Fetch).offset == 10


def test_a_replaced_member_ends_and_never_joins_again() -> None:
    alone = Alone(1)
    alone.member.state.heard(2)
    error = FencedError("a newer process has the name")
    alone.answer(alone.call(Join), Refusal(Why.REPLACED, error))
    alone.turn(600.0)
    assert alone.member.take_error() is error
    assert alone.calls(Join) == []


@pytest.mark.parametrize("kind", [Fetch, Attach])
def test_a_member_whose_session_another_process_has_ends_and_asks_no_node_again(
    kind: type[Fetch | Attach],
) -> None:
    alone = Alone(1)
    if kind is Attach:
        alone.answer(alone.call(Fetch), Refusal(Why.NOT_ATTACHED))
        alone.turn(0.3)
    error = MemberError("a copy of this process has the session")
    alone.answer(alone.made_attach() if kind is Attach else alone.call(Fetch), Refusal(Why.REPLACED, error))
    for _ in range(20):
        alone.turn(0.3)
    assert alone.member.take_error() is error
    assert all(alone.calls(asked) == [] for asked in (Join, Attach, Fetch))
    assert alone.member.is_closed is False
    alone.member.close(leave=True)
    assert alone.member.is_closed


@pytest.mark.parametrize(("presence", "takeover", "joins"), [
    ("connected", False, False), ("unknown", False, False),
    ("absent", False, True), ("connected", True, True),
])  # fmt: skip
def test_a_name_that_is_taken_is_replaced_only_if_its_process_is_gone_or_on_demand(
    presence: str, takeover: bool, joins: bool
) -> None:
    alone = Alone(1, takeover=takeover)
    alone.member.state.heard(2)
    refusal = Refusal(Why.NAME_TAKEN, details={"session": 4, "presence": presence})
    alone.answer(alone.call(Join), refusal)
    alone.turn(5.0)
    assert [call.after for call in alone.calls(Join)] == ([4] if joins else [])
    assert isinstance(alone.member.take_error(), MemberExistsError) != joins


def test_a_member_leaves_when_owners_have_its_acknowledgements() -> None:
    alone = Alone(1)
    alone.open(1)
    place = alone.gave(5)
    alone.member.acknowledge(place)
    alone.member.close(leave=True)
    settle = alone.call(Settle)
    assert (settle.entries[0].through.offset, settle.entries[0].release) == (5, True)
    assert alone.calls(Leave) == []
    alone.answer(settle, Settled())
    assert not alone.member.is_closed
    alone.answer(alone.call(Leave), Left())
    assert alone.member.is_closed


def test_a_member_needs_home_and_the_nodes_of_its_gates() -> None:
    alone = Alone(1, 2)
    alone.table({1: 1, 2: 3})
    assert alone.member.session.nodes == {HOME, 1, 3}
