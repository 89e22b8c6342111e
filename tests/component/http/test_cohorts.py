"""Cohorts over HTTP: declarations with If-Match, seeks, members, lag, and who may do what."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from msgspec import UNSET

from ringfence.control.model.layout_changes import LAYOUT_LEVEL
from ringfence.control.state_machines.metadata.member_proofs import proof
from ringfence.native.cohort_messages import Join, Joined
from ringfence.native.wire import Opcode
from tests.fakes import gated_node
from tests.fakes.admin_api import PLACE, TOPIC, Api, served
from tests.fakes.gated_node import GatedNode
from tests.fakes.layout_level import lower_program
from tests.fakes.node_bench import soon

Patch = pytest.MonkeyPatch
SUBSCRIPTIONS = f"{PLACE}/subscriptions"
COHORT = f"{SUBSCRIPTIONS}/etl"


def with_cohorts(root: Path, monkeypatch: Patch, work: Callable[[Api, GatedNode], Awaitable[None]]) -> None:
    gated_node.install(monkeypatch)

    async def whole(api: Api) -> None:
        assert (await api("POST", "/admin/topics", TOPIC)).status == 201
        native = api.bench.native
        assert isinstance(native, GatedNode)
        await work(api, native)

    served(root, monkeypatch, whole)


async def member(api: Api, name: str = "m") -> Joined:
    request = Join(topic="t", cohort="etl", mode="stream", member=name, instance=secrets.token_bytes(16))
    return await api.bench.ok(Opcode.JOIN, request, Joined)


def test_a_declaration_is_made_once_and_changed_only_with_its_etag(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    async def work(api: Api, native: GatedNode) -> None:
        del native
        made = await api("PUT", COHORT, {"mode": "queue"})
        assert (made.status, made.body["mode"], made.body["settings"]["limit"]) == (201, "queue", 5)
        index = api.bench.node.proposer.applied.index
        assert (await api("PUT", COHORT, {"mode": "queue"})).status == 200
        assert api.bench.node.proposer.applied.index == index, "no entry without content"
        other = {"mode": "queue", "limit": 9}
        assert (await api("PUT", COHORT, other)).slug == "precondition-required"
        assert (await api("PUT", COHORT, other, if_match='"1"')).status == 412
        etag = (await api("GET", COHORT)).headers["etag"]
        changed = await api("PUT", COHORT, other, if_match=etag)
        assert (changed.status, changed.body["settings"]["limit"]) == (200, 9)
        again = await api("PUT", COHORT, other, if_match=etag)
        assert (again.status, again.body["version"]) == (200, changed.body["version"]), "a lost answer"
        assert (await api("PUT", COHORT, {"mode": "queue", "limit": 8}, if_match=etag)).status == 412
        moded = await api(
            "PUT", COHORT, {"mode": "stream"}, if_match=(await api("GET", COHORT)).headers["etag"]
        )
        assert (moded.status, moded.slug) == (409, "already-exists")
        gone = await api("PUT", f"{SUBSCRIPTIONS}/none", {"mode": "stream"}, if_match='"5"')
        assert gone.status == 412
        bad: dict[str, Any]
        for bad in ({"mode": "STREAM"}, {"mode": "queue", "limit": 101}, {"mode": "queue", "x": 1}, {}):
            assert (await api("PUT", COHORT, bad)).status == 422
        assert (await api("PUT", f"{SUBSCRIPTIONS}/a%2Fb", {"mode": "stream"})).status in {404, 422}
        assert (await api("DELETE", COHORT, if_match='"1"')).status == 412
        assert (await api("DELETE", COHORT)).status == 204
        assert (await api("DELETE", COHORT)).slug == "unknown-cohort"

    with_cohorts(tmp_path, monkeypatch, work)


def test_lag_members_and_evictions(tmp_path: Path, monkeypatch: Patch) -> None:
    async def work(api: Api, native: GatedNode) -> None:
        joined = await member(api)
        await soon(lambda: {rule.assignee for rule in native.rules.values()} == {joined.session})
        part = min(rule.partition for rule in native.rules.values())
        native.settle(joined.cohort, part, 90)
        shown = await api.get(COHORT)
        assert (shown["lag_rows"], shown["members"], shown["unknown"]) == (210, 1, [])
        assert [one["settled"] for one in shown["partitions"]] == [90, 0, 0]
        assert [one["member"] for one in shown["member_list"]] == ["m"]
        [listed] = (await api.get(SUBSCRIPTIONS))["cohorts"]
        assert listed["cohort"] == "etl"
        assert (await api.get(f"{SUBSCRIPTIONS}?after=etl"))["cohorts"] == []
        page = await api.get(f"{COHORT}?after={part}")
        assert len(page["partitions"]) == 2
        [one] = (await api.get(f"{COHORT}/members"))["members"]
        assert one["partitions"] == 3
        assert (await api("DELETE", f"{COHORT}/members/m")).status == 204
        assert (await api("DELETE", f"{COHORT}/members/m")).slug == "unknown-member"
        assert (await member(api)).session > joined.session
        assert (await api("GET", f"{SUBSCRIPTIONS}/none")).slug == "unknown-cohort"

    with_cohorts(tmp_path, monkeypatch, work)


def test_a_seek_is_made_once_for_each_key(tmp_path: Path, monkeypatch: Patch) -> None:
    async def work(api: Api, native: GatedNode) -> None:
        first = await member(api)
        sought = await api("POST", f"{COHORT}/seek", {"to": "latest"}, idempotency_key="k")
        assert sought.status == 202
        again = await api("POST", f"{COHORT}/seek", {"to": "latest"}, idempotency_key="k")
        assert again.body["incarnation"] == sought.body["incarnation"] > first.incarnation
        reused = await api("POST", f"{COHORT}/seek", {"to": "earliest"}, idempotency_key="k")
        assert reused.slug == "key-reused"
        skipped = await api("POST", f"{COHORT}/skip-all")
        assert skipped.body["incarnation"] > sought.body["incarnation"]
        await soon(lambda: {entry.offset for entry in native.entries.values()} == {100})
        parts = sorted(rule.partition for rule in native.rules.values())
        there = [{"partition": part, "offset": 5} for part in parts]
        assert (await api("POST", f"{COHORT}/seek", {"positions": there})).status == 202
        await soon(lambda: {rule.offset for rule in native.rules.values()} == {5})
        bad: dict[str, Any]
        for bad in ({}, {"to": "latest", "positions": there}, {"to": "noon"}, {"positions": []}):
            assert (await api("POST", f"{COHORT}/seek", bad)).status == 422, bad
        old = {"to": "latest", "incarnation": first.incarnation}
        assert (await api("POST", f"{COHORT}/seek", old)).status == 412
        plain = native._figures
        monkeypatch.setattr(native, "_figures", lambda *gate: plain(*gate) | {"parked": 1})
        parked = await api("POST", f"{COHORT}/seek", {"to": "latest"})
        assert (parked.status, parked.body["parked"]) == (409, 3)
        forced = await api("POST", f"{COHORT}/seek", {"to": "latest", "forget_parked": True})
        assert forced.status == 202

    with_cohorts(tmp_path, monkeypatch, work)


def test_roles_and_prefixes_bound_what_a_token_may_do(tmp_path: Path, monkeypatch: Patch) -> None:
    async def work(api: Api, native: GatedNode) -> None:
        del native
        assert (await api("PUT", COHORT, {"mode": "stream"})).status == 201
        assert (await api("PUT", f"{SUBSCRIPTIONS}/send", {"mode": "stream"})).status == 201
        bearers = {}
        for name, values in (
            ("root", {"role": "admin"}),
            ("reads", {"role": "viewer"}),
            ("reader", {"role": "consumer"}),
            ("ops", {"role": "operator", "cohorts": "send"}),
            ("far", {"role": "operator", "prefix": "acme/"}),
        ):
            bearers[name] = f"Bearer {name}"
            given = {"name": name, "sha256": sha256(name.encode()).hexdigest(), **values}
            created = await api("POST", "/admin/tokens", given, authorization=bearers["root"])
            assert created.status == 201, created
        tokens = await api.get("/admin/tokens", authorization=bearers["root"])
        assert {one["name"]: one["cohorts"] for one in tokens["tokens"]}["ops"] == "send"

        async def status(who: str, method: str, path: str, body: Any = None) -> int:
            return (await api(method, path, body, authorization=bearers[who])).status

        for who in ("reads", "reader"):
            assert await status(who, "GET", COHORT) == 200
            assert await status(who, "PUT", COHORT, {"mode": "stream"}) == 403
            assert await status(who, "POST", f"{COHORT}/skip-all") == 403
        assert await status("far", "GET", COHORT) == 403
        assert await status("ops", "GET", COHORT) == 403
        assert await status("ops", "POST", f"{COHORT}/skip-all") == 403
        assert await status("ops", "DELETE", COHORT) == 403
        assert await status("ops", "POST", f"{SUBSCRIPTIONS}/send/skip-all") == 202
        listed = await api.get(SUBSCRIPTIONS, authorization=bearers["ops"])
        assert [one["cohort"] for one in listed["cohorts"]] == ["send"]

    with_cohorts(tmp_path, monkeypatch, work)


def test_a_member_gets_a_proof_for_its_token_and_the_engine_the_key_of_it(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    """CX3, B12."""

    async def work(api: Api, native: GatedNode) -> None:
        assert (await member(api, "open")).proof is UNSET
        assert native.member_key == b""
        for name, role in (("root", "admin"), ("reader", "consumer"), ("other", "consumer")):
            given = {"name": name, "sha256": sha256(name.encode()).hexdigest(), "role": role}
            assert (await api("POST", "/admin/tokens", given, authorization="Bearer root")).status == 201
        proofs = {}
        for native.token in ("reader", "other"):
            joined = await member(api, native.token)
            credential = sha256(native.token.encode()).digest()
            cluster = api.bench.node.proposer.state.cluster
            proofs[native.token] = joined.proof
            assert joined.proof == proof(
                native.member_key, cluster, joined.cohort, joined.session, credential
            )
        assert len({*proofs.values()}) == 2

    with_cohorts(tmp_path, monkeypatch, work)


def test_below_its_level_nothing_is_made(tmp_path: Path, monkeypatch: Patch) -> None:
    gated_node.install(monkeypatch)
    lower_program(monkeypatch, LAYOUT_LEVEL)

    async def work(api: Api) -> None:
        assert (await api("POST", "/admin/topics", TOPIC)).status == 201
        refused = await api("PUT", COHORT, {"mode": "stream"})
        assert refused.status == 409
        assert "ringfence cluster finalize" in refused.body["detail"]
        assert (await api.get(SUBSCRIPTIONS))["cohorts"] == []
        root = {"name": "root", "sha256": sha256(b"root").hexdigest(), "role": "admin"}
        assert (await api("POST", "/admin/tokens", root)).status == 201
        bearer = {"authorization": "Bearer root"}
        for values in ({"role": "consumer"}, {"role": "writer", "cohorts": "etl"}):
            given = {"name": "c", "sha256": sha256(b"c").hexdigest(), **values}
            assert (await api("POST", "/admin/tokens", given, **bearer)).slug == "not-supported"

    served(tmp_path, monkeypatch, work)
