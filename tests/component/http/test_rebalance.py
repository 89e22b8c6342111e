"""`/admin/rebalance`: who may, what is refused and why, and a run from start to cancel (Z10)."""

from __future__ import annotations

import asyncio
import hashlib
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from ringfence.control.model.ids import Epoch, Index, NodeId, PartitionId, TopicId
from ringfence.control.model.log_end import LogEnd
from ringfence.control.model.reassignment_commands import (
    CommitChange,
    ConfirmOpened,
    HoldChange,
    PrepareChange,
)
from ringfence.control.model.reassignments import ChangeId, Proof
from ringfence.control.model.rebalances import MOVE_TRIES, MoveRecord, MoveState, Run, RunState
from ringfence.control.model.state import EMPTY
from ringfence.control.runtime.handlers.rebalances import Rebalances, shown_copy, shown_run
from ringfence.control.state_machines.metadata.ring_decisions import RingConsensus
from ringfence.control.state_machines.reassignment.messages import Synced, SyncState
from ringfence.control.state_machines.rebalance.loads import LoadReport
from ringfence.control.state_machines.rebalance.run_rates import RunRates
from tests.fakes.admin_api import PLACE, TOPIC, Api, joined, served, until_run

Patch = pytest.MonkeyPatch


def test_a_run_is_previewed_started_paused_resumed_and_cancelled(tmp_path: Path, monkeypatch: Patch) -> None:
    async def work(api: Api) -> None:
        assert (await api.get("/admin/rebalance"))["run"] == 0
        await api("POST", "/admin/topics", TOPIC)
        node = await joined(api, 7)
        plan = await api.get(f"/admin/rebalance/preview?action=add_node&node={node}")
        assert plan["count"] == 1
        assert plan["moves"][0]["to"] == [node]
        started = await api(
            "POST", "/admin/rebalance", {"action": "add_node", "node": node}, idempotency_key="k"
        )
        assert started.status == 201, started
        repeated = await api(
            "POST", "/admin/rebalance", {"action": "add_node", "node": node}, idempotency_key="k"
        )
        assert (repeated.status, repeated.text) == (201, started.text), (
            "a repeat with its key is the first one"
        )
        second = await api("GET", "/admin/rebalance/preview?action=balance")
        assert second.status == 409, second
        assert (await api("GET", "/admin/rebalance/preview?action=reverse")).status == 409
        second = await api("POST", "/admin/rebalance", {"action": "balance"})
        assert second.status == 409, second
        assert "wait for its end or cancel it" in second.body["detail"]
        shown = await until_run(api, "RUNNING")
        assert [(move["to"], move["partition"]) for move in shown["moves"]] == [
            ([node], plan["moves"][0]["partition"])
        ]
        assert (await api.get("/admin/moves"))["moves"][0]["state"] in {"PENDING", "DUAL_WRITE", "COPYING"}
        for verb, state in (
            ("pause", "PAUSED"),
            ("pause", "PAUSED"),
            ("resume", "RUNNING"),
            ("resume", "RUNNING"),
        ):
            assert (await api("POST", f"/admin/rebalance/{verb}")).status == 200
            assert (await api.get("/admin/rebalance"))["state"] == state
        assert (await api("POST", "/admin/rebalance/cancel")).status == 200
        shown = await until_run(api, "IDLE")
        assert shown["outcome"] == "CANCELLED"
        assert sum(shown["counts"].values()) == 1
        for verb in ("pause", "resume", "cancel"):
            assert (await api("POST", f"/admin/rebalance/{verb}")).status == 409
        assert [run["outcome"] for run in (await api.get("/admin/rebalance/history"))["runs"]] == [
            "CANCELLED"
        ]
        owners = (await api.get(f"{PLACE}/assignments"))["partitions"]
        assert {part["owner"] for part in owners} == {1}

    served(tmp_path, monkeypatch, work)


def test_a_drain_is_a_flag_and_a_run_and_an_undrain_ends_both(tmp_path: Path, monkeypatch: Patch) -> None:
    async def work(api: Api) -> None:
        await api("POST", "/admin/topics", TOPIC)
        node = await joined(api, 7)
        proposer = api.bench.node.proposer
        await proposer.propose(RingConsensus.propose_add(proposer.state, NodeId(node)))
        early = await api("DELETE", "/admin/nodes/1")
        assert early.status == 422, early
        assert early.body["detail"] == "node 1 holds 3 replicas; run `ringfence node drain 1 --wait` first"
        drained = await api("POST", "/admin/nodes/1/drain", idempotency_key="k")
        assert drained.status == 200, drained
        repeated = await api("POST", "/admin/nodes/1/drain", idempotency_key="k")
        assert (repeated.status, repeated.text) == (200, drained.text), "no second run"
        assert (await api("POST", f"/admin/nodes/{node}/drain")).status == 409
        shown = await until_run(api, "RUNNING")
        assert (shown["run"], shown["action"], shown["node"]) == (drained.body["index"], "drain", 1)
        assert {tuple(move["to"]) for move in shown["moves"]} == {(node,)}
        assert (len(shown["moves"]), shown["held"]) == (3, 3)
        assert (await api.get("/admin/nodes/1"))["draining"] is True
        undrained = await api("POST", "/admin/nodes/1/undrain")
        assert undrained.status == 200, undrained
        assert (await api.get("/admin/nodes/1"))["draining"] is False
        assert (await until_run(api, "IDLE"))["outcome"] == "CANCELLED"
        assert (await api.get("/admin/nodes/1"))["draining"] is False

    served(tmp_path, monkeypatch, work)


