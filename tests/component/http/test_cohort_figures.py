"""Metrics and events of cohorts, and the deletion of a topic that members read, over a whole node."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from ringfence.native import messages
from ringfence.native.cohort_messages import Join, Joined
from ringfence.native.wire import Code, Opcode
from tests.fakes import gated_node
from tests.fakes.admin_api import PLACE, TOPIC, Api, served
from tests.fakes.gated_node import GatedNode
from tests.fakes.node_bench import soon

Patch = pytest.MonkeyPatch
COHORT, NAME = 'cohort="etl"', 'topic="public/default/t"'
LABELS = f"{COHORT},{NAME}"


def with_member(
    root: Path, monkeypatch: Patch, work: Callable[[Api, GatedNode, Joined], Awaitable[None]]
) -> None:
    gated_node.install(monkeypatch)

    async def whole(api: Api) -> None:
        assert (await api("POST", "/admin/topics", TOPIC)).status == 201
        native = api.bench.native
        assert isinstance(native, GatedNode)
        request = Join(topic="t", cohort="etl", mode="stream", member="m", instance=secrets.token_bytes(16))
        joined = await api.bench.ok(Opcode.JOIN, request, Joined)
        native.heard.add(joined.session)
        await soon(lambda: {rule.assignee for rule in native.rules.values()} == {joined.session})
        await work(api, native, joined)

    served(root, monkeypatch, whole)


async def metrics(api: Api) -> dict[str, float]:
    text = (await api("GET", "/metrics")).text
    samples = (line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    return {name: float(value) for name, value in samples}


def test_lag_members_and_plans_are_metrics_by_topic_and_cohort(tmp_path: Path, monkeypatch: Patch) -> None:
    async def work(api: Api, native: GatedNode, joined: Joined) -> None:
        part = min(rule.partition for rule in native.rules.values())
        native.settle(joined.cohort, part, 90)
        plain = native._figures
        monkeypatch.setattr(native, "_figures", lambda *gate: plain(*gate) | {"lag_ms": 1_500})
        shown = await metrics(api)
        assert shown[f"ringfence_cohort_lag_rows{{{LABELS}}}"] == 210
        assert shown[f"ringfence_cohort_lag_seconds{{{LABELS}}}"] == 1.5
        assert shown[f"ringfence_cohort_generation{{{LABELS}}}"] == 1
        assert shown[f"ringfence_cohort_unassigned_partitions{{{LABELS}}}"] == 0
        assert shown[f'ringfence_cohort_members{{{COHORT},state="connected",{NAME}}}'] == 1
        assert shown[f'ringfence_cohort_members{{{COHORT},state="grace",{NAME}}}'] == 0
        assert shown["ringfence_cohort_assign_pushes"] == 1
        of_cohorts = [name for name in shown if name.startswith("ringfence_cohort_")]
        assert not any('member="' in name or 'partition="' in name for name in of_cohorts)
        assert (await api("DELETE", f"{PLACE}/subscriptions/etl")).status == 204
        assert not any(name.startswith("ringfence_cohort_") for name in await metrics(api))

    with_member(tmp_path, monkeypatch, work)


def test_a_topic_with_members_is_deleted_by_force_only(tmp_path: Path, monkeypatch: Patch) -> None:
    """S9."""

    async def work(api: Api, native: GatedNode, joined: Joined) -> None:
        refused = await api("DELETE", PLACE)
        assert refused.status == 409
        assert "etl/m" in refused.body["detail"]
        named = messages.TopicDelete(name="t")
        assert await api.bench.refused(Opcode.TOPIC_DELETE, named) == Code.ALREADY_EXISTS
        state = api.bench.node.proposer.state
        assert joined.cohort in state.cohorts
        assert (await api("DELETE", f"{PLACE}?force=true")).status == 200
        await soon(lambda: not native.rules)
        assert api.bench.node.proposer.state.cohorts == {}
        kinds = [event.kind for event in api.bench.node.cluster_events._history]
        assert kinds[-2:] == ["topic deleted", "cohort deleted"]
        assert {"cohort created", "member joined", "plan published"} <= {*kinds}

    with_member(tmp_path, monkeypatch, work)


def test_force_is_no_other_command_where_nobody_reads(tmp_path: Path, monkeypatch: Patch) -> None:
    gated_node.install(monkeypatch)

    async def work(api: Api) -> None:
        assert (await api("POST", "/admin/topics", TOPIC)).status == 201
        assert (await api("DELETE", f"{PLACE}?force=true")).status == 200

    served(tmp_path, monkeypatch, work)
