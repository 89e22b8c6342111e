"""Pages of topics with figures: `GET /admin/topics?stats=true`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ringfence.control.http import topic_bodies
from tests.fakes.admin_api import TOPIC, Api, served
from tests.fakes.api_roles import bearer, given

Patch = pytest.MonkeyPatch
NAMES = [f"acme/sales/{letter}" for letter in "abcdef"]


async def make_topics(api: Api) -> None:
    for number, name in enumerate(NAMES):
        created = await api("POST", "/admin/topics", TOPIC | {"name": name, "properties": {"n": str(number)}})
        assert created.status == 201


async def pages(api: Api, query: str) -> list[list[Any]]:
    """All pages of a list, each as its topics."""
    found: list[list[Any]] = []
    while True:
        after = found[-1][-1]["name"] if found else ""
        page = await api.get(f"/admin/topics?{query}&after={after}")
        found.append(page["topics"])
        if not page["more"]:
            return found


def test_a_page_has_each_topic_as_it_is_shown_alone(tmp_path: Path, monkeypatch: Patch) -> None:
    async def work(api: Api) -> None:
        await make_topics(api)
        alone = [await api.get(f"/admin/topics/{name}") for name in NAMES]
        assert [part["replicas"] for part in alone[0]["stats"]] == [[1]] * 3
        answer = await api("GET", "/admin/topics?stats=true&linearizable=true")
        assert (answer.status, answer.body) == (200, {"topics": alone, "more": False})
        assert answer.headers["content-type"] == "application/json"
        assert answer.headers["cache-control"] == "no-store"
        assert int(answer.headers["x-ringfence-index"]) == (await api.get("/admin/status"))["index"]
        head = await api("HEAD", "/admin/topics?stats=true")
        assert (head.status, head.text) == (200, "")
        assert await pages(api, "stats=true&limit=4") == [alone[:4], alone[4:]]
        assert (await api.get("/admin/topics?stats=true&property=n=3"))["topics"] == alone[3:4]
        assert (await api.get("/admin/topics?stats=true&prefix=x"))["topics"] == []
        plain = (await api.get("/admin/topics"))["topics"]
        assert [topic["name"] for topic in plain] == NAMES
        assert all("stats" not in topic for topic in plain)

    served(tmp_path, monkeypatch, work)


def test_pages_end_before_they_are_too_large(tmp_path: Path, monkeypatch: Patch) -> None:
    async def work(api: Api) -> None:
        await make_topics(api)
        whole = await api("GET", "/admin/topics?stats=true")
        size = len(whole.text) // len(NAMES)
        for size_max, topics in ((2 * size + 100, 2), (1, 1)):
            monkeypatch.setattr(topic_bodies, "PAGE_BYTES", size_max)
            monkeypatch.setattr(topic_bodies, "TURN_BYTES", size)
            found = await pages(api, "stats=true")
            assert [len(page) for page in found] == [topics] * (len(NAMES) // topics)
            assert [topic for page in found for topic in page] == whole.body["topics"]

    served(tmp_path, monkeypatch, work)


def test_a_token_with_a_prefix_gets_the_figures_of_its_topics_only(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    async def work(api: Api) -> None:
        await make_topics(api)
        assert (await api("POST", "/admin/topics", TOPIC | {"name": "acme/other/t"})).status == 201
        await api("POST", "/admin/tokens", given("admin"))
        sales = given("viewer", prefix="acme/sales/")
        assert (await api("POST", "/admin/tokens", sales, **bearer("admin"))).status == 201
        mine = await api.get("/admin/topics?stats=true", **bearer("viewer"))
        assert [topic["name"] for topic in mine["topics"]] == NAMES
        assert mine["more"] is False

    served(tmp_path, monkeypatch, work)
