"""Liveness and the ring: who fails, who recovers, when nobody does, and what a silent leader must not do."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringfence.control.model.commands import Command, SetConfig
from ringfence.control.model.ids import Index, NodeId
from ringfence.control.model.node_commands import AddToRing, FailNode, FormRing, RecoverNode, SetNode
from ringfence.control.model.nodes import Life
from ringfence.control.model.state import EMPTY, MetadataState
from ringfence.control.state_machines.membership.liveness import DECISIONS_MAX, Heartbeat, Liveness, Stranger
from ringfence.control.state_machines.metadata.ring_decisions import RingConsensus, ring_change
from tests.fakes import metadata_commands as commands
from tests.fakes.metadata_commands import INIT, after, register, restart, store_of

ONE, TWO, FIVE = NodeId(1), NodeId(2), NodeId(5)
FAILURE_MS, BEAT_MS = 3_000, 200


def cluster(count: int, **options: int) -> MetadataState:
    return after(commands.cluster(count, **options), 19, SetConfig(values={"failure_ms": FAILURE_MS}))


def beat(state: MetadataState, node: NodeId, index: int = 1_000) -> Heartbeat:
    return Heartbeat(node, state.nodes[node].store, Index(index))


def leader(now_ms: int = 0) -> Liveness:
    liveness = Liveness(ONE)
    liveness.begin(term=1, now_ms=now_ms)
    return liveness


def ticked(
    liveness: Liveness, state: MetadataState, times: Iterator[int] | range, beating: tuple[NodeId, ...] = ()
) -> list[tuple[int, Command]]:
    """Ticks and beats; (time, decision) of each decision."""
    decided: list[tuple[int, Command]] = []
    for now_ms in times:
        for node in beating:
            liveness.beat(state, beat(state, node), now_ms)
        decided += [(now_ms, command) for command in liveness.tick(state, now_ms)]
    return decided


def test_a_node_fails_after_the_time_out_and_not_before() -> None:
    state = cluster(3)
    decided = ticked(leader(), state, range(0, 2_999, 100), beating=(TWO,))
    assert decided == []
    liveness = leader()
    decided = ticked(liveness, state, range(0, 5_000, 100), beating=(TWO,))
    assert decided == [(3_000, FailNode(node=FIVE, changed=state.nodes[FIVE].changed))]
    assert liveness.silence_ms(FIVE, 5_000) == 5_000
    assert liveness.silence_ms(TWO, 5_000) == 100


def test_a_decision_without_effect_is_taken_again_after_the_time_out() -> None:
    decided = ticked(leader(), cluster(2), range(0, 9_500, 100))
    assert [now_ms for now_ms, _ in decided] == [3_000, 6_000, 9_000]


def test_a_new_leader_waits_a_full_interval_and_forgets_what_it_heard_before() -> None:
    state = cluster(3)
    liveness = leader()
    ticked(liveness, state, range(0, 2_900, 100), beating=(TWO,))
    liveness.end()
    assert (liveness.leads, liveness.tick(state, 2_900), liveness.silence_ms(TWO, 0)) == (False, (), None)
    liveness.begin(term=2, now_ms=3_000)
    assert ticked(liveness, state, range(3_000, 6_000, 100)) == []
    failed = [command for command in liveness.tick(state, 6_000) if isinstance(command, FailNode)]
    assert {command.node for command in failed} == {TWO, FIVE}
    with pytest.raises(AssertionError, match="term 2 began after term 2"):
        liveness.begin(term=2, now_ms=9_000)


def test_a_leader_that_was_stopped_fails_nobody_for_the_time_that_it_slept() -> None:
    """SIGSTOP of the leader: beats lie unread in its sockets when it wakes."""
    state = cluster(3)
    liveness = leader()
    ticked(liveness, state, range(0, 1_000, 100), beating=(TWO, FIVE))
    assert liveness.tick(state, 11_000) == ()
    assert ticked(liveness, state, range(11_100, 14_000, 100), beating=(TWO,)) == []
    assert liveness.tick(state, 14_000) == (FailNode(node=FIVE, changed=state.nodes[FIVE].changed),)


def test_the_leader_never_fails_itself_and_recovers_itself() -> None:
    state = cluster(2)
    decided = ticked(leader(), state, range(0, 4_000, 100), beating=(TWO,))
    assert decided == []
    failed = after(state, 20, FailNode(node=ONE, changed=state.nodes[ONE].changed))
    assert leader().tick(failed, 0) == (RecoverNode(node=ONE, changed=Index(20)),)


def test_a_node_that_beats_again_recovers_when_it_knows_that_it_failed() -> None:
    state = cluster(2)
    failed = after(state, 20, FailNode(node=TWO, changed=state.nodes[TWO].changed))
    liveness = leader()
    assert liveness.tick(failed, 100) == ()
    liveness.beat(failed, beat(failed, TWO, index=19), 200)
    assert liveness.tick(failed, 200) == ()
    liveness.beat(failed, beat(failed, TWO, index=20), 300)
    assert liveness.tick(failed, 300) == (RecoverNode(node=TWO, changed=Index(20)),)
    assert liveness.tick(failed, 400) == ()
    silent = leader()
    silent.beat(failed, beat(failed, TWO, index=20), 0)
    assert ticked(silent, failed, range(1_600, 2_000, 100)) == []


def test_another_store_under_a_members_id_is_a_stranger_and_keeps_nobody_alive() -> None:
    state = cluster(2)
    liveness = leader()
    twin = Heartbeat(TWO, store_of(77), Index(9))
    for now_ms in range(0, 3_000, 100):
        assert liveness.beat(state, twin, now_ms) == Stranger(TWO, store_of(77))
        assert liveness.tick(state, now_ms) == ()
    assert liveness.tick(state, 3_000) == (FailNode(node=TWO, changed=state.nodes[TWO].changed),)
    assert liveness.beat(state, Heartbeat(NodeId(99), store_of(9), Index(9)), 0) is not None


def test_an_older_start_of_a_copied_directory_is_a_stranger() -> None:
    """Two processes with one identity: the later start owns the id, the earlier one is told."""
    state = after(cluster(2), 20, restart(cluster(2), 2))
    old, new = (Heartbeat(TWO, store_of(2), Index(30), Index(started)) for started in (3, 20))
    liveness = leader()
    assert liveness.beat(state, old, 0) == Stranger(TWO, store_of(2))
    assert liveness.beat(state, new, 0) is None
    assert liveness.beat(state, Heartbeat(TWO, store_of(2), Index(30)), 0) is None, "it has not started yet"


def test_a_joining_node_neither_fails_nor_recovers() -> None:
    state = after(EMPTY, 1, INIT, register(2))
    assert ticked(leader(), state, range(0, 9_000, 100)) == []


def test_a_start_is_a_sign_of_life_before_the_first_beat() -> None:
    """Its entry is committed before who joins, or comes back, is heard for the first time."""
    joining = after(cluster(2), 20, register(9))
    nine = max(joining.nodes)
    liveness = leader()
    assert ticked(liveness, joining, range(0, 9_000, 100), beating=(TWO,)) == []
    started = after(joining, 21, restart(joining, nine))
    decided = ticked(liveness, started, range(9_000, 12_100, 100), beating=(TWO,))
    failed = FailNode(node=nine, changed=started.nodes[nine].changed)
    assert [one for one in decided if not isinstance(one[1], AddToRing)] == [(12_000, failed)]
    back = after(after(started, 22, failed), 23, restart(started, nine))
    assert ticked(liveness, back, range(13_000, 15_900, 100), beating=(TWO,)) == []


def test_a_burst_of_failures_is_taken_in_parts() -> None:
    state = cluster(150)
    liveness = leader()
    decided = ticked(liveness, state, range(0, 3_200, 100))
    assert len(decided) == 2 * DECISIONS_MAX
    assert len({command.node for _, command in decided if isinstance(command, FailNode)}) == 2 * DECISIONS_MAX
    assert len(liveness.tick(state, 3_200)) == 149 - 2 * DECISIONS_MAX


def test_the_failure_time_out_is_a_setting_that_holds_at_once() -> None:
    state = after(cluster(2), 20, SetConfig(values={"failure_ms": 700}))
    assert [now_ms for now_ms, _ in ticked(leader(), state, range(0, 800, 100))] == [700]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 400), st.sets(st.sampled_from([TWO, FIVE]))), max_size=60))
def test_nobody_fails_who_was_heard_within_the_time_out(steps: list[tuple[int, set[NodeId]]]) -> None:
    """Safety for any rhythm of ticks and beats, in a cluster whose log takes every decision at once."""
    state, liveness, now_ms, index = cluster(3), leader(), 0, 100
    heard = dict.fromkeys((TWO, FIVE), 0)
    for pause_ms, beating in steps:
        now_ms += pause_ms
        for node in beating:
            liveness.beat(state, beat(state, node, index), now_ms)
            heard[node] = now_ms
        for command in liveness.tick(state, now_ms):
            index += 1
            if isinstance(command, FailNode):
                assert now_ms - heard[command.node] >= FAILURE_MS
            state = after(state, index, command)
    lives = {node: state.nodes[node].life for node in heard}
    assert all(
        lives[node] is Life.LIVE or now_ms - at_ms >= FAILURE_MS // 2 or liveness.tick(state, now_ms) == ()
        for node, at_ms in heard.items()
    )


# ---- the ring ---------------------------------------------------------------------------------------


def test_the_first_ring_is_formed_when_enough_nodes_are_heard() -> None:
    state = cluster(3, nodes_min=3)
    assert ring_change(state, {ONE, TWO}) is None
    liveness = leader()
    assert ticked(liveness, state, range(0, 500, 100), beating=(TWO,)) == []
    third = max(state.nodes)
    formed = FormRing(nodes=(ONE, TWO, third))
    assert ticked(liveness, state, range(500, 1_500, 100), beating=(TWO, third)) == [(500, formed)]
    assert ring_change(after(state, 20, formed), set(state.nodes)) is None


def test_a_node_that_joined_is_added_one_at_a_time_unless_a_setting_says_no() -> None:
    state = after(EMPTY, 1, INIT, register(2), register(3))
    state = after(state, 4, restart(state, 2), restart(state, 3))
    heard = set(state.nodes)
    assert ring_change(state, heard) == AddToRing(node=TWO, version=1)
    assert ring_change(state, {ONE}) is None
    manual = after(state, 6, SetConfig(values={"ring_joins": 0}))
    assert ring_change(manual, heard) is None
    added = after(state, 6, AddToRing(node=TWO, version=1))
    assert ring_change(added, heard) == AddToRing(node=NodeId(3), version=2)


def test_a_node_that_was_taken_out_is_not_added_again() -> None:
    state = after(cluster(2), 20, RingConsensus.propose_remove(cluster(2), TWO))
    assert state.ring.members == (ONE,)
    assert ring_change(state, set(state.nodes)) is None
    back = after(state, 21, SetNode(node=TWO, draining=False))
    assert ring_change(back, set(state.nodes)) == RingConsensus.propose_add(back, TWO)
