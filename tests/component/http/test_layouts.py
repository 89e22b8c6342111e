"""Layout changes over HTTP through a whole node over a fake native one: what is done, and what is refused."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from ringfence.control.model.commands import CreateTopic, SetConfig
from ringfence.control.model.ids import Epoch, NodeId
from ringfence.control.model.layout_commands import PrepareLayout
from ringfence.control.model.node_commands import FailNode
from ringfence.control.model.state import canonical_bytes
from ringfence.control.runtime.handlers import layout_changes
from ringfence.control.state_machines.layout import plan
from ringfence.control.state_machines.metadata.ring_decisions import RingConsensus
from tests.fakes import layout_engine
from tests.fakes.admin_api import PLACE, TOPIC, Answer, Api, joined, served
from tests.fakes.layout_engine import FakeEngine
from tests.fakes.layout_level import lower_program
from tests.fakes.metadata_commands import create

Patch = pytest.MonkeyPatch
Work = Callable[[Api, list[FakeEngine]], Awaitable[None]]


def layouts(root: Path, monkeypatch: Patch, work: Work, **settings: Any) -> None:
    """A node of the level of layout changes, with topic `t` of three partitions."""
    engines = layout_engine.install(monkeypatch)

    async def whole(api: Api) -> None:
        created = await api("POST", "/admin/topics", TOPIC)
        assert created.status == 201, created
        await work(api, engines)

    served(root, monkeypatch, whole, **settings)


async def partitions(api: Api) -> list[int]:
    """Those that take rows, in the order of their slots."""
    shown = (await api.get(f"{PLACE}/layout"))["partitions"]
    active = [part for part in shown if part["state"] == "ACTIVE"]
    return [part["partition"] for part in sorted(active, key=lambda part: part["lo"])]


async def refused(api: Api, path: str, body: Any, status: int, *words: str) -> Answer:
    """The change is refused, and not a byte of the metadata changes (I15)."""
    proposer = api.bench.node.proposer
    before = canonical_bytes(proposer.state)
    answer = await api("POST", path, body)
    assert answer.status == status, answer
    assert answer.slug
    assert all(word in answer.body["detail"] for word in words), answer.body["detail"]
    assert canonical_bytes(proposer.state) == before, "I15: a refused change left something"
    return answer


async def ended(api: Api) -> None:
    """Until no layout change holds a partition."""
    proposer = api.bench.node.proposer
    for _ in range(1_000):
        if all(one.phase == "OPENED" for one in proposer.state.transitions.values()):
            return
        await asyncio.sleep(0.01)
    raise AssertionError(proposer.state.transitions)


# ---- what is done --------------------------------------------------------------------------------------


def test_a_split_takes_effect_once_and_its_children_inherit(tmp_path: Path, monkeypatch: Patch) -> None:
    async def work(api: Api, engines: list[FakeEngine]) -> None:
        first, *_ = await partitions(api)
        path = f"{PLACE}/split/{first}"
        done = await api("POST", path, {}, idempotency_key="k")
        assert done.status == 200, done
        change, halves = done.body["change"], done.body["partitions"]
        assert (done.body["version"], done.body["phase"]) in {(2, "COMMITTED"), (2, "OPENED")}
        assert [half["parents"] for half in halves] == [[first]] * 2
        assert [(half["lo"], half["hi"]) for half in halves] == [(0, 10922), (10923, 21844)]
        taken = {child: [final for *_, final in pages] for child, pages in engines[0].taken.items()}
        assert taken == {half["partition"]: [True] for half in halves}
        again = await api("POST", path, {}, idempotency_key="k")
        assert (again.status, again.body["change"]) == (200, change)
        assert again.headers["idempotency-replayed"] == "true"
        again = await api("POST", path, {"wait_s": 3}, idempotency_key="k")
        assert (again.status, again.body["change"]) == (200, change), "how long it waits is no content"
        other = await api("POST", path, {"into": 3}, idempotency_key="k")
        assert (other.status, other.slug) == (422, "key-reused")
        shown = await api.get(f"{PLACE}/layout")
        [sealed] = [part for part in shown["partitions"] if part["state"] == "SEALED"]
        assert (sealed["partition"], sealed["end_offset"]) == (first, 100)
        assert sealed["children"] == [half["partition"] for half in halves]

    layouts(tmp_path, monkeypatch, work)


def test_merges_repartitions_and_slots_of_ones_own(tmp_path: Path, monkeypatch: Patch) -> None:
    async def work(api: Api, __: list[FakeEngine]) -> None:
        one, two, three = await partitions(api)
        merged = await api("POST", f"{PLACE}/merge/{two}/{one}")
        assert (merged.status, merged.body["kind"]) == (200, "MERGE"), merged
        [whole] = merged.body["partitions"]
        assert (whole["lo"], whole["hi"], whole["parents"]) == (0, 43689, [one, two])
        cut = await api("POST", f"{PLACE}/split/{whole['name']}", {"at": [100, 50]})
        assert [part["lo"] for part in cut.body["partitions"]] == [0, 50, 100]
        assert three in await partitions(api)
        spread = await api("POST", f"{PLACE}/repartition", {"partitions": 8})
        assert (spread.status, len(await partitions(api))) == (200, 8)
        same = await api("POST", f"{PLACE}/repartition", {"partitions": 8})
        assert (same.status, same.body["change"]) == (200, None)
        one, two, *_ = await partitions(api)
        await api("POST", f"{PLACE}/merge/{one}/{two}", {})
        assert len(await partitions(api)) == 7
        await ended(api)
        even = await api("POST", f"{PLACE}/repartition", {"partitions": 7, "even": True})
        assert even.body["change"], "ranges of other sizes"
        assert (await api.get("/admin/metadata"))["hash"]

    layouts(tmp_path, monkeypatch, work)


def test_a_preview_shows_places_and_changes_nothing(tmp_path: Path, monkeypatch: Patch) -> None:
    async def work(api: Api, __: list[FakeEngine]) -> None:
        first, *_ = await partitions(api)
        before = canonical_bytes(api.bench.node.proposer.state)
        for path, body, count in ((f"split/{first}", {"into": 4}, 4), ("repartition", {"partitions": 5}, 5)):
            shown = await api("POST", f"{PLACE}/{path}?preview=true", body)
            assert (shown.status, shown.body["change"]) == (200, None)
            assert [nodes for *_, nodes in shown.body["would"]] == [[1]] * count
        none = await api("POST", f"{PLACE}/repartition?preview=true", {"partitions": 3})
        assert none.body["would"] == []
        assert (await api("POST", f"{PLACE}/split/7?preview=true", {})).status == 404
        assert canonical_bytes(api.bench.node.proposer.state) == before

    layouts(tmp_path, monkeypatch, work)


def test_a_change_that_is_not_decided_is_shown_aborted_and_asked_again(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    async def work(api: Api, engines: list[FakeEngine]) -> None:
        first, second, third = await partitions(api)
        api.bench.native.holds.add("open")
        begun = await api("POST", f"{PLACE}/split/{first}", {"wait_s": 0.2})
        assert (begun.status, begun.body["phase"]) == (202, "PREPARED"), begun
        change = begun.body["change"]
        [shown] = (await api.get("/admin/transitions"))["transitions"]
        assert (shown["change"], shown["phase"], shown["sources"]) == (change, "PREPARED", [first])
        assert shown["waits"] == ["an answer of nodes 1"]
        assert shown["phase_ms"] >= 0
        layout = await api.get(f"{PLACE}/layout")
        assert [one["change"] for one in layout["transitions"]] == [change]
        assert next(part for part in layout["partitions"] if part["partition"] == first)["change"] == change
        placed = await api.get(f"{PLACE}/assignments")
        assert [part["state"] for part in placed["planned"]] == ["PLANNED"] * 2
        # What it excludes, and what it does not.
        await refused(api, f"{PLACE}/split/{first}", {}, 409, f"change {change}")
        await refused(api, f"{PLACE}/merge/{first}/{second}", {}, 409, f"change {change}")
        await refused(api, f"{PLACE}/repartition", {"partitions": 9}, 409)
        other = await api("POST", f"{PLACE}/split/{third}", {"wait_s": 0})
        assert other.status == 202, "splits of others go on"
        ended_by_hand = await api("POST", f"/admin/transitions/{change}/abort", {"why": "not now"})
        assert ended_by_hand.status == 200, ended_by_hand
        again = await api("POST", f"/admin/transitions/{change}/abort")
        assert again.status == 200, "a repeat finds what it asks for"
        api.bench.native.holds.clear()
        api.bench.native.release()
        await ended(api)
        done = await api("POST", f"/admin/transitions/{other.body['change']}/abort")
        assert (done.status, "only goes forward" in done.body["detail"]) == (409, True)
        assert (await api("POST", f"{PLACE}/split/{first}", {})).status == 200

    layouts(tmp_path, monkeypatch, work)


def test_an_engine_that_refuses_what_is_inherited_aborts_with_its_reason(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    async def work(api: Api, engines: list[FakeEngine]) -> None:
        first, *_ = await partitions(api)
        engines[0].refuses = "the named producers take 21 MiB, 16 fit a child"
        failed = await api("POST", f"{PLACE}/split/{first}", {})
        assert (failed.status, failed.slug) == (409, "layout-aborted")
        assert "21 MiB" in failed.body["detail"]
        engines[0].refuses = ""
        for _ in range(500):
            if not api.bench.node.proposer.state.leftovers:
                break
            await asyncio.sleep(0.01)
        hosted = {partition for _, partition in api.bench.native.hosted}
        assert hosted == {*await partitions(api)}, "the children are dropped"

    layouts(tmp_path, monkeypatch, work)


def test_a_partition_is_shown_by_id_and_name_and_a_pruned_one_says_where_it_ended(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    async def work(api: Api, __: list[FakeEngine]) -> None:
        first, *_ = await partitions(api)
        shown = await api.get(f"{PLACE}/partitions/{first}")
        assert (shown["partition"], shown["descendants"], shown["owner"]) == (first, [], 1)
        assert (await api.get(f"{PLACE}/partitions/{shown['name']}")) == shown
        assert (await api("GET", f"{PLACE}/partitions/0000-0001-{first}")).status == 404, "another range"
        assert (await api("GET", f"{PLACE}/partitions/x")).status == 422
        node = api.bench.node
        await node.proposer.propose(SetConfig(values={"repartition_adoption_timeout_ms": 0}))
        await api("POST", f"{PLACE}/split/{first}", {})
        await ended(api)
        for _ in range(500):  # finalized: nobody holds an older table
            if not node.proposer.state.transitions:
                break
            await asyncio.sleep(0.01)
        proposer, leader = node.proposer, node.parts.layouts.leader
        later_ms = proposer.now_ms() + 2_000_000
        proposer.now_ms = lambda: later_ms
        for counters in api.bench.native.hosted.values():
            counters["start_offset"] = counters["end_offset"]
        await leader.prune()
        gone = await api("GET", f"{PLACE}/partitions/{first}")
        assert (gone.status, gone.slug) == (404, "unknown-partition")
        assert (gone.body["pruned"], gone.body["end_offset"]) == (True, 100)
        metrics = (await api("GET", "/metrics")).text
        assert "ringfence_pruned 1.0" in metrics
        assert 'ringfence_transitions{kind="split",result="finalized"} 1.0' in metrics
        assert 'ringfence_layout_version{topic="public/default/t"} 2.0' in metrics

    layouts(tmp_path, monkeypatch, work)


def test_steps_of_a_change_are_events(tmp_path: Path, monkeypatch: Patch) -> None:
    async def work(api: Api, __: list[FakeEngine]) -> None:
        first, *_ = await partitions(api)
        listener = api.bench.node.cluster_events.listen(None)
        assert listener is not None
        await api("POST", f"{PLACE}/split/{first}", {})
        await ended(api)
        phases = []
        while not listener.waiting.empty():
            event = listener.waiting.get_nowait()
            if event.kind == "layout change":
                phases.append((event.values["phase"], event.values["change_kind"]))
        assert phases[:4] == [(phase, "SPLIT") for phase in ("PREPARED", "HELD", "COMMITTED", "OPENED")]

    layouts(tmp_path, monkeypatch, work)


# ---- what is refused -----------------------------------------------------------------------------------


def test_below_the_level_everything_is_refused(tmp_path: Path, monkeypatch: Patch) -> None:
    async def work(api: Api) -> None:
        await api("POST", "/admin/topics", TOPIC)
        first, second, _ = await partitions(api)
        way_out = ("level is 1", "need 2", "cluster finalize")
        await refused(api, f"{PLACE}/split/{first}", {}, 409, *way_out)
        await refused(api, f"{PLACE}/merge/{first}/{second}", {}, 409, *way_out)
        await refused(api, f"{PLACE}/repartition", {"partitions": 9}, 409, *way_out)
        await refused(api, f"{PLACE}/split/{first}?preview=true", {}, 409, *way_out)
        await refused(api, "/admin/transitions/7/abort", {}, 404)
        assert (await api.get("/admin/transitions")) == {"transitions": [], "count": 0, "ended": []}
        assert "layout_changes_enabled" not in (await api.get("/admin/config"))["values"]
        changed = {"values": {"layout_changes_enabled": 0}}
        assert (await api("PATCH", "/admin/config", changed)).status == 422

    lower_program(monkeypatch)
    served(tmp_path, monkeypatch, work)


def test_what_no_state_allows_is_refused(tmp_path: Path, monkeypatch: Patch) -> None:
    async def work(api: Api, __: list[FakeEngine]) -> None:
        first, second, third = await partitions(api)
        split, merge = f"{PLACE}/split", f"{PLACE}/merge"
        missing = PLACE.replace("/t", "/missing")
        await refused(api, f"{missing}/split/{first}", {}, 404, "missing")
        await refused(api, f"{missing}/repartition", {"partitions": 2}, 404, "missing")
        await refused(api, f"{split}/99", {}, 404, "no partition '99'")
        await refused(api, f"{merge}/{first}/99", {}, 404, "no partition '99'")
        await refused(api, f"{split}/x", {}, 422)
        await refused(api, f"{split}/{first}", {"at": [0]}, 422, "slot 0", "1 to 21844")
        await refused(api, f"{split}/{first}", {"at": [21_845]}, 422, "slot 21845")
        await refused(api, f"{split}/{first}", {"at": [65_536]}, 422)
        await refused(api, f"{split}/{first}", {"at": [5], "into": 2}, 422, "not both")
        await refused(api, f"{split}/{first}", {"into": 1}, 422)
        await refused(api, f"{split}/{first}", {"unknown": 1}, 422)
        for wait_s in (True, "1", None, -1, 601):  # a number of seconds, and nothing that only looks like one
            await refused(api, f"{split}/{first}", {"wait_s": wait_s}, 422)
        await refused(api, f"{split}/{first}", b"{", 422)
        await refused(api, f"{merge}/{first}/{third}", {}, 422, "not adjacent")
        await refused(api, f"{merge}/{first}/{first}", {}, 422)
        await refused(api, f"{PLACE}/repartition", {"partitions": 0}, 422)
        await refused(api, f"{PLACE}/repartition", {}, 422)
        cut = await api("POST", f"{split}/{first}", {"at": [1]})
        await ended(api)
        one_slot = cut.body["partitions"][0]["partition"]
        await refused(api, f"{split}/{one_slot}", {}, 422, "one slot")
        await refused(api, f"{split}/{first}", {}, 409, "was sealed by", str(one_slot))
        await refused(api, f"{merge}/{first}/{second}", {}, 409, "was sealed by")

    layouts(tmp_path, monkeypatch, work)


def test_what_the_cluster_does_not_allow_now_is_refused(tmp_path: Path, monkeypatch: Patch) -> None:
    async def work(api: Api, __: list[FakeEngine]) -> None:
        first, *_ = await partitions(api)
        path, proposer = f"{PLACE}/split/{first}", api.bench.node.proposer

        async def configured(**values: int) -> None:
            await proposer.propose(SetConfig(values=values))

        await configured(layout_changes_enabled=0)
        await refused(api, path, {}, 409, "layout_changes_enabled")
        await configured(layout_changes_enabled=1, topic_partitions_max=4)
        await refused(api, path, {}, 409, "topic_partitions_max", "3 partitions", "is 4")
        await configured(topic_partitions_max=4_096, partitions_max=4)
        await refused(api, path, {}, 409, "partitions_max")
        await configured(partitions_max=65_536, changes_max=1)
        api.bench.native.holds.add("open")
        begun = await api("POST", path, {"wait_s": 0})
        assert begun.status == 202
        other = (await partitions(api))[1]
        await refused(api, f"{PLACE}/split/{other}", {}, 409, "changes_max")
        await api("POST", f"/admin/transitions/{begun.body['change']}/abort")
        api.bench.native.holds.clear()
        api.bench.native.release()

    layouts(tmp_path, monkeypatch, work)


def test_an_owner_that_has_failed_can_seal_nothing(tmp_path: Path, monkeypatch: Patch) -> None:
    async def work(api: Api, __: list[FakeEngine]) -> None:
        proposer = api.bench.node.proposer
        node = NodeId(await joined(api, 7))
        await proposer.propose(RingConsensus.propose_add(proposer.state, node))
        placed: CreateTopic = create("public/default/far", partitions=2, nodes=((int(node),), (1,)))
        await proposer.propose(placed)
        topic = proposer.state.topic_named("public/default/far")
        assert topic is not None
        far = next(one for one, known in topic.assignments.items() if known.owner.node == node)
        await proposer.propose(FailNode(node=node, changed=proposer.state.nodes[node].changed))
        await refused(api, f"/admin/topics/public/default/far/split/{far}", {}, 409, f"node {node}", "live")

    layouts(tmp_path, monkeypatch, work)


@pytest.mark.parametrize("stale", [2, 3])
def test_a_split_that_an_owner_change_overtook_is_decided_again(
    stale: int, tmp_path: Path, monkeypatch: Patch
) -> None:
    tries: list[PrepareLayout] = []

    def overtaken(*given: Any, **more: Any) -> Any:
        command = original(*given, **more)
        assert isinstance(command, PrepareLayout)
        tries.append(command)
        if len(tries) > stale:
            return command
        older = tuple((number, Epoch(epoch - 1)) for number, epoch in command.sources)
        return replace(command, sources=older)

    original = plan.split
    monkeypatch.setattr(plan, "split", overtaken)

    async def work(api: Api, __: list[FakeEngine]) -> None:
        first, *_ = await partitions(api)
        if stale < layout_changes.TRIES_MAX:
            assert (await api("POST", f"{PLACE}/split/{first}", {})).status == 200
        else:
            await refused(api, f"{PLACE}/split/{first}", {}, 409, "owner epoch")
        assert len(tries) == 3

    layouts(tmp_path, monkeypatch, work)


def test_of_two_repartitions_one_is_refused_and_not_decided_again(tmp_path: Path, monkeypatch: Patch) -> None:
    original, tries = plan.repartition, []

    def overtaken(*given: Any, **more: Any) -> Any:
        command = original(*given, **more)
        assert isinstance(command, PrepareLayout)
        tries.append(command)
        return replace(command, version=command.version - 1)

    monkeypatch.setattr(plan, "repartition", overtaken)

    async def work(api: Api, __: list[FakeEngine]) -> None:
        await refused(api, f"{PLACE}/repartition", {"partitions": 9}, 409, "version 1")
        assert len(tries) == 1

    layouts(tmp_path, monkeypatch, work)


def test_a_deleted_topic_ends_its_changes(tmp_path: Path, monkeypatch: Patch) -> None:
    async def work(api: Api, __: list[FakeEngine]) -> None:
        first, *_ = await partitions(api)
        api.bench.native.holds.add("open")
        waiting = asyncio.ensure_future(api("POST", f"{PLACE}/split/{first}", {}))
        for _ in range(500):
            if api.bench.node.proposer.state.transitions:
                break
            await asyncio.sleep(0.01)
        api.bench.native.holds.clear()
        assert (await api("DELETE", PLACE)).status in {200, 202}
        api.bench.native.release()
        answer = await waiting
        assert (answer.status, answer.slug) == (409, "layout-aborted")
        assert "deleted" in answer.body["detail"]
        for _ in range(500):
            if not api.bench.node.proposer.state.tombstones:
                break
            await asyncio.sleep(0.01)
        assert api.bench.native.hosted == {}, "planned children are dropped, too"

    layouts(tmp_path, monkeypatch, work)
