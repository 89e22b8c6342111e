"""Layout changes of three whole nodes over fake native ones: orders and answers over the real transport."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ringfence.control.model.commands import RaiseLevel
from ringfence.control.model.layout_changes import LAYOUT_LEVEL
from tests.fakes import layout_engine
from tests.fakes.admin_api import PLACE, TOPIC
from tests.fakes.node_cluster import NodeCluster, run

Patch = pytest.MonkeyPatch


async def raised(cluster: NodeCluster) -> None:
    """The cluster's level is that of layout changes, and it has topic `t` of three partitions."""
    proposer = cluster.leader.proposer
    if proposer.state.level < LAYOUT_LEVEL:
        nodes = tuple(sorted(proposer.state.nodes))
        await proposer.propose(RaiseLevel(level=LAYOUT_LEVEL, nodes=nodes))
    created = await cluster.apis[1]("POST", "/admin/topics", TOPIC)
    assert created.status == 201, created


def test_any_node_takes_a_change_and_children_are_made_on_other_nodes(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    engines = layout_engine.install(monkeypatch)

    async def work(cluster: NodeCluster) -> None:
        await raised(cluster)
        first, second, third = cluster.apis.values()
        layout = await second.get(f"{PLACE}/layout?linearizable=true")
        changes = set()
        for number, part in zip(cluster.apis, layout["partitions"], strict=True):
            done = await cluster.apis[number]("POST", f"{PLACE}/split/{part['partition']}", {"into": 3})
            assert done.status == 200, done
            changes.add(done.body["change"])
            owners = {child["owner"] for child in done.body["partitions"]}
            assert len(owners) > 1, "the parts are spread over the nodes"
        assert len(changes) == 3
        layout = await third.get(f"{PLACE}/layout?linearizable=true")
        assert (layout["version"], len(layout["partitions"])) == (4, 12)
        taken = {child for engine in engines for child in engine.taken}
        assert taken == {part["partition"] for part in layout["partitions"] if part["state"] == "ACTIVE"}
        for part in layout["partitions"]:
            owner = cluster.natives[part["owner"]]
            names = {name for name, *_ in orders_of(owner, part["partition"])}
            assert ("open_sealed" in names) == (part["state"] == "SEALED")
        shown = await first.get("/admin/transitions")
        assert {one["change"] for one in shown["transitions"]} <= changes

    run(tmp_path, monkeypatch, work)


def test_what_another_node_than_the_leader_shows_is_the_leaders_view(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    layout_engine.install(monkeypatch)

    async def work(cluster: NodeCluster) -> None:
        await raised(cluster)
        for native in cluster.natives.values():
            native.holds.add("open")
        layout = await cluster.apis[1].get(f"{PLACE}/layout")
        first = layout["partitions"][0]["partition"]
        begun = await cluster.apis[1]("POST", f"{PLACE}/split/{first}", {"wait_s": 0, "into": 3})
        assert begun.status == 202, begun
        for api in cluster.apis.values():
            [shown] = (await api.get("/admin/transitions?linearizable=true"))["transitions"]
            owners = {child["nodes"][0] for child in shown["children"]}
            nodes = ", ".join(map(str, sorted(owners)))
            assert shown["waits"] == [f"an answer of nodes {nodes}"], "its leader knows"
            assert shown["phase_ms"] is not None

    run(tmp_path, monkeypatch, work)


def orders_of(native: Any, partition: int) -> list[tuple[Any, ...]]:
    return [order for order in native.orders if len(order) > 2 and order[2] == partition]
