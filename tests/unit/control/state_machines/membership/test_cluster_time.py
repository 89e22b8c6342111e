"""The cluster's time: one wrong clock neither moves it, nor reaches proposals and records."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from msgspec.structs import replace

from ringfence.control.model.ids import NodeId
from ringfence.control.model.nodes import Life
from ringfence.control.model.state import MetadataState
from ringfence.control.runtime.membership import cluster_clock
from ringfence.control.runtime.membership.beats import Beat, TimedBeat
from ringfence.control.runtime.membership.members import Members
from ringfence.control.state_machines.membership.cluster_time import (
    CLOCK_AGE_MS_MAX,
    JUMP_HOLD_MS,
    OFFSET_MS_MAX,
    ClusterTime,
    WallClock,
)
from tests.fakes.metadata_commands import cluster, store_of

NOW, DAY_MS = 1_790_000_000_000, 86_400_000
AHEAD_MS = 400 * DAY_MS
ONE, TWO, THREE, FOUR, FIVE = (NodeId(number) for number in range(1, 6))
ALL = (ONE, TWO, THREE)


def estimate(own_ms: int, *others_ms: int, live: int | None = None) -> int | None:
    """The estimate of node 1 as the leader, with these clocks of the next nodes."""
    time = ClusterTime(ONE)
    for node, clock_ms in enumerate(others_ms, start=2):
        time.record_clock(NodeId(node), clock_ms, 100)
    return time.estimate(own_ms, {NodeId(node) for node in range(1, (live or len(others_ms) + 1) + 1)}, 100)


@pytest.mark.parametrize("wrong", [NOW + AHEAD_MS, 0])
def test_one_wrong_clock_of_three_does_not_move_the_clusters_time(wrong: int) -> None:
    for clocks in ([wrong, NOW, NOW + 5], [NOW, wrong, NOW + 5], [NOW, NOW + 5, wrong]):
        assert estimate(*clocks) in (NOW, NOW + 5)


def test_the_estimate_is_the_median_and_of_an_even_number_the_lower_one() -> None:
    assert estimate(NOW) == NOW, "a node alone"
    assert estimate(NOW + AHEAD_MS, NOW) == NOW, "the earlier of two"
    assert estimate(NOW, NOW + AHEAD_MS) == NOW, "the earlier of two"
    assert estimate(NOW, NOW - AHEAD_MS) == NOW - AHEAD_MS, "the earlier of two, also if it is the wrong one"
    assert estimate(NOW + AHEAD_MS, NOW + 1, NOW + 2, NOW + AHEAD_MS) == NOW + 2, "two of four wrong"
    assert estimate(NOW + AHEAD_MS, NOW + AHEAD_MS, NOW + 1, NOW + 2, NOW + 3) == NOW + 3, "two of five wrong"


def test_an_estimate_needs_the_clocks_of_most_live_nodes() -> None:
    assert estimate(NOW + AHEAD_MS, live=2) is None, "one of two"
    assert estimate(NOW + AHEAD_MS, live=3) is None, "one of three"
    assert estimate(NOW, NOW, live=3) == NOW
    assert estimate(NOW, NOW, live=4) is None, "half of four"
    assert estimate(NOW, NOW, NOW, live=4) == NOW


def test_clocks_of_nodes_that_are_not_live_do_not_count() -> None:
    time = ClusterTime(ONE)
    for node in (TWO, THREE, FOUR, FIVE):
        time.record_clock(node, NOW + AHEAD_MS, 100)
    time.record_clock(THREE, NOW + 3, 100)
    assert time.estimate(NOW, (ONE, THREE), 100) == NOW
    assert time.estimate(NOW + 7, (THREE,), 100) == NOW + 3, "the leader itself counts, failed or not"


def test_a_leader_without_most_clocks_continues_the_estimate_that_it_received() -> None:
    time = ClusterTime(ONE)
    assert time.estimate(NOW + AHEAD_MS, ALL, 0) is None
    time.record_estimate(NOW, 0)
    assert time.estimate(NOW + AHEAD_MS, ALL, 7_000) == NOW + 7_000
    time.record_clock(TWO, NOW + 8_003, 8_000)
    assert time.estimate(NOW + AHEAD_MS, ALL, 8_000) == NOW + 8_003, "the earlier of two"
    late_ms = 9_000 + CLOCK_AGE_MS_MAX
    assert time.estimate(NOW + AHEAD_MS, ALL, late_ms) == NOW + 3 + late_ms, "node 2 may have been stopped"
    assert time.estimate(NOW + AHEAD_MS, (ONE,), 9_000) == NOW + AHEAD_MS, "a node alone has only its clock"


def test_times_are_bounded_on_both_sides() -> None:
    time = ClusterTime(ONE)
    assert time.window(NOW, 0) is None
    assert time.bounded(NOW + AHEAD_MS, NOW, 0) == NOW, "no estimate yet: the metadata's time"
    time.record_estimate(NOW, 0)
    assert time.bounded(NOW + AHEAD_MS, NOW - 5, 1_000) == NOW + 1_000 + OFFSET_MS_MAX
    assert time.bounded(NOW + 1_002, NOW - 5, 1_000) == NOW + 1_002, "a right clock is left alone"
    assert time.bounded(0, NOW - 5, 1_000) == NOW + 1_000 - OFFSET_MS_MAX
    time.record_estimate(0, 2_000)
    assert time.window(NOW, 2_000) == (0, NOW), "all clocks are years behind; the metadata's time is allowed"


def test_many_proposals_of_a_wrong_clock_do_not_push_the_time_step_by_step() -> None:
    time, state_ms = ClusterTime(ONE), NOW
    time.record_estimate(NOW, 0)
    for _ in range(100):
        state_ms = max(state_ms, time.bounded(NOW + AHEAD_MS, state_ms, 0))
    assert state_ms == NOW + OFFSET_MS_MAX


def test_a_nodes_own_clock_that_jumps_ahead_is_believed_after_ten_minutes() -> None:
    wall = WallClock()
    assert wall.read(NOW, 0) == NOW
    for second in range(1, 31):
        assert wall.read(NOW + AHEAD_MS, 1_000 * second) == NOW + 1_000 * second
    assert wall.read(NOW + 31_005, 31_000) == NOW + 31_005, "it was set right"
    late_ms = JUMP_HOLD_MS + 5
    assert wall.read(NOW + AHEAD_MS, late_ms) == NOW + 5 + late_ms, (
        "a second jump does not continue the first"
    )
    assert wall.read(NOW + AHEAD_MS, late_ms + JUMP_HOLD_MS) == NOW + AHEAD_MS
    assert wall.read(NOW + AHEAD_MS + 1, late_ms + JUMP_HOLD_MS + 1) == NOW + AHEAD_MS + 1
    assert wall.read(NOW, late_ms + JUMP_HOLD_MS + 2) == NOW, "a step back is believed immediately"


# ---- heartbeats ---------------------------------------------------------------------------------------


class Node2:
    """Node 2's part in the cluster of nodes 1, 2 and 5; the test sets its clocks."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, *, level: int = 1, leads: bool = False, nodes: int = 3
    ) -> None:
        self.sent: list[tuple[int, bytes]] = []
        self.health: dict[str, str] = {}
        self.windows: list[tuple[int, int]] = []
        self.clock_ms, self.mono_ms = NOW, 1_000
        monkeypatch.setattr(cluster_clock, "_clock_ms", lambda: self.clock_ms)
        monkeypatch.setattr(cluster_clock, "_now_ms", lambda: self.mono_ms)
        state: MetadataState = replace(cluster(3), level=level, time_ms=NOW - DAY_MS)
        self.state = replace(state, nodes={TWO: state.nodes[TWO]}) if nodes == 1 else state
        replica = SimpleNamespace(
            id=2,
            leads=leads,
            leader=2 if leads else 1,
            applied=SimpleNamespace(index=30),
            disk_full=False,
            term=1,
            configuration=SimpleNamespace(voters=(1, 2, 3), voters_outgoing=()),
        )
        proposer = SimpleNamespace(replica=replica, state=self.state)
        peers = SimpleNamespace(
            set_committed=lambda _: None,
            keep_only=lambda _: None,
            send=lambda node, _kind, body: self.sent.append((node, body)),
        )
        health = SimpleNamespace(
            set_reason=self.health.__setitem__, clear_reason=lambda key: self.health.pop(key, None)
        )
        kind: Any = Members
        members = kind(
            proposer,
            peers,
            SimpleNamespace(node=2, store=store_of(2)),
            health,
            is_started=lambda: True,
            on_time_window=lambda *window: self.windows.append(window),
        )
        self.members = cast("Members", members)
        monkeypatch.setattr(self.members, "_change_voters", lambda: None)
        monkeypatch.setattr(self.members, "_propose", lambda _: None)

    def receive(self, node: int, clock_ms: int, time_ms: int = 0) -> None:
        store = self.state.nodes[NodeId(node)].store
        beat = TimedBeat(store, 30, 0, 0, bytes(16), clock_ms=clock_ms, time_ms=time_ms)
        self.members.beat(node, msgspec.msgpack.encode(beat))

    def round(self) -> dict[int, Any]:
        """Its next heartbeats, by receiver."""

        async def once() -> None:
            self.members._round()

        self.sent.clear()
        asyncio.run(once())
        return {node: msgspec.msgpack.decode(body) for node, body in self.sent}

    def proposal_ms(self) -> int:
        return self.members.clock.proposal_ms(self.state)


