"""Versions and finalization over HTTP: what is told, what is refused and how, what the audit log keeps."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from ringfence.control.runtime.rpc import messages
from ringfence.control.transport.question import ask_address
from ringfence.native.wire import LEVEL_NEWEST
from tests.fakes.admin_api import Api, served
from tests.fakes.node_bench import control, old_directory


def audited(root: Path) -> list[tuple[str, int]]:
    """Action and status of each line."""
    lines = (root / "audit" / "audit.log").read_text().splitlines()
    return [(line["action"], line["status"]) for line in map(json.loads, lines)]


def test_a_cluster_is_finalized_once_and_a_repeat_does_no_harm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old_directory(tmp_path)

    async def work(api: Api) -> None:
        told = await api.get("/admin/versions")
        assert (told["level"], told["newest"], told["holds"]) == (0, LEVEL_NEWEST, [])
        assert [node["level"] for node in told["nodes"]] == [LEVEL_NEWEST]
        assert told["nodes"][0]["program"].startswith("ringfence ")
        first = await api("POST", "/admin/finalize", idempotency_key="k")
        assert first.status == 200
        again = await api("POST", "/admin/finalize", idempotency_key="k")
        assert again.body == first.body
        assert (await api("POST", "/admin/finalize")).status == 200
        assert (await api.get("/admin/versions"))["level"] == LEVEL_NEWEST

    served(tmp_path, monkeypatch, work, control=control())
    assert audited(tmp_path) == [("cluster finalize", 200)] * 3


def test_a_member_that_was_not_heard_of_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old_directory(tmp_path)
    address = control()
    join = messages.encode(messages.Join(store=b"s" * 16, control=(control(),), program="p 1"))

    async def work(api: Api) -> None:
        joined = messages.decode_reply(await asyncio.to_thread(ask_address, address, join, 10.0))
        assert isinstance(joined, messages.Joined), joined
        (hold,) = (await api.get("/admin/versions"))["holds"]
        assert (hold["node"], hold["level"]) == (joined.node, None)
        refused = await api("POST", "/admin/finalize")
        assert (refused.status, refused.slug) == (409, "unsupported-version")
        assert f"node {joined.node}: p 1 did not answer" in refused.body["detail"]

    served(tmp_path, monkeypatch, work, control=address)
    assert audited(tmp_path) == [("cluster finalize", 409)]