def test_chosen_moves_are_previewed_as_they_are_started(tmp_path: Path, monkeypatch: Patch) -> None:
    async def work(api: Api) -> None:
        await api("POST", "/admin/topics", TOPIC)
        node = await joined(api, 7)
        first = (await api.get(f"{PLACE}/layout"))["partitions"][0]["partition"]
        query = f"/admin/rebalance/preview?action=move&move={first}:{node}"
        assert [(move["partition"], move["to"]) for move in (await api.get(query))["moves"]] == [
            (first, [node])
        ]
        for wrong in (f"{first}", f"{first}:", f"x:{node}", f"{first}:{node},1,2,3,4,5"):
            assert (await api("GET", f"/admin/rebalance/preview?action=move&move={wrong}")).status == 422

    served(tmp_path, monkeypatch, work)


def test_what_can_be_reversed_is_listed_and_previewed(tmp_path: Path, monkeypatch: Patch) -> None:
    async def work(api: Api) -> None:
        await api("POST", "/admin/topics", TOPIC)
        first = (await api.get(f"{PLACE}/layout"))["partitions"][0]["partition"]
        for query in ("", f"&partition={first}"):
            nothing = await api("GET", f"/admin/rebalance/preview?action=reverse{query}")
            assert (nothing.status, nothing.slug) == (422, "invalid-argument"), nothing
        assert (await api("POST", "/admin/rebalance", {"action": "reverse", "node": 1})).status == 422
        assert (await api("POST", "/admin/rebalance", {"action": "reverse", "partitions": [0]})).status == 422
        proposer = api.bench.node.proposer
        node = NodeId(await joined(api, 7))
        await proposer.propose(RingConsensus.propose_add(proposer.state, node))
        which: dict[str, Any] = {"partition": PartitionId(first)}
        (topic,) = proposer.state.topics.values()
        prepare = PrepareChange(
            **which,
            topic=topic.topic,
            epoch=topic.assignments[PartitionId(first)].epoch,
            owner=node,
            replicas=(node,),
        )
        which["change"] = ChangeId((await proposer.propose(prepare)).index)
        place = proposer.state.changes[PartitionId(first)].owner
        end = LogEnd(Epoch(5), 1, 0, 1)
        commit = CommitChange(
            **which, epoch=prepare.epoch, owner=node, end=end, proofs=(Proof(place, end),), stopped_us=7
        )
        await proposer.propose(HoldChange(**which))
        epoch = Epoch((await proposer.propose(commit)).index)
        await proposer.propose(ConfirmOpened(**which, epoch=epoch))
        while not proposer.state.kept:  # noqa: ASYNC110 - the leader's CLEAN is what ends it
            await asyncio.sleep(0.01)
        (kept,) = (await api.get("/admin/rebalance"))["reversible"]
        assert (kept["partition"], kept["from"], kept["to"]) == (first, [node], [1])
        plan = await api.get("/admin/rebalance/preview?action=reverse")
        assert [(move["partition"], move["to"]) for move in plan["moves"]] == [(first, [1])]

    served(tmp_path, monkeypatch, work)


def test_a_failed_move_that_is_tried_again_does_not_look_final() -> None:
    tried = MoveRecord(TopicId(1), PartitionId(1), (NodeId(1),), (NodeId(2),), MoveState.FAILED, attempts=1)
    moves = {PartitionId(1): tried, PartitionId(2): replace(tried, attempts=MOVE_TRIES)}
    state = replace(EMPTY, moves=moves, rebalance=Run(run=Index(1), state=RunState.RUNNING))
    assert shown_run(state, state.rebalance)["counts"] == {"FAILED": 1, "RETRYING": 1}
    ends = replace(state, rebalance=replace(state.rebalance, state=RunState.CANCELLING))
    assert shown_run(ends, ends.rebalance)["counts"] == {"FAILED": 2}


