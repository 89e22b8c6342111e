"""HEAD, and what a 405 says: load balancers and monitors ask so."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fakes.admin_api import PLACE, TOPIC, Api, served
from tests.fakes.api_roles import bearer, given

Patch = pytest.MonkeyPatch


def test_head_is_served_wherever_get_is_with_the_same_head_and_no_body(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    async def work(api: Api) -> None:
        await api("POST", "/admin/topics", TOPIC)
        for path in (
            "/health/live",
            "/health/ready",
            "/admin/topics",
            PLACE,
            "/openapi.json",
            "/admin/events",
        ):
            head = await api("HEAD", path)
            assert (path, head.status, head.text) == (path, 200, "")
            if path != "/admin/events":  # its GET has no end
                got = await api("GET", path)
                assert head.headers["content-type"] == got.headers["content-type"]
        assert (await api("HEAD", "/admin/nothing")).status == 404
        api.bench.node.health.phase = "stopping"
        assert (await api("HEAD", "/health/ready")).status == 503
        assert not api.bench.node.cluster_events._listeners, "the streams that HEAD asked for are closed"

    served(tmp_path, monkeypatch, work)


def test_a_405_lists_what_its_path_serves(tmp_path: Path, monkeypatch: Patch) -> None:
    async def work(api: Api) -> None:
        await api("POST", "/admin/topics", TOPIC)
        for method, path, allowed in (
            ("PUT", "/health/live", "GET, HEAD"),
            ("PUT", "/admin/topics", "GET, HEAD, POST"),
            ("POST", PLACE, "DELETE, GET, HEAD"),
            ("GET", "/admin/tokens/a", "DELETE"),
            ("POST", "/openapi.json", "GET, HEAD"),
        ):
            refused = await api(method, path)
            assert (path, refused.status, refused.headers["allow"]) == (path, 405, allowed)

    served(tmp_path, monkeypatch, work)


def test_a_token_with_any_name_can_be_revoked(tmp_path: Path, monkeypatch: Patch) -> None:
    """%2F is decoded before the route is chosen: a secret whose name has a slash was good for ever."""

    async def work(api: Api) -> None:
        await api("POST", "/admin/tokens", given("admin"))
        for number, (name, place) in enumerate(
            (
                ("acme/loader", "acme%2Floader"),
                ("a//b", "a%2F%2Fb"),
                ("end/", "end%2F"),
                ("/", "%2F"),
                ("a b?", "a%20b%3F"),
            )
        ):
            secret = f"{number:064x}"
            made = await api(
                "POST", "/admin/tokens", {"name": name, "role": "viewer", "sha256": secret}, **bearer("admin")
            )
            assert made.status == 201, made
            assert made.headers["location"] == f"/admin/tokens/{place}"
            gone = await api("DELETE", made.headers["location"], **bearer("admin"))
            assert (name, gone.status) == (name, 200)
        listed = await api("GET", "/admin/tokens", **bearer("admin"))
        assert [token["name"] for token in listed.body["tokens"]] == ["admin"]
        assert (await api("DELETE", "/admin/tokens/no%2Fsuch", **bearer("admin"))).slug == "unknown-token"

    served(tmp_path, monkeypatch, work)
