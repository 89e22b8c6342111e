"""What a node's beats say of itself: the entry that this very process was started by."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import msgspec
from msgspec.structs import replace

from ringfence.control.model.ids import NodeId
from ringfence.control.model.layout_changes import LAYOUT_LEVEL
from ringfence.control.model.state import MetadataState
from ringfence.control.runtime.membership.beats import Beat, LayoutBeat, decode
from ringfence.control.runtime.membership.members import Members
from ringfence.control.state_machines.rebalance.loads import Load, LoadReport, Pressure, RowReport
from tests.fakes.metadata_commands import after, cluster, restart, store_of

APPLIED = 30


def members_of(
    state: MetadataState, sent: list[Any], worse: list[str], *, is_started: bool = True, **calls: Any
) -> Members:
    """Node 2's, which has applied APPLIED entries. `sent`: its beats; `worse`: what its health is told."""
    replica = SimpleNamespace(
        id=2,
        leads=False,
        leader=1,
        applied=SimpleNamespace(index=APPLIED),
        disk_full=False,
        configuration=SimpleNamespace(voters=(1, 2), voters_outgoing=()),
    )
    proposer = SimpleNamespace(replica=replica, state=state)
    peers = SimpleNamespace(
        set_committed=lambda _: None,
        keep_only=lambda _: None,
        send=lambda _node, _kind, body: sent.append(decode(body)),
    )
    health = SimpleNamespace(set_reason=lambda key, _: worse.append(key), clear_reason=lambda *_: None)
    here = SimpleNamespace(node=2, store=store_of(2))
    kind: Any = Members
    return cast("Members", kind(proposer, peers, here, health, is_started=lambda: is_started, **calls))


def beats(*starts: int, is_started: bool) -> Beat:
    """One that node 2 sends, whose metadata has these starts of it: by this process if `is_started`."""
    state = cluster(2)
    for index in starts:
        state = after(state, index, restart(state, 2))
    sent: list[Beat] = []
    asyncio.run(_once(members_of(state, sent, [], is_started=is_started)))
    return sent[0]


async def _once(members: Members) -> None:
    members._round()


def test_before_its_own_start_is_applied_a_process_does_not_speak_for_an_earlier_one() -> None:
    """Others that have applied it would take it for a copied directory."""
    assert beats(20, is_started=False).started == 0
    assert beats(20, is_started=True).started == 20


def test_a_start_that_was_applied_twice_is_spoken_for_as_a_whole() -> None:
    """A late repeat is the node's newest start: a beat of the first one would be a stranger's, for ever."""
    assert beats(20, 21, is_started=True).started == 21


def test_a_member_that_is_ahead_is_not_taken_for_a_copied_directory() -> None:
    """Behind a restart the metadata here are old: who has joined since is told by entries not applied yet."""
    worse: list[str] = []
    members = members_of(cluster(2), [], worse)
    members.beat(3, msgspec.msgpack.encode(Beat(store_of(3), APPLIED + 1, 40, 0, bytes(16))))
    assert worse == []
    members.beat(3, msgspec.msgpack.encode(Beat(store_of(3), APPLIED, 40, 0, bytes(16))))
    assert worse == ["stranger 3"]


def test_rows_and_the_disk_are_told_from_the_level_of_layout_changes_on() -> None:
    rows = [0]

    def counters() -> list[dict[str, Any]]:
        figures = {"partition": 7, "open": True, "records": rows[0], "start_offset": 0, "end_offset": rows[0]}
        return [{**figures, "bytes": 100 * rows[0]}]

    for level in (1, LAYOUT_LEVEL):
        sent: list[Any] = []
        state = replace(cluster(2), level=level)
        members = members_of(state, sent, [], counters=counters, disk_percent=lambda: 93)
        members._meter.read(counters(), 0)
        rows[0] += 5_000
        members._meter._next_ms = 0
        asyncio.run(_once(members))
        with_loads = next(beat for beat in sent if beat.loads is not None)
        assert [load.partition for load in with_loads.loads.parts] == [7]
        if level < LAYOUT_LEVEL:
            assert with_loads.rows is None
        else:
            assert (len(with_loads.rows.parts), with_loads.rows.disk_percent) == (1, 93)
            assert members.pressures()[NodeId(2)].is_full


def test_a_beat_replaces_what_its_node_said_and_one_far_behind_lags() -> None:
    """S3, S6."""
    state = replace(cluster(2), level=LAYOUT_LEVEL)
    members = members_of(state, [], [])
    replica: Any = members._proposer.replica
    replica.applied.index = 5_000
    node = state.nodes[NodeId(1)]
    fields = (node.store, 10, node.started, 0, bytes(16))
    full = LayoutBeat(*fields, loads=LoadReport((Load(7, 9, 1),)), rows=RowReport((3,), disk_percent=99))
    members.beat(1, msgspec.msgpack.encode(full))
    assert members.pressures() == {1: Pressure(is_full=True, lags=True, bytes_s=9)}
    near = replace(full, index=4_900, loads=LoadReport(), rows=RowReport())
    members.beat(1, msgspec.msgpack.encode(near))
    assert members.pressures() == {1: Pressure()}