def test_a_copy_that_is_held_up_says_by_what_and_else_why_the_try_before_failed() -> None:
    move = MoveRecord(
        TopicId(1),
        PartitionId(65_536),
        (NodeId(1),),
        (NodeId(3),),
        state=MoveState.DUAL_WRITE,
        attempts=1,
        error="the try before",
    )
    sync = Synced(state=SyncState.COPYING, rows=7, bytes=900, gap=3, why="node 3 says disk_full")
    shown = shown_copy(move, [(NodeId(3), sync), (NodeId(4), Synced(state=SyncState.CONTIGUOUS, rows=10))])
    assert shown == {
        "state": "COPYING",
        "rows": 17,
        "bytes": 900,
        "gap_records": 3,
        "error": "to node 3: node 3 says disk_full",
    }
    assert shown_copy(move, [(NodeId(3), replace(sync, why=""))])["error"] == "the try before"


async def nothing() -> None:
    """There is no copy to ask about."""


def test_a_move_that_copies_is_counted_as_what_it_is_shown_as() -> None:
    first = MoveRecord(
        TopicId(1), PartitionId(1), (NodeId(1),), (NodeId(3),), state=MoveState.DUAL_WRITE, attempts=1
    )
    moves = {PartitionId(number): replace(first, partition=PartitionId(number)) for number in (1, 2)}
    moves[PartitionId(3)] = replace(first, partition=PartitionId(3), state=MoveState.PENDING)
    placed = SimpleNamespace(owner=SimpleNamespace(node=NodeId(1)), replicas=())
    topics: Any = {TopicId(1): SimpleNamespace(assignments=dict.fromkeys(moves, placed))}
    state = replace(EMPTY, moves=moves, topics=topics, rebalance=Run(run=Index(1), state=RunState.RUNNING))
    copies = {1: SimpleNamespace(syncs=[(SimpleNamespace(node=NodeId(3)), Synced(state=SyncState.COPYING))])}
    coordinator = SimpleNamespace(progress=copies.get, decision=None)
    proposer, board = SimpleNamespace(state=state), SimpleNamespace(by_node=lambda _: {})
    rebalances = Rebalances(proposer, SimpleNamespace(), coordinator, board, RunRates(), nothing)  # type: ignore[arg-type]
    shown = rebalances.here()
    assert shown["counts"] == {"COPYING": 1, "DUAL_WRITE": 1, "PENDING": 1}
    assert sorted(move["state"] for move in shown["moves"]) == ["COPYING", "DUAL_WRITE", "PENDING"]


def test_loads_are_told_of_members_alone(tmp_path: Path, monkeypatch: Patch) -> None:
    async def work(api: Api) -> None:
        board, now_ms = api.bench.node.handlers.rebalances._board, time.monotonic_ns() // 1_000_000
        for number in (1, 7):  # 7 was a member until a moment ago
            board.record(NodeId(number), LoadReport(others_bytes_s=5), now_ms)
        assert [load["node"] for load in (await api.get("/admin/rebalance"))["loads"]] == [1]

    served(tmp_path, monkeypatch, work)


UNSOUND = [
    ({}, 422),
    ({"action": "fly"}, 422),
    ({"action": "balance", "node": 1}, 422),
    ({"action": "add_node"}, 422),
    ({"action": "add_node", "node": 99}, 422),
    ({"action": "remove_node", "node": 1}, 422),
    ({"action": "drain", "node": 0}, 422),
    ({"action": "move", "moves": [{"partition": 7, "nodes": [1]}]}, 422),
    ({"action": "move", "moves": [{"partition": 7}]}, 422),
    ({"action": "balance", "typo": 1}, 422),
]


def test_what_is_unsound_is_refused_with_a_reason_and_starts_nothing(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    async def work(api: Api) -> None:
        await api("POST", "/admin/topics", TOPIC)
        for given, status in UNSOUND:
            refused = await api("POST", "/admin/rebalance", given)
            assert refused.status == status, (given, refused)
            assert refused.slug
        assert (await api("POST", "/admin/rebalance/fly")).status == 422
        assert (await api.get("/admin/rebalance"))["run"] == 0

    served(tmp_path, monkeypatch, work)


def test_viewers_look_and_only_admins_move(tmp_path: Path, monkeypatch: Patch) -> None:
    async def work(api: Api) -> None:
        secrets = {role: f"secret of {role}" for role in ("admin", "operator", "viewer")}
        given: dict[str, str] = {}
        for role, secret in secrets.items():
            token = {"name": role, "sha256": hashlib.sha256(secret.encode()).hexdigest(), "role": role}
            made = await api("POST", "/admin/tokens", token, **given)
            assert made.status == 201, made
            given = {"authorization": f"Bearer {secrets['admin']}"}
        assert (await api("GET", "/admin/rebalance")).status == 401
        wrong = {"authorization": "Bearer wrong"}
        assert (await api("POST", "/admin/rebalance", {"action": "balance"}, **wrong)).status == 401
        for role, read, change in (("viewer", 200, 403), ("operator", 200, 403), ("admin", 200, 201)):
            token_of = {"authorization": f"Bearer {secrets[role]}"}
            assert (await api("GET", "/admin/rebalance/history", **token_of)).status == read
            assert (await api("POST", "/admin/rebalance", {"action": "balance"}, **token_of)).status == change

    served(tmp_path, monkeypatch, work)
