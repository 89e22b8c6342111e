"""Changes that were refused for want of rights: who asked, what, and why, in the audit log; but not all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ringfence.control.http import refusal_audit
from tests.fakes.admin_api import PLACE, TOPIC, Api, served
from tests.fakes.api_roles import LIMIT, SECRETS, bearer, given, tokens

Patch = pytest.MonkeyPatch
WRONG = {"authorization": "Bearer rf_secret_of_nobody"}


def lines(root: Path) -> list[dict[str, Any]]:
    """Of refused changes."""
    told = [json.loads(line) for line in (root / "audit" / "audit.log").read_text().splitlines()]
    return [line for line in told if line["status"] in {401, 403}]


def test_who_was_refused_is_in_the_audit_log_and_no_secret_is(tmp_path: Path, monkeypatch: Patch) -> None:
    async def work(api: Api) -> None:
        await tokens(api)
        gone = given("writer", expires_ms=1) | {"role": "admin"}
        assert (await api("POST", "/admin/tokens", gone, **bearer("admin"))).status == 201
        mine = given("seller", prefix="acme/") | {"role": "operator"}
        assert (await api("POST", "/admin/tokens", mine, **bearer("admin"))).status == 201
        assert (await api("DELETE", PLACE, **bearer("viewer"))).status == 403
        assert (await api("PATCH", "/admin/config", LIMIT, **bearer("operator"))).status == 403
        assert (await api("POST", f"{PLACE}/truncate", {}, **bearer("seller"))).status == 403
        assert (await api("POST", "/admin/topics", TOPIC, **bearer("seller"))).status == 403
        assert (await api("POST", "/admin/nodes/1/drain", **bearer("writer"))).status == 401
        assert (await api("DELETE", "/admin/tokens/admin", **WRONG)).status == 401
        assert (await api("DELETE", "/admin/nodes/1")).status == 401
        for reader in (WRONG, bearer("viewer"), {}):
            assert (await api("GET", "/admin/tokens", **reader)).status in {401, 403}

    monkeypatch.setitem(SECRETS, "writer", "rf_secret_of_writer")
    monkeypatch.setitem(SECRETS, "seller", "rf_secret_of_seller")
    served(tmp_path, monkeypatch, work)
    told = [
        (line["who"], line["role"], line["action"], line["path"], line["status"]) for line in lines(tmp_path)
    ]
    assert told == [
        ("viewer", "viewer", "delete_topic", PLACE, 403),
        ("operator", "operator", "set_config", "/admin/config", 403),
        ("seller", "operator", "truncate_topic", f"{PLACE}/truncate", 403),
        ("seller", "operator", "topic create", "/admin/topics", 403),
        ("writer", "admin", "change_node", "/admin/nodes/1/drain", 401),
        ("", "", "revoke_token", "/admin/tokens/admin", 401),
        ("", "", "remove_node", "/admin/nodes/1", 401),
    ]
    why = [line["detail"] for line in lines(tmp_path)]
    for words, detail in zip(
        ("needs operator", "needs admin", "begin with", "begin with", "expired", "no token has", "no token;"),
        why,
        strict=True,
    ):
        assert words in detail
    assert all(line["peer"].startswith("127.0.0.1:") and line["index"] == 0 for line in lines(tmp_path))
    assert "rf_secret" not in (tmp_path / "audit" / "audit.log").read_text()


def test_a_page_from_elsewhere_is_in_the_audit_log(tmp_path: Path, monkeypatch: Patch) -> None:
    async def work(api: Api) -> None:
        assert (await api("POST", "/admin/nodes/1/drain", origin="http://evil.example")).status == 403

    served(tmp_path, monkeypatch, work)
    [line] = lines(tmp_path)
    assert (line["who"], line["action"], "other page" in line["detail"]) == ("", "change_node", True)


def test_a_flood_of_wrong_tokens_leaves_few_lines_and_hides_nobody_else(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(refusal_audit, "LINES_MAX", 3)

    async def work(api: Api) -> None:
        await tokens(api)
        for _ in range(8):
            assert (await api("DELETE", PLACE, **WRONG)).status == 401
        assert (await api("DELETE", PLACE, **bearer("viewer"))).status == 403
        monkeypatch.setattr(refusal_audit, "LINE_AGAIN_S", 0.001)
        assert (await api("DELETE", PLACE, **WRONG)).status == 401

    served(tmp_path, monkeypatch, work)
    told = lines(tmp_path)
    assert [line["who"] for line in told] == ["", "", "", "viewer", ""]
    assert [line["detail"].partition("; 5 more")[1] for line in told] == ["", "", "", "", "; 5 more"]
