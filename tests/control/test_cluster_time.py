"""The cluster's time: most clocks say it, one wrong clock neither leads it nor stamps proposals."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from msgspec.structs import replace

from ringfence.control.machines.cluster_time import AHEAD_MS_MAX, HEARD_MS, ClusterTime
from ringfence.control.model.ids import NodeId
from ringfence.control.model.state import MetadataState
from ringfence.control.runtime import members as module
from ringfence.control.runtime.members import Beat, Members, TimedBeat
from tests.control.commands import cluster, store_of

NOW, DAY_MS = 1_790_000_000_000, 86_400_000
ONE, TWO, THREE = NodeId(1), NodeId(2), NodeId(3)
ALL = (ONE, TWO, THREE)


def test_one_wrong_clock_of_three_does_not_move_the_clusters_time() -> None:
    for wrong in (NOW + 400 * DAY_MS, 0):
        for clocks in ([wrong, NOW, NOW + 5], [NOW, wrong, NOW + 5], [NOW, NOW + 5, wrong]):
            time = ClusterTime(ONE)
            time.hear(TWO, clocks[1], 100)
            time.hear(THREE, clocks[2], 100)
            reckoned = time.lead(clocks[0], ALL, 100)
            assert reckoned in (NOW, NOW + 5)


def test_a_leader_that_did_not_hear_most_members_goes_on_from_what_it_was_told() -> None:
    time = ClusterTime(ONE)
    assert time.lead(NOW + 400 * DAY_MS, ALL, 0) is None
    time.told(NOW, 0)
    assert time.lead(NOW + 400 * DAY_MS, ALL, 7_000) == NOW + 7_000
    time.hear(TWO, NOW + 8_003, 8_000)
    assert time.lead(NOW + 400 * DAY_MS, ALL, 8_000) == NOW + 8_003, "the earlier of two"
    assert time.lead(NOW + 400 * DAY_MS, ALL, 9_000 + HEARD_MS) == NOW + 9_003 + HEARD_MS, "it was long ago"
    assert time.lead(NOW + 400 * DAY_MS, (ONE,), 9_000) == NOW + 400 * DAY_MS, "alone it has its own"


def test_a_proposal_is_stamped_at_most_minutes_above_the_clusters_time() -> None:
    time, ahead = ClusterTime(ONE), NOW + 400 * DAY_MS
    assert time.stamp(ahead, NOW, 0) == NOW, "nothing was told yet: the state's time stands"
    time.told(NOW, 0)
    assert time.stamp(ahead, NOW - 5, 1_000) == NOW + 1_000 + AHEAD_MS_MAX
    assert time.stamp(NOW + 1_002, NOW - 5, 1_000) == NOW + 1_002, "a right clock is its own"
    assert time.stamp(0, NOW - 5, 1_000) == 0, "the state's time does not go back by it"
    time.told(0, 2_000)
    assert time.stamp(ahead, NOW, 2_000) == NOW + AHEAD_MS_MAX, "what the log says is a floor"


# ---- heartbeats ---------------------------------------------------------------------------------------


class Node2:
    """Node 2's part in the cluster; its wall clock is the test's."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, level: int = 1, leads: bool = False) -> None:
        self.sent: list[tuple[int, bytes]] = []
        self.health: dict[str, str] = {}
        self.told: list[int] = []
        self.clock_ms, self.mono_ms = NOW, 1_000
        monkeypatch.setattr(module, "_clock_ms", lambda: self.clock_ms)
        monkeypatch.setattr(module, "_now_ms", lambda: self.mono_ms)
        state: MetadataState = replace(cluster(3), level=level, time_ms=NOW - DAY_MS)
        self.state = state
        replica = SimpleNamespace(
            id=2, leads=leads, leader=2 if leads else 1, applied=SimpleNamespace(index=30), disk_full=False,
            term=1, configuration=SimpleNamespace(voters=(1, 2, 3), voters_outgoing=()),
        )  # fmt: skip
        proposer = SimpleNamespace(replica=replica, state=state)
        peers = SimpleNamespace(
            know=lambda _: None,
            forget_others=lambda _: None,
            send=lambda node, _kind, body: self.sent.append((node, body)),
        )
        health = SimpleNamespace(worsen=self.health.__setitem__, mend=lambda key: self.health.pop(key, None))
        kind: Any = Members
        here = SimpleNamespace(node=2, store=store_of(2))
        self.members = cast(
            "Members", kind(proposer, peers, here, health, is_started=lambda: True, on_time=self.told.append)
        )
        monkeypatch.setattr(self.members, "_change_voters", lambda: None)
        monkeypatch.setattr(self.members, "_propose", lambda _: None)

    def hear(self, node: int, clock_ms: int) -> None:
        store = self.state.nodes[NodeId(node)].store
        beat = TimedBeat(store, 30, 0, 0, bytes(16), clock_ms=clock_ms)
        self.members.beat(node, msgspec.msgpack.encode(beat))

    def round(self) -> dict[int, Any]:
        """What its next heartbeats say, by node."""

        async def once() -> None:
            self.members._round()

        self.sent.clear()
        asyncio.run(once())
        return {node: msgspec.msgpack.decode(body) for node, body in self.sent}


def test_a_follower_stamps_and_tells_what_the_leader_says(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node2(monkeypatch)
    node.clock_ms = NOW + 400 * DAY_MS
    assert node.members.stamp_ms() == NOW - DAY_MS
    node.hear(5, NOW)
    node.round()
    assert (node.told, node.health) == ([], {}), "a node that does not lead says nothing about it"
    node.hear(1, NOW)
    beats = node.round()
    assert beats[1][-1] == NOW + 400 * DAY_MS, "its own clock goes to the leader as it is"
    assert node.told == [NOW]
    assert node.members.stamp_ms() == NOW + AHEAD_MS_MAX
    assert f"{400 * 86_400} s ahead of the cluster's time" in node.health["clock"]
    node.clock_ms = NOW
    node.round()
    assert node.health == {}
    assert node.members.stamp_ms() == NOW


def test_a_leader_with_a_wrong_clock_tells_the_time_of_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    node = Node2(monkeypatch, leads=True)
    node.clock_ms = NOW + 400 * DAY_MS
    assert node.round().get(1, [0])[-1] == 0, "it has heard nobody"
    node.hear(1, NOW)
    node.hear(5, NOW + 2)
    beats = node.round()
    assert {beat[-1] for beat in beats.values()} == {NOW + 2}
    assert beats.keys() == {1, 5}
    assert node.members.stamp_ms() == NOW + 2 + AHEAD_MS_MAX
    assert "clock" in node.health


def test_at_level_0_beats_and_stamps_are_those_of_older_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node2(monkeypatch, level=0)
    node.clock_ms = NOW + 400 * DAY_MS
    beats = node.round()
    assert beats
    assert {len(beat) for beat in beats.values()} == {len(Beat.__struct_fields__)}
    assert node.members.stamp_ms() == node.clock_ms
    assert (node.told, node.health) == ([], {})
