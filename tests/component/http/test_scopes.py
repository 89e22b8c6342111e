"""Scopes over the admin API: listed within a token's prefix, and given back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ringfence.native import cluster_messages as messages
from ringfence.native.wire import Opcode
from tests.fakes.admin_api import TOPIC, Api, served
from tests.fakes.api_roles import bearer, given

Patch = pytest.MonkeyPatch
LIST, FORGET = "/admin/scopes", "/admin/scopes/forget"


async def begun(api: Api, name: str, **more: Any) -> messages.ScopeBegun:
    body = messages.ScopeBegin(scope=name, **more)
    return await api.bench.ok(Opcode.BEGIN, body, messages.ScopeBegun)


def test_scopes_are_listed_a_page_at_a_time_and_given_back(tmp_path: Path, monkeypatch: Patch) -> None:
    async def work(api: Api) -> None:
        made = await api("POST", "/admin/topics", TOPIC)
        nightly = f"nightly@{made.body['topic']}"
        first = await begun(api, nightly)
        await begun(api, "run", one_off=True)
        await begun(api, "weekly ü")
        page = await api.get(f"{LIST}?limit=2")
        assert [each["name"] for each in page["scopes"]] == [nightly, "run"]
        assert page["more"]
        assert page["scopes"][0] | {"used": 0} == {
            "name": nightly,
            "scope": first.scope_id,
            "topic": "public/default/t",
            "owner": "",
            "driver": first.driver,
            "committed": 0,
            "unpublished": 0,
            "used": 0,
            "temporary": False,
        }
        assert page["scopes"][1]["temporary"]
        rest = await api.get(f"{LIST}?after=run")
        assert ([each["name"] for each in rest["scopes"]], rest["more"]) == (["weekly ü"], False)
        receipt = await api("POST", FORGET, {"name": nightly}, idempotency_key="one")
        assert receipt.status == 200, receipt.text
        again = await api("POST", FORGET, {"name": nightly}, idempotency_key="one")
        assert (again.text, again.headers["idempotency-replayed"]) == (receipt.text, "true")
        unknown = await api("POST", FORGET, {"name": nightly})
        assert (unknown.status, unknown.slug) == (404, "unknown-scope")
        assert "ringfence scope list" in unknown.body["detail"]
        assert (await begun(api, nightly)).scope_id > first.scope_id

    served(tmp_path, monkeypatch, work)
    told = [json.loads(line) for line in (tmp_path / "audit" / "audit.log").read_text().splitlines()]
    lines = [(line["action"][:14], line["status"]) for line in told if line["action"].startswith("scope")]
    assert lines == [("scope forget n", status) for status in (200, 200, 404)]


def test_a_token_with_a_prefix_sees_and_gives_back_scopes_of_its_topics_only(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    async def work(api: Api) -> None:
        mine = (await api("POST", "/admin/topics", TOPIC | {"name": "acme/sales/t"})).body["topic"]
        other = (await api("POST", "/admin/topics", TOPIC)).body["topic"]
        for name in (f"s@{mine}", f"s@{other}", "of-all"):
            await begun(api, name)
        assert (await api("POST", "/admin/tokens", given("admin"))).status == 201
        narrow = given("operator", prefix="acme/")
        assert (await api("POST", "/admin/tokens", narrow, **bearer("admin"))).status == 201
        seen = await api("GET", LIST, **bearer("operator"))
        assert [each["name"] for each in seen.body["scopes"]] == [f"s@{mine}"]
        for name in (f"s@{other}", "of-all"):
            refused = await api("POST", FORGET, {"name": name}, **bearer("operator"))
            assert (refused.status, refused.slug) == (403, "unauthorized"), refused
        done = await api("POST", FORGET, {"name": f"s@{mine}"}, **bearer("operator"))
        assert done.status == 200, done
        left = await api("GET", LIST, **bearer("admin"))
        assert [each["name"] for each in left.body["scopes"]] == ["of-all", f"s@{other}"]

    served(tmp_path, monkeypatch, work)
