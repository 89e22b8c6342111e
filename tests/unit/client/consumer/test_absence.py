"""A member that cannot read leaves for a while, so that others get its partitions."""

from __future__ import annotations

from ringfence.consumer.absence import AWAY_S, AWAY_S_MAX, SILENT_S
from ringfence.consumer.calls import HOME, Attach, Beat, Join, Leave, Left, Note, Renewed
from ringfence.consumer.values import TaskKind
from tests.fakes.consumer_alone import LEASE_S, SESSION, Alone

LOST = frozenset({TaskKind.LOST})


def pass_time(alone: Alone, seconds: float, *answering: int) -> None:
    """Nodes answer beats, or do not."""
    for _ in range(round(seconds)):
        alone.turn(1.0)
        for beat in alone.calls(Beat):
            if beat.node in answering:
                alone.answer(beat, Renewed(1, LEASE_S, frozenset()))


def test_an_application_that_hangs_gives_its_partitions_up_and_gets_others_when_it_is_back() -> None:
    alone = Alone(1, work_timeout_s=60.0, tells=LOST)
    alone.open(1)
    place = alone.gave(4)
    pass_time(alone, 58, HOME, 1)
    assert alone.calls(Leave) == []
    pass_time(alone, 5, HOME, 1)
    leave = alone.call(Leave)
    assert leave.session == SESSION
    assert "has not asked for rows for 60 s" in alone.made(Note)[0].text
    assert alone.member.state.gates == {}
    alone.answer(leave, Left())
    pass_time(alone, 100, HOME, 1)
    assert alone.calls(Join) == []
    assert alone.give() is None
    assert alone.tasks() == ["lost 1"]
    assert not alone.member.acknowledge(place)
    alone.answer(alone.call(Join), alone.joined(1, session=SESSION + 1))
    assert alone.member.state.session == SESSION + 1


def test_without_a_limit_it_keeps_them() -> None:
    alone = Alone(1)
    alone.open(1)
    alone.gave(4)
    pass_time(alone, 4000, HOME, 1)
    assert alone.member.state.gates[1].hold == 1


def test_a_member_that_alone_cannot_reach_an_owner_leaves_for_a_while() -> None:
    alone = Alone(1)
    alone.open(1)
    pass_time(alone, SILENT_S - 5, HOME)
    assert alone.calls(Leave) == []
    pass_time(alone, 10, HOME)
    alone.answer(alone.call(Leave), Left())
    assert "node 1 does not answer" in alone.made(Note)[0].text
    pass_time(alone, AWAY_S - 10, HOME)
    assert alone.calls(Join) == []
    pass_time(alone, 15, HOME)
    alone.answer(alone.call(Join), alone.joined(1, session=SESSION + 1))
    for attach in alone.calls(Attach):
        if attach.node == HOME:
            alone.answer(attach, alone.attached())
    began = alone.now
    while alone.member.state.session:
        pass_time(alone, 1, HOME)
    assert alone.now - began < 2 * SILENT_S
    assert f"back in {2 * AWAY_S:g} s" in alone.made(Note)[1].text
    assert AWAY_S_MAX > 2 * AWAY_S


def test_a_process_without_any_network_stays() -> None:
    alone = Alone(1)
    alone.open(1)
    pass_time(alone, 10 * SILENT_S)
    assert alone.calls(Leave) == []
    assert alone.member.state.session == SESSION
