"""Who may do what: tokens, roles, hosts; the audit log; the stream of events."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from threading import Event
from typing import Any
from urllib.parse import urlsplit

import pytest

from ringfence.control.model.commands import SetConfig
from ringfence.control.model.state import EMPTY
from ringfence.control.runtime.handlers import audit, cluster_events
from ringfence.control.runtime.handlers.audit import Audit, Line
from ringfence.control.runtime.handlers.cluster_events import ClusterEvents
from ringfence.control.runtime.process.health import Health
from ringfence.control.state_machines.metadata.state_machine import apply
from ringfence.native.cluster_messages import ScopeBegin, ScopeBegun
from ringfence.native.wire import Opcode
from tests.fakes.admin_api import PLACE, TOPIC, Api, served
from tests.fakes.api_roles import MATRIX, SECRETS, bearer, given, tokens
from tests.fakes.metadata_commands import INIT, create, entry

Patch = pytest.MonkeyPatch
DOCUMENT = Path(__file__).parents[3] / "docs" / "http.md"


def test_each_operation_asks_for_its_role(tmp_path: Path, monkeypatch: Patch) -> None:
    ranks = ["viewer", "operator", "admin"]

    async def work(api: Api) -> None:
        await tokens(api)
        described = (await api.get("/openapi.json"))["paths"]
        guarded = [methods for path, methods in described.items() if not path.startswith("/health")]
        known = {(method, path.split("?")[0]) for method, path, _, _ in MATRIX}
        assert sum(map(len, guarded)) == len(known), "an operation is missing in the matrix"
        lines = DOCUMENT.read_text().splitlines()
        rows = {tuple(part.strip() for part in row.split("|")[1:3]) for row in lines if row.startswith("| `")}
        told = {f"`{method.upper()} {path}`" for path, methods in described.items() for method in methods}
        assert {request for request, _ in rows} == told, "docs/http.md lists other operations"
        for method, path, _, role in MATRIX:
            place = path.split("?")[0].replace("public/default/t", "{tenant}/{namespace}/{name}")
            place = place.replace("nodes/1", "nodes/{number}").replace("drain", "{change}")
            place = place.replace("rebalance/cancel", "rebalance/{verb}")
            place = place.replace("partitions/7", "partitions/{partition}")
            place = place.replace("split/7", "split/{partition}").replace("merge/7/8", "merge/{one}/{other}")
            place = place.replace("transitions/7", "transitions/{change}")
            place = place.replace("subscriptions/etl", "subscriptions/{cohort}")
            place = place.replace("members/m", "members/{member}")
            assert (f"`{method} {place.replace('tokens/x', 'tokens/{name}')}`", role) in rows
        for method, path, body, role in MATRIX:
            for wrong in ({}, {"authorization": "Bearer wrong"}, {"authorization": "Basic eDp5"}):
                refused = await api(method, path, body, **wrong)
                assert (path, refused.status, refused.slug) == (path, 401, "unauthorized")
                assert wrong or "RINGFENCE_TOKEN" in refused.body["detail"], refused
                assert refused.headers["www-authenticate"] == "Bearer"
            for weaker in ranks[: ranks.index(role)]:
                refused = await api(method, path, body, **bearer(weaker))
                assert (path, weaker, refused.status, refused.slug) == (path, weaker, 403, "forbidden")
            allowed = await api(method, path, body, **bearer(role))
            assert allowed.status not in {401, 403}, (method, path, allowed)
        assert (await api("GET", "/health/live")).status == 200

    served(tmp_path, monkeypatch, work)


def test_a_token_ends_when_it_expires_or_is_revoked_and_its_secret_is_nowhere(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    async def work(api: Api) -> None:
        await api("POST", "/admin/tokens", given("admin"))
        await api("POST", "/admin/tokens", given("viewer", expires_ms=1), **bearer("admin"))
        await api("POST", "/admin/tokens", given("operator"), **bearer("admin"))
        expired = await api("GET", "/admin/me", **bearer("viewer"))
        assert (expired.status, "expired" in expired.body["detail"]) == (401, True)
        assert (await api.get("/admin/me", **bearer("operator"))) == {
            "name": "operator",
            "role": "operator",
            "prefix": "",
        }
        assert (await api("DELETE", "/admin/tokens/operator", **bearer("admin"))).status == 200
        assert (await api("GET", "/admin/me", **bearer("operator"))).status == 401
        assert (await api("DELETE", "/admin/tokens/admin", **bearer("admin"))).status == 422
        listed = await api("GET", "/admin/tokens", **bearer("admin"))
        assert {token["name"] for token in listed.body["tokens"]} == {"admin", "viewer"}
        assert sha256(SECRETS["admin"].encode()).hexdigest() not in listed.text

    served(tmp_path, monkeypatch, work)
    for path in tmp_path.rglob("*"):
        if path.is_file():
            assert SECRETS["admin"].encode() not in path.read_bytes(), path


def test_a_token_with_a_prefix_is_for_topics_under_it_and_nothing_else(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    async def work(api: Api) -> None:
        for name in ("acme/sales/orders", "acme/other/t"):
            assert (await api("POST", "/admin/topics", TOPIC | {"name": name})).status == 201
        await api("POST", "/admin/tokens", given("admin"))
        sales = given("operator", prefix="acme/sales/")
        assert (await api("POST", "/admin/tokens", sales, **bearer("admin"))).status == 201
        all_of_it = given("viewer", prefix="acme/") | {"role": "admin"}
        assert (await api("POST", "/admin/tokens", all_of_it, **bearer("admin"))).status == 422
        mine = bearer("operator")
        listed = await api.get("/admin/topics", **mine)
        assert [topic["name"] for topic in listed["topics"]] == ["acme/sales/orders"]
        assert listed["more"] is False
        for method, path, body, status in [
            ("GET", "/admin/topics/acme/sales/orders", None, 200),
            ("GET", "/admin/topics/acme/other/t", None, 403),
            ("GET", "/admin/topics/acme/other/t/layout", None, 403),
            ("GET", "/admin/topics/acme/other/t/assignments", None, 403),
            ("POST", "/admin/topics", TOPIC | {"name": "acme/sales/new"}, 201),
            ("POST", "/admin/topics", TOPIC, 403),
            ("POST", "/admin/topics/acme/other/t/truncate", None, 403),
            ("DELETE", "/admin/topics/acme/other/t", None, 403),
            ("DELETE", "/admin/topics/acme/sales/new", None, 200),
            ("POST", "/admin/nodes/1/drain", None, 403),
            ("GET", "/admin/nodes", None, 200),
            ("GET", "/admin/events?wait_s=0.01", None, 403),
        ]:
            assert (method, path, (await api(method, path, body, **mine)).status) == (method, path, status)
        foreign, absent = await partition_of(api, "acme/other/t", **bearer("admin")), 999_999
        own = await partition_of(api, "acme/sales/orders", **bearer("admin"))
        for partition, status in [(own, 200), (foreign, 403), (absent, 403)]:
            answer = await api("GET", f"/admin/partitions/{partition}", **mine)
            assert (partition, answer.status, "acme/other" in answer.text) == (partition, status, False)

    served(tmp_path, monkeypatch, work)


async def partition_of(api: Api, topic: str, **headers: str) -> int:
    return int((await api.get(f"/admin/topics/{topic}", **headers))["stats"][0]["partition"])


FOREIGN = "acme/other/secret-topic"
OPEN_TO_TENANTS = {
    ("GET", "/admin/status"),
    ("GET", "/admin/metadata"),
    ("GET", "/admin/me"),
    ("GET", "/admin/nodes"),
    ("GET", "/admin/nodes/1"),
    ("GET", "/admin/ring"),
    ("GET", "/admin/config"),
    ("GET", "/admin/topics"),
    ("GET", "/admin/scopes"),
    ("GET", "/admin/transitions"),
}
"""Asked for without a topic, or with one of another tenant, all else is refused."""


@pytest.mark.parametrize("role", ["viewer", "operator"])
def test_no_operation_tells_a_token_with_a_prefix_of_another_tenants_topics(
    tmp_path: Path, monkeypatch: Patch, role: str
) -> None:
    async def work(api: Api) -> None:
        assert (await api("POST", "/admin/topics", TOPIC | {"name": FOREIGN})).status == 201
        foreign = await partition_of(api, FOREIGN)
        begin = ScopeBegin(scope="nightly-of-secret-topic")
        await api.bench.ok(Opcode.BEGIN, begin, ScopeBegun)
        await api("POST", "/admin/tokens", given("admin"))
        await api("POST", "/admin/tokens", given(role, prefix="rival/"), **bearer("admin"))
        api.bench.node.health.set_reason("damaged", f"topic {FOREIGN} is damaged")
        for method, path, body, _ in MATRIX:
            place = path.replace("public/default/t", FOREIGN).replace("partitions/7", f"partitions/{foreign}")
            answer = await api(method, place, body, **bearer(role))
            opened = (method, path.split("?")[0]) in OPEN_TO_TENANTS
            assert (path, answer.status) == (path, 200 if opened else 403), answer.text
            assert FOREIGN in place or "secret-topic" not in answer.text, (path, answer.text)
        status = await api.get("/admin/status", **bearer(role))
        assert (status["topics"], status["partitions"], status["counters"]) == (0, 0, {})
        assert (await api.get("/admin/status", **bearer("admin")))["reasons"] == [
            f"topic {FOREIGN} is damaged"
        ]
        ready = await api("GET", "/health/ready")
        assert "1 reasons" in ready.text
        assert "secret-topic" not in ready.text

    served(tmp_path, monkeypatch, work)


def test_without_tokens_only_this_machines_own_pages_get_in(tmp_path: Path, monkeypatch: Patch) -> None:
    async def work(api: Api) -> None:
        for host in ("evil.example", "evil.example:80", "[::1", ""):
            assert (await api("GET", "/admin/status", host=host)).status in {400, 403}
        port = urlsplit(api.address).port
        assert (await api("GET", "/admin/status", host=f"localhost:{port}")).status == 200
        foreign = await api("POST", "/admin/nodes/1/drain", origin="http://evil.example")
        assert (foreign.status, foreign.slug) == (403, "foreign-origin")
        own = await api("POST", "/admin/nodes/1/undrain", origin=api.address)
        assert own.status == 200

    served(tmp_path, monkeypatch, work)


def test_off_loopback_nobody_gets_in_without_a_token(tmp_path: Path, monkeypatch: Patch) -> None:
    async def work(api: Api) -> None:
        api.address = api.address.replace("0.0.0.0", "127.0.0.1")
        assert (await api("GET", "/health/ready")).status == 200
        for method, path, body, _ in MATRIX:
            assert (await api(method, path, body)).status == 401

    served(tmp_path, monkeypatch, work, http="0.0.0.0:0", insecure=True)


def lines(root: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (root / "audit" / "audit.log").read_text().splitlines()]


def test_every_change_leaves_a_line_and_no_read_does(tmp_path: Path, monkeypatch: Patch) -> None:
    async def work(api: Api) -> None:
        await tokens(api)
        await api("GET", "/admin/status", **bearer("viewer"))
        await api("POST", "/admin/topics", TOPIC, **bearer("operator"))
        await api("DELETE", PLACE, if_match='"1-1-1"', **bearer("operator"))
        await api("DELETE", PLACE, **bearer("operator"))

    served(tmp_path, monkeypatch, work)
    told = [(line["who"], line["role"], line["action"], line["status"]) for line in lines(tmp_path)]
    assert told == [
        ("local", "admin", "topic create", 201),
        ("local", "admin", "token create admin admin", 201),
        ("admin", "admin", "token create viewer viewer", 201),
        ("admin", "admin", "token create operator operator", 201),
        ("operator", "operator", "topic create", 409),
        ("operator", "operator", "topic delete", 412),
        ("operator", "operator", "topic delete", 200),
    ]
    assert all(bool(line["index"]) == (line["status"] < 300) for line in lines(tmp_path))
    assert (tmp_path / "audit" / "audit.log").stat().st_mode & 0o777 == 0o600


def test_the_audit_log_is_rotated_and_a_disk_that_refuses_is_told(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setattr(audit, "FILE_BYTES_MAX", 1_000)
    line = Line("who", "admin", "peer", "POST", "/" + "x" * 10_000, "action").ended(200, "d" * 10_000, 7)

    async def work() -> None:
        health = Health()
        health.phase = "serving"
        log = Audit(tmp_path, 1, health)
        for _ in range(40):
            await log.add(line)
        files = sorted(path.name for path in (tmp_path / "audit").iterdir())
        assert files == ["audit.log", *(f"audit.log.{number}" for number in range(1, audit.FILES_MAX))]
        assert all(path.stat().st_size <= 1_000 for path in (tmp_path / "audit").iterdir())
        monkeypatch.setattr(Audit, "_write", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left")))
        await log.add(line)
        assert health.state == "degraded"
        monkeypatch.undo()
        await log.add(line)
        assert health.state == "serving"
        await log.close()

    asyncio.run(work())


@contextmanager
def audited(root: Path) -> Iterator[tuple[Audit, Health, Path]]:
    """An audit log in use, and its file."""
    health = Health()
    health.phase = "serving"
    yield Audit(root, 1, health), health, root / "audit" / "audit.log"


def line_of(action: str) -> Line:
    return Line("who", "admin", "peer", "POST", "/path", action).ended(200, "", 7)


def actions_of(file: Path) -> list[str]:
    return [json.loads(line)["action"] for line in file.read_text().splitlines()]


def test_a_line_is_there_whole_or_not_at_all(tmp_path: Path, monkeypatch: Patch) -> None:
    async def work() -> None:
        with audited(tmp_path) as (log, health, file):
            await log.add(line_of("first"))
            monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:2]))
            await log.add(line_of("of which the disk took two bytes"))
            assert health.state == "degraded"
            monkeypatch.undo()
            assert actions_of(file) == ["first"]
            await log.add(line_of("second"))
            assert (health.state, actions_of(file)) == ("serving", ["first", "second"])
            await log.close()

    write = os.write
    asyncio.run(work())


def test_a_line_that_a_crash_tore_does_not_spoil_the_next(tmp_path: Path) -> None:
    async def work() -> None:
        with audited(tmp_path) as (log, _, file):
            file.parent.mkdir()
            file.write_text('{"time_ms": 17')
            await log.add(line_of("whole"))
            torn, whole = file.read_text().splitlines()
            assert (torn, json.loads(whole)["action"]) == ('{"time_ms": 17', "whole")
            await log.close()

    asyncio.run(work())


def test_a_line_is_written_though_nobody_waits_for_it_any_more(tmp_path: Path, monkeypatch: Patch) -> None:
    async def work() -> None:
        with audited(tmp_path) as (log, _, file):
            stalls = Event()
            monkeypatch.setattr(os, "fdatasync", lambda _: stalls.wait(20))
            waits = [asyncio.ensure_future(log.add(line_of(action))) for action in ("one", "two")]
            await asyncio.sleep(0.1)
            for task in waits:
                task.cancel()
            await asyncio.wait(waits)
            stalls.set()
            await log.close()
            assert actions_of(file) == ["one", "two"]

    asyncio.run(work())


def stream(address: str, path: str, last: str | None = None) -> list[str]:
    """The lines of a stream until it ends."""
    parts = urlsplit(address)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=20)
    connection.request("GET", path, headers={} if last is None else {"last-event-id": last})
    answer = connection.getresponse()
    assert answer.getheader("content-type", "").startswith("text/event-stream")
    try:
        return answer.read().decode().split("\n")
    finally:
        connection.close()


def test_events_are_streamed_and_taken_up_again(tmp_path: Path, monkeypatch: Patch) -> None:
    async def work(api: Api) -> None:
        listening = asyncio.ensure_future(asyncio.to_thread(stream, api.address, "/admin/events?limit=2"))
        for _ in range(2_000):
            if api.bench.node.cluster_events._listeners:
                break
            await asyncio.sleep(0.005)
        await api("POST", "/admin/topics", TOPIC)
        await api("DELETE", PLACE)
        told = await listening
        kinds = [line.removeprefix("event: ") for line in told if line.startswith("event: ")]
        assert kinds == ["topic_created", "topic_deleted"]
        data = [json.loads(line.removeprefix("data: ")) for line in told if line.startswith("data: ")]
        assert data[0]["name"] == "public/default/t"
        first = next(line.removeprefix("id: ") for line in told if line.startswith("id: "))
        again = await asyncio.to_thread(stream, api.address, "/admin/events?limit=1", first)
        assert "event: topic_deleted" in again
        lost = await asyncio.to_thread(stream, api.address, "/admin/events?wait_s=5", "999999")
        assert "event: missed" in lost
        # Who comes back behind the answer's id goes on; behind the former one it would be the same for ever.
        behind = next(line.removeprefix("id: ") for line in lost if line.startswith("id: "))
        coming = asyncio.to_thread(stream, api.address, "/admin/events?limit=1&wait_s=20", behind)
        going_on = asyncio.ensure_future(coming)
        await api("POST", "/admin/topics", TOPIC)
        assert "event: topic_created" in await going_on
        assert not api.bench.node.cluster_events._listeners

    served(tmp_path, monkeypatch, work)


def test_a_listener_that_does_not_listen_is_told_that_it_missed_some(monkeypatch: Patch) -> None:
    monkeypatch.setattr(cluster_events, "WAITING_MAX", 3)
    told = ClusterEvents()
    listener = told.listen(None)
    assert listener is not None
    state, _ = apply(EMPTY, entry(1, INIT))
    for index in range(2, 7):
        after, _ = apply(state, entry(index, create(f"public/default/t{index}")))
        told.applied(state, after, index)
        state = after
    assert listener.missed
    told.leads(1, 1, 7)
    told.leads(1, 1, 7)
    changed, _ = apply(state, entry(8, SetConfig(values={"topics_max": 5})))
    told.applied(state, changed, 8)
    late = told.listen(5)
    assert late is not None
    kinds = [late.waiting.get_nowait().kind for _ in range(late.waiting.qsize())]
    assert kinds == ["leader", "config"]
    for _ in range(cluster_events.LISTENERS_MAX - 2):
        assert told.listen(None) is not None
    assert told.listen(None) is None