def test_a_follower_bounds_its_times_by_the_leaders_estimate(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node2(monkeypatch)
    node.clock_ms = NOW + AHEAD_MS
    assert node.proposal_ms() == NOW - DAY_MS
    node.receive(5, NOW, NOW)
    node.round()
    assert (node.windows, node.health) == ([], {}), "only the leader's estimate counts"
    node.receive(1, NOW + AHEAD_MS)
    node.round()
    assert (node.windows, node.health) == ([], {}), "it wrote this as a follower, or has no estimate yet"
    node.receive(1, NOW + AHEAD_MS, NOW)
    beats = node.round()
    assert beats[1][-2:] == [NOW + AHEAD_MS, 0], "the leader gets the clock as it is"
    assert node.windows == [(NOW - OFFSET_MS_MAX, NOW + OFFSET_MS_MAX)]
    assert node.proposal_ms() == NOW + OFFSET_MS_MAX
    assert "more than 300 s ahead of the cluster's time" in node.health["clock"]
    node.clock_ms = NOW - 1_000_000
    node.round()
    assert "more than 300 s behind the cluster's time" in node.health["clock"]
    node.clock_ms = NOW
    node.round()
    assert node.health == {}
    assert node.proposal_ms() == NOW


def test_a_leader_with_a_wrong_clock_sends_the_time_of_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node2(monkeypatch, leads=True)
    node.clock_ms = NOW + AHEAD_MS
    assert {beat[-1] for beat in node.round().values()} <= {0}, "it has received no clock"
    node.receive(1, NOW)
    node.receive(5, NOW + 2)
    beats = node.round()
    assert {beat[-1] for beat in beats.values()} == {NOW + 2}
    assert beats.keys() == {1, 5}
    assert node.windows == [(NOW + 2 - OFFSET_MS_MAX, NOW + 2 + OFFSET_MS_MAX)]
    assert node.proposal_ms() == NOW + 2 + OFFSET_MS_MAX
    assert "clock" in node.health


def test_a_failed_node_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node2(monkeypatch, leads=True)
    node.round()
    assert node.windows == []
    for number in (ONE, FIVE):
        node.state.nodes[number] = replace(node.state.nodes[number], life=Life.FAILED)
    node.round()
    assert node.windows == [(NOW - OFFSET_MS_MAX, NOW + OFFSET_MS_MAX)], "it is the only live node"


def test_a_node_alone_keeps_its_time_when_its_clock_jumps_for_seconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    node = Node2(monkeypatch, leads=True, nodes=1)
    assert node.proposal_ms() == NOW
    node.round()
    node.clock_ms, node.mono_ms = NOW + AHEAD_MS, 2_000
    assert node.proposal_ms() == NOW + 1_000
    node.round()
    assert node.windows[-1] == (NOW + 1_000 - OFFSET_MS_MAX, NOW + 1_000 + OFFSET_MS_MAX)
    assert "clock" in node.health
    node.clock_ms, node.mono_ms = NOW + 2_000, 3_000
    node.round()
    assert node.health == {}


def test_a_start_waits_until_the_engine_has_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node2(monkeypatch)

    async def waits() -> None:
        waiting = asyncio.ensure_future(node.members.clock.until_known())
        node.members._round()
        await asyncio.sleep(0)
        assert not waiting.done()
        node.receive(1, NOW, NOW)
        node.members._round()
        await asyncio.wait_for(waiting, 10)
        assert node.windows

    asyncio.run(waits())


def test_at_level_0_heartbeats_and_proposals_are_those_of_older_programs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    node = Node2(monkeypatch, level=0)
    node.clock_ms = NOW + AHEAD_MS
    beats = node.round()
    assert beats
    assert {len(beat) for beat in beats.values()} == {len(Beat.__struct_fields__)}
    leader = Node2(monkeypatch, level=0, leads=True)
    leader.clock_ms = NOW + AHEAD_MS
    leader.receive(1, NOW)
    leader.receive(5, NOW)
    assert {len(beat) for beat in leader.round().values()} <= {len(Beat.__struct_fields__)}
    for each in (node, leader):
        assert each.proposal_ms() == NOW + AHEAD_MS, "the wall clock as it is"
        assert (each.windows, each.health) == ([], {})
