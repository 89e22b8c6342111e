"""Tokens of three roles, and the role that each operation of the admin API asks for."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

from tests.fakes.admin_api import PLACE, TOPIC, Api

SECRETS = {role: f"rf_secret_of_{role}" for role in ("viewer", "operator", "admin")}
LIMIT = {"values": {"topics_max": 9}}
WIDER = {"columns": [{"name": "id", "type": "int64", "nullable": False}, {"name": "n", "type": "string"}]}
FORCE = {"change": 1, "owner": 1, "accepts": "rows since noon"}
MATRIX: list[tuple[str, str, Any, str]] = [
    ("GET", "/metrics", None, "viewer"),
    ("GET", "/admin/status", None, "viewer"),
    ("GET", "/admin/metadata", None, "viewer"),
    ("GET", "/admin/me", None, "viewer"),
    ("GET", "/admin/nodes", None, "viewer"),
    ("GET", "/admin/nodes/1", None, "viewer"),
    ("GET", "/admin/ring", None, "viewer"),
    ("GET", "/admin/config", None, "viewer"),
    ("GET", "/admin/topics", None, "viewer"),
    ("GET", PLACE, None, "viewer"),
    ("GET", f"{PLACE}/layout", None, "viewer"),
    ("GET", f"{PLACE}/assignments", None, "viewer"),
    ("GET", f"{PLACE}/partitions/7", None, "viewer"),
    ("GET", "/admin/transitions", None, "viewer"),
    ("GET", f"{PLACE}/explain", None, "viewer"),
    ("PATCH", f"{PLACE}/auto", {"values": {"auto_split": 1}}, "admin"),
    ("POST", f"{PLACE}/split/7", {}, "admin"),
    ("POST", f"{PLACE}/merge/7/8", {}, "admin"),
    ("POST", f"{PLACE}/repartition", {"partitions": 2, "wait_s": 0}, "admin"),
    ("POST", "/admin/transitions/7/abort", {}, "admin"),
    ("GET", f"{PLACE}/subscriptions", None, "viewer"),
    ("GET", f"{PLACE}/subscriptions/etl", None, "viewer"),
    ("PUT", f"{PLACE}/subscriptions/etl", {"mode": "stream"}, "operator"),
    ("DELETE", f"{PLACE}/subscriptions/etl", None, "operator"),
    ("POST", f"{PLACE}/subscriptions/etl/seek", {"to": "latest"}, "operator"),
    ("POST", f"{PLACE}/subscriptions/etl/skip-all", None, "operator"),
    ("GET", f"{PLACE}/subscriptions/etl/parked", None, "viewer"),
    ("POST", f"{PLACE}/subscriptions/etl/parked/retry", {"all": True}, "operator"),
    ("POST", f"{PLACE}/subscriptions/etl/parked/discard", {"all": True}, "operator"),
    ("GET", f"{PLACE}/subscriptions/etl/members", None, "viewer"),
    ("DELETE", f"{PLACE}/subscriptions/etl/members/m", None, "operator"),
    ("GET", f"{PLACE}/producers", None, "viewer"),
    ("GET", "/admin/scopes", None, "viewer"),
    ("GET", "/admin/events?wait_s=0.01", None, "viewer"),
    ("POST", "/admin/topics", TOPIC | {"name": "u"}, "operator"),
    ("POST", f"{PLACE}/truncate", {}, "operator"),
    ("POST", f"{PLACE}/schemas", WIDER, "operator"),
    ("POST", f"{PLACE}/producers/forget", {"name": "loader"}, "operator"),
    ("POST", "/admin/scopes/forget", {"name": "nightly"}, "operator"),
    ("POST", "/admin/nodes/1/drain", None, "operator"),
    ("DELETE", PLACE, None, "operator"),
    ("DELETE", "/admin/nodes/1", None, "admin"),
    ("PATCH", "/admin/config", LIMIT, "admin"),
    ("GET", "/admin/rebalance", None, "viewer"),
    ("GET", "/admin/moves", None, "viewer"),
    ("GET", "/admin/rebalance/history", None, "viewer"),
    ("GET", "/admin/rebalance/preview?action=balance", None, "viewer"),
    ("POST", "/admin/rebalance", {"action": "balance"}, "admin"),
    ("POST", "/admin/rebalance/cancel", None, "admin"),
    ("GET", "/admin/partitions/7", None, "viewer"),
    ("GET", "/admin/fsck", None, "viewer"),
    ("POST", "/admin/partitions/7/force-owner", FORCE, "admin"),
    ("POST", "/admin/partitions/7/release", None, "admin"),
    ("POST", "/admin/partitions/7/give-up", {"scope": 1, "epoch": 1, "accepts": "rows since noon"}, "admin"),
    ("GET", "/admin/versions", None, "viewer"),
    ("POST", "/admin/finalize", None, "admin"),
    ("GET", "/admin/tokens", None, "admin"),
    ("POST", "/admin/tokens", {"name": "x", "sha256": "1" * 64, "role": "viewer"}, "admin"),
    ("DELETE", "/admin/tokens/x", None, "admin"),
]


def bearer(role: str) -> dict[str, str]:
    return {"authorization": f"Bearer {SECRETS[role]}"}


def given(role: str, **more: Any) -> dict[str, Any]:
    return {"name": role, "sha256": sha256(SECRETS[role].encode()).hexdigest(), "role": role, **more}


async def tokens(api: Api) -> None:
    assert (await api("POST", "/admin/topics", TOPIC)).status == 201
    assert (await api("POST", "/admin/tokens", given("admin"))).status == 201
    for role in ("viewer", "operator"):
        assert (await api("POST", "/admin/tokens", given(role), **bearer("admin"))).status == 201
