"""Layout changes over HTTP through a whole node over a fake native one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fakes import layout_engine
from tests.fakes.admin_api import PLACE, TOPIC, Api, served
from tests.fakes.layout_level import raise_program

Patch = pytest.MonkeyPatch


def test_a_partition_is_split_and_its_children_serve(tmp_path: Path, monkeypatch: Patch) -> None:
    raise_program(monkeypatch)
    engines = layout_engine.install(monkeypatch)

    async def work(api: Api) -> None:
        created = await api("POST", "/admin/topics", TOPIC)
        assert created.status == 201, created
        layout = await api.get(f"{PLACE}/layout")
        first = layout["partitions"][0]
        done = await api("POST", f"{PLACE}/split/{first['partition']}", {}, idempotency_key="k")
        assert done.status == 200, done
        change = done.body["change"]
        halves = done.body["partitions"]
        assert [half["parents"] for half in halves] == [[first["partition"]]] * 2
        assert [half["partition"] >> 16 for half in halves] == [change] * 2
        layout = await api.get(f"{PLACE}/layout")
        assert layout["version"] == 2
        assert {part["state"] for part in layout["partitions"]} == {"ACTIVE", "SEALED"}
        taken = engines[0].taken
        assert {child: [final for *_, final in pages] for child, pages in taken.items()} == {
            half["partition"]: [True] for half in halves
        }

    served(tmp_path, monkeypatch, work)
