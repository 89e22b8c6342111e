"""Named producers over the admin API: listed, and given back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ringfence.native import messages
from ringfence.native.wire import Opcode
from tests.fakes.admin_api import PLACE, TOPIC, Api, served

Patch = pytest.MonkeyPatch
FORGET = f"{PLACE}/producers/forget"


async def opened(api: Api, name: str) -> messages.ProducerOpened:
    body = messages.ProducerOpen(topic="t", name=name)
    return await api.bench.ok(Opcode.PRODUCER_OPEN, body, messages.ProducerOpened)


async def names(api: Api) -> dict[str, Any]:
    found = await api.get(f"{PLACE}/producers")
    return {each["name"]: (each["producer"], each["epoch"]) for each in found["producers"]}


def test_a_forgotten_name_is_fenced_everywhere_and_its_next_open_is_a_new_producer(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    async def work(api: Api) -> None:
        await api("POST", "/admin/topics", TOPIC)
        assert await names(api) == {}
        first, other = await opened(api, "loader/1 \u00fc"), await opened(api, "other")
        assert await names(api) == {
            "loader/1 \u00fc": (first.producer_id, first.producer_epoch),
            "other": (other.producer_id, other.producer_epoch),
        }
        before = len(api.bench.native.orders)
        wanted = {"name": "loader/1 \u00fc"}
        receipt = await api("POST", FORGET, wanted, idempotency_key="one")
        assert receipt.status == 200, receipt.text
        fenced = [order for order in api.bench.native.orders[before:] if order[0] == "open_producer"]
        assert len(fenced) == TOPIC["partitions"]
        assert {order[3] for order in fenced} == {first.producer_id}
        assert all(order[4] > first.producer_epoch for order in fenced)
        assert set(await names(api)) == {"other"}
        again = await api("POST", FORGET, wanted, idempotency_key="one")
        assert (again.text, again.headers["idempotency-replayed"]) == (receipt.text, "true")
        unknown = await api("POST", FORGET, wanted)
        assert (unknown.status, unknown.slug) == (404, "unknown-producer")
        fresh = await opened(api, "loader/1 \u00fc")
        assert fresh.producer_id not in {first.producer_id, other.producer_id}
        assert fresh.resume == []

    served(tmp_path, monkeypatch, work)
    told = [json.loads(line) for line in (tmp_path / "audit" / "audit.log").read_text().splitlines()]
    lines = [(line["action"], line["status"]) for line in told if line["action"].startswith("producer")]
    assert lines == [("producer forget loader/1 \u00fc", status) for status in (200, 200, 404)]


def test_a_name_stays_while_a_partition_cannot_fence_its_holder(tmp_path: Path, monkeypatch: Patch) -> None:
    async def work(api: Api) -> None:
        await api("POST", "/admin/topics", TOPIC)
        first = await opened(api, "loader")
        api.bench.native.refuses["open_producer"] = "the disk is gone"
        refused = await api("POST", FORGET, {"name": "loader"})
        assert refused.status == 503
        assert "the disk is gone" in refused.body["detail"]
        assert set(await names(api)) == {"loader"}
        del api.bench.native.refuses["open_producer"]
        assert (await opened(api, "loader")).producer_id == first.producer_id

    served(tmp_path, monkeypatch, work)
