"""Reads and changes over HTTP, and everything that may be wrong with a request."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from ringfence.control.http import limits
from ringfence.control.http.limits import BODY_BYTES_MAX, CONCURRENT_MAX, DEPTH_MAX, is_too_deep
from ringfence.control.model.commands import InitCluster
from ringfence.control.model.entries import Entry, Proposal
from ringfence.control.model.ids import Index, NodeId, SessionId
from ringfence.control.model.state import EMPTY
from ringfence.control.runtime.process.errors import NoMajorityError
from ringfence.control.runtime.process.statuses import STATUS_OF
from ringfence.control.state_machines.metadata.state_machine import apply
from ringfence.native import messages
from ringfence.native.wire import Code, Opcode
from tests.fakes.admin_api import PLACE, TOPIC, Api, send, served

Patch = pytest.MonkeyPatch


def test_every_read_tells_what_the_metadata_has(tmp_path: Path, monkeypatch: Patch) -> None:
    async def work(api: Api) -> None:
        created = await api("POST", "/admin/topics", TOPIC | {"properties": {"team": "a"}})
        assert created.status == 201
        assert created.headers["location"] == PLACE
        topic = created.body["topic"]
        status = await api.get("/admin/status")
        assert (status["leader"], status["role"], status["node"], status["topics"]) == (1, "leader", 1, 1)
        assert (status["members"], status["failed"]) == (1, [])
        assert status["term"] >= 1
        assert status["index"] == int(created.headers["x-ringfence-index"])
        shown = await api.get(PLACE)
        assert (shown["topic"], shown["partitions"], shown["key"]) == (topic, 3, ["id"])
        assert [part["replicas"] for part in shown["stats"]] == [[1]] * 3
        assert shown["columns"] == TOPIC["columns"]
        layout = await api.get(f"{PLACE}/layout?linearizable=true")
        assert [(part["lo"], part["hi"]) for part in layout["partitions"]] == [
            (0, 21844),
            (21845, 43689),
            (43690, 65535),
        ]
        placed = await api.get(f"{PLACE}/assignments")
        assert (placed["state"], placed["pending"]) == ("ASSIGNED", [])
        assert {part["state"] for part in placed["partitions"]} == {"ONLINE"}
        assert (await api.get("/admin/ring"))["members"] == [1]
        assert [node["role"] for node in (await api.get("/admin/nodes"))["nodes"]] == ["leader"]
        one = await api.get("/admin/nodes/1")
        assert (one["life"], one["partitions"], one["replicas"]) == ("LIVE", 3, 3)
        assert (await api.get("/admin/metadata"))["voters"] == [1]
        assert (await api.get("/admin/config"))["values"]["topics_max"]["value"] == 10_000
        assert (await api.get("/admin/me")) == {"name": "local", "role": "admin", "prefix": ""}
        assert (await api.get("/admin/topics?property=team=a"))["topics"][0]["name"] == "public/default/t"
        assert (await api.get("/admin/topics?property=team=b"))["topics"] == []
        assert (await api.get("/admin/topics?prefix=x"))["topics"] == []
        described = await api.get("/openapi.json")
        assert set(described["paths"]) >= {"/admin/status", "/admin/topics", "/health/live", "/metrics"}

    served(tmp_path, monkeypatch, work)


def test_lists_go_on_where_they_ended(tmp_path: Path, monkeypatch: Patch) -> None:
    async def work(api: Api) -> None:
        for name in "abc":
            assert (await api("POST", "/admin/topics", TOPIC | {"name": name})).status == 201
        first = await api.get("/admin/topics?limit=2")
        assert ([topic["name"][-1] for topic in first["topics"]], first["more"]) == (["a", "b"], True)
        rest = await api.get("/admin/topics?limit=2&after=public/default/b")
        assert ([topic["name"][-1] for topic in rest["topics"]], rest["more"]) == (["c"], False)

    served(tmp_path, monkeypatch, work)


def test_a_change_with_a_key_is_done_once_and_answered_alike(tmp_path: Path, monkeypatch: Patch) -> None:
    async def work(api: Api) -> None:
        first = await api("POST", "/admin/topics", TOPIC, idempotency_key="k")
        again = await api("POST", "/admin/topics", TOPIC, idempotency_key="k")
        assert (first.status, first.text) == (again.status, again.text) == (201, first.text)
        assert "idempotency-replayed" not in first.headers
        assert again.headers["idempotency-replayed"] == "true"
        other = await api("POST", "/admin/topics", TOPIC | {"partitions": 2}, idempotency_key="k")
        assert (other.status, other.slug) == (422, "key-reused")
        assert (await api("POST", "/admin/topics", TOPIC)).slug == "already-exists"
        gone = await api("DELETE", PLACE, idempotency_key="d")
        assert gone.status == 200
        assert (await api("DELETE", PLACE, idempotency_key="d")).text == gone.text
        assert (await api("DELETE", PLACE)).slug == "unknown-topic"
        many = await asyncio.gather(
            *(api("POST", "/admin/topics", TOPIC | {"name": "u"}, idempotency_key="m") for _ in range(8))
        )
        assert {(answer.status, answer.text) for answer in many} == {(201, many[0].text)}
        for bad in ("", "x" * 201, "a b", "ä"):
            assert (await api("DELETE", PLACE, idempotency_key=bad)).status in {400, 422}

    served(tmp_path, monkeypatch, work)


def test_a_change_for_another_version_is_refused(tmp_path: Path, monkeypatch: Patch) -> None:
    async def work(api: Api) -> None:
        await api("POST", "/admin/topics", TOPIC)
        tag = (await api("GET", PLACE)).headers["etag"]
        wider = {"columns": [*TOPIC["columns"], {"name": "n", "type": "string"}]}  # type: ignore[misc]
        assert (await api("POST", f"{PLACE}/schemas", wider, if_match=tag)).status == 200
        assert (await api("POST", f"{PLACE}/truncate", if_match=tag)).status == 412
        assert (await api("DELETE", PLACE, if_match=tag)).slug == "too-old"
        assert (await api("DELETE", PLACE, if_match="W/" + tag)).slug == "bad-condition"
        assert (await api("DELETE", PLACE, if_match="*")).status == 200
        assert (await api("DELETE", PLACE, if_match="*")).status == 412
        node = (await api("GET", "/admin/nodes/1")).headers["etag"]
        assert (await api("POST", "/admin/nodes/1/promote", if_match=node)).status == 200
        assert (await api("POST", "/admin/nodes/1/auto", if_match=node)).status == 412
        assert (await api.get("/admin/nodes/1"))["vote"] == "ALWAYS"
        emptied = await api("POST", "/admin/nodes/1/drain")
        assert (emptied.status, "no other node takes partitions" in emptied.text) == (422, True)
        assert (await api.get("/admin/nodes/1"))["draining"] is False
        config = (await api("GET", "/admin/config")).headers["etag"]
        limit = {"values": {"topics_max": 7}}
        assert (await api("PATCH", "/admin/config", limit, if_match=config)).status == 200
        assert (await api("PATCH", "/admin/config", limit, if_match=config)).status == 412

    served(tmp_path, monkeypatch, work)


UNSOUND: list[tuple[str, str, Any, int]] = [
    ("GET", "/admin/nope", None, 404),
    ("GET", "/admin/topics/public/default/none", None, 404),
    ("GET", "/admin/topics/public/def%20ault/none", None, 422),
    ("GET", "/admin/nodes/99", None, 404),
    ("GET", "/admin/topics?property=team", None, 422),
    ("GET", "/admin/nodes/0", None, 422),
    ("GET", "/admin/nodes/99999999999999999999999", None, 422),
    ("GET", "/admin/topics?limit=0", None, 422),
    ("GET", "/admin/status?linearizable=maybe", None, 422),
    ("GET", "/admin/topics?prefix=" + "x" * 5_000, None, 414),
    ("PUT", "/admin/ring", {}, 405),
    ("POST", "/admin/nodes/1/fly", None, 422),
    ("POST", "/admin/nodes/99/drain", None, 404),
    ("DELETE", "/admin/nodes/99", None, 404),
    ("DELETE", "/admin/nodes/1", None, 422),
    ("POST", "/admin/topics", {}, 422),
    ("POST", "/admin/topics", TOPIC | {"partitions": 0}, 422),
    ("POST", "/admin/topics", TOPIC | {"partitions": 65_536}, 422),
    ("POST", "/admin/topics", TOPIC | {"replication": 5}, 409),
    ("POST", "/admin/topics", TOPIC | {"name": "a/b"}, 422),
    ("POST", "/admin/topics", TOPIC | {"name": "\ud800"}, 422),
    ("POST", "/admin/topics", TOPIC | {"typo": 1}, 422),
    ("POST", "/admin/topics", TOPIC | {"key": ["none"]}, 422),
    ("POST", "/admin/topics", TOPIC | {"columns": None}, 422),
    ("POST", "/admin/topics", TOPIC | {"columns": [{"name": "id", "type": "int65"}]}, 422),
    ("POST", "/admin/topics", {"name": "t", "schema_ipc": "AAAA"}, 422),
    ("POST", "/admin/topics", {"name": "t", "schema_ipc": "!"}, 422),
    ("POST", "/admin/topics", b"{", 422),
    ("POST", "/admin/topics", b"\xff", 400),
    ("POST", "/admin/topics", b"[" * (DEPTH_MAX + 1), 400),
    ("POST", "/admin/topics", b'{"name": ' + b"1" * 5_000 + b"}", 400),
    ("POST", "/admin/topics", b" " * (BODY_BYTES_MAX + 1), 413),
    ("PATCH", "/admin/config", {"values": {"nothing": 1}}, 422),
    ("PATCH", "/admin/config", {"values": {"voters_max": 2}}, 422),
    ("POST", "/admin/tokens", {"name": "x", "sha256": "0" * 64, "role": "king"}, 422),
    ("POST", "/admin/tokens", {"name": "x", "sha256": "0" * 64, "role": "viewer"}, 422),
    ("DELETE", "/admin/tokens/none", None, 404),
    ("GET", "/admin/events?limit=-1", None, 422),
]


def test_an_unsound_request_is_a_problem_with_a_reason_and_changes_nothing(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    async def work(api: Api) -> None:
        before = api.bench.node.proposer.state
        for method, path, given, status in UNSOUND:
            answer = await api(method, path, given)
            assert (method, path, given, answer.status) == (method, path, given, status), answer
            assert answer.slug
        assert api.bench.node.proposer.state == before

    served(tmp_path, monkeypatch, work)


def test_a_body_that_is_not_called_json_is_told_which_header_it_lacks(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    async def work(api: Api) -> None:
        body = json.dumps(TOPIC).encode()
        for headers, was in (
            ({"content_type": "application/x-www-form-urlencoded"}, "as 'application/x-www-form-urlencoded'"),
            ({"content_type": "text/plain"}, "as 'text/plain'"),
        ):
            refused = await api("POST", "/admin/topics", body, **headers)
            assert (refused.status, refused.slug) == (422, "invalid-request")
            why = f"it was sent {was}, so it was not read; send the header `content-type: application/json`"
            assert refused.body["detail"].startswith(f"body: {why}")
            assert refused.body["errors"] == [{"where": "body", "why": why}]
        bare = await asyncio.to_thread(send, api.address, "POST", "/admin/topics", body)
        assert bare.status in {201, 422}, bare
        if bare.status == 422:
            assert "without a content-type" in bare.body["detail"]
        plain = await api("POST", "/admin/topics", {"name": 7})
        assert "content-type" not in plain.text

    served(tmp_path, monkeypatch, work)


def test_limits_hold_before_anybody_looks(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setattr(limits, "BODY_S", 0.2)

    async def work(api: Api) -> None:
        many = {f"x-{number}": "y" for number in range(limits.HEADERS_MAX + 1)}
        assert (await api("GET", "/health/live", **many)).slug == "too-many-headers"
        slow = await asyncio.to_thread(
            send, api.address, "POST", "/admin/topics", None, {"content-length": "10"}
        )
        assert slow.slug == "body-too-slow"
        pieces = iter([b" " * 65_536] * 9)  # no length is named: counted as it comes
        chunked = await asyncio.to_thread(send, api.address, "POST", "/admin/topics", pieces, {})
        assert chunked.slug == "body-too-large"

    served(tmp_path, monkeypatch, work)


def test_who_sends_too_much_hears_it_after_the_last_byte(tmp_path: Path, monkeypatch: Patch) -> None:
    """An answer given early is lost with a connection that is reset: what still comes is read and dropped."""

    def late(address: str, head: bytes, body: bytes) -> bytes:
        parts = urlsplit(address)
        with socket.create_connection((parts.hostname or "", parts.port or 0), timeout=20) as sender:
            sender.sendall(b"POST /admin/topics HTTP/1.1\r\nhost: x\r\n" + head + b"\r\n")
            time.sleep(0.2)  # the refusal is out by now
            sender.sendall(body)
            time.sleep(0.2)  # a reset for that would be here by now
            sender.sendall(b"\r\n")
            return b"".join(iter(lambda: sender.recv(65_536), b""))

    async def work(api: Api) -> None:
        body = b" " * (BODY_BYTES_MAX + 1)
        named = b"content-length: %d\r\n" % (len(body) + 2)
        told = await asyncio.to_thread(late, api.address, named, body)
        assert told.startswith(b"HTTP/1.1 413 "), told
        assert told.rstrip().endswith(b"}"), told
        endless = b"content-length: 999999999\r\n"
        began = time.monotonic()
        told = await asyncio.to_thread(late, api.address, endless, body)
        assert told.startswith(b"HTTP/1.1 413 "), told
        assert time.monotonic() - began < limits.UNREAD_S + 10

    served(tmp_path, monkeypatch, work)


def test_too_many_at_once_are_told_to_come_back_and_probes_pass(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setattr(limits, "CONCURRENT_MAX", 2)
    assert CONCURRENT_MAX > 2

    async def work(api: Api) -> None:
        release = asyncio.Event()

        both = asyncio.Event()
        inside = 0

        async def wait() -> None:
            nonlocal inside
            inside += 1
            if inside == 2:
                both.set()
            await release.wait()

        monkeypatch.setattr(api.bench.node.proposer, "read_barrier", wait)
        waiting = [asyncio.ensure_future(api("GET", "/admin/ring?linearizable=true")) for _ in range(2)]
        await asyncio.wait_for(both.wait(), 20)
        busy = await api("GET", "/admin/ring")
        assert (busy.status, busy.slug) == (429, "busy")
        assert busy.headers["retry-after"]
        assert (await api("GET", "/health/live")).status == 200
        release.set()
        assert [answer.status for answer in await asyncio.gather(*waiting)] == [200, 200]

    served(tmp_path, monkeypatch, work)


def test_a_request_has_a_deadline_and_a_defect_costs_one_request(tmp_path: Path, monkeypatch: Patch) -> None:
    async def work(api: Api) -> None:
        async def never() -> None:
            await asyncio.sleep(60)

        monkeypatch.setattr(api.bench.node.proposer, "read_barrier", never)
        late = await api("GET", "/admin/ring?linearizable=true")
        assert (late.status, late.slug) == (504, "deadline")

        async def nobody() -> None:
            raise NoMajorityError(Code.TOO_FEW_REPLICAS, "no majority")

        monkeypatch.setattr(api.bench.node.proposer, "read_barrier", nobody)
        for answer in (
            await api("GET", "/admin/ring?linearizable=true"),
            await api("POST", "/admin/topics", TOPIC, idempotency_key="k"),
        ):
            assert (answer.status, answer.slug, answer.headers["retry-after"]) == (503, "no-majority", "1")

        async def broken() -> None:
            raise KeyError("secret detail")

        monkeypatch.setattr(api.bench.node.proposer, "read_barrier", broken)
        defect = await api("GET", "/admin/ring?linearizable=true")
        assert (defect.status, defect.slug) == (500, "internal")
        assert "secret" not in defect.text
        assert (await api("GET", "/admin/ring")).status == 200

    served(tmp_path, monkeypatch, work, request_ms=2_000)


def test_an_order_that_fails_is_told_with_202_and_the_change_stands(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    async def work(api: Api) -> None:
        api.bench.native.refuses["open"] = "no room"
        created = await api("POST", "/admin/topics", TOPIC, idempotency_key="k")
        assert created.status == 202
        assert "no room" in created.body["pending"][0]
        assert (await api("POST", "/admin/topics", TOPIC, idempotency_key="k")).status == 201
        assert (await api.get("/admin/topics"))["topics"][0]["name"] == "public/default/t"

    served(tmp_path, monkeypatch, work)


def test_a_table_is_in_progress_until_its_owner_has_opened_it(tmp_path: Path, monkeypatch: Patch) -> None:
    async def work(api: Api) -> None:
        api.bench.native.holds.add("open")
        creating = asyncio.ensure_future(api("POST", "/admin/topics", TOPIC))
        for _ in range(2_000):
            if api.bench.native.held:
                break
            await asyncio.sleep(0.005)
        told = await api.get(f"{PLACE}/assignments")
        assert told["state"] == "IN_PROGRESS"
        assert [order["node"] for order in told["pending"]] == [1, 1, 1]
        assert {part["state"] for part in told["partitions"]} == {"ASSIGNED"}
        assert not creating.done()
        api.bench.native.release()
        assert (await creating).status == 201
        assert (await api.get(f"{PLACE}/assignments"))["state"] == "ASSIGNED"

    served(tmp_path, monkeypatch, work)


def test_below_its_minimum_size_a_cluster_takes_no_topic_and_says_so(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    async def work(api: Api) -> None:
        ids: dict[str, Any] = {"cluster": b"c" * 16, "history": b"h" * 16, "store": b"s" * 16}
        begun = InitCluster(node=NodeId(1), nodes_min=3, **ids)
        small, _ = apply(EMPTY, Entry(Index(1), 1, Proposal(SessionId(0), 0, 0, begun)))
        monkeypatch.setattr(api.bench.node.proposer.replica, "state", small)
        refused = await api("POST", "/admin/topics", TOPIC)
        assert (refused.status, refused.slug) == (409, "too-few-replicas")
        assert "3" in refused.body["detail"]
        assert (await api.get("/admin/status"))["table"] == "UNASSIGNED"
        monkeypatch.undo()

    served(tmp_path, monkeypatch, work)


def test_a_list_over_the_data_socket_is_linearizable_when_asked(tmp_path: Path, monkeypatch: Patch) -> None:
    async def work(api: Api) -> None:
        asked = 0

        async def read_barrier() -> None:
            nonlocal asked
            asked += 1

        monkeypatch.setattr(api.bench.node.proposer, "read_barrier", read_barrier)
        await api.bench.ok(Opcode.TOPIC_LIST, messages.TopicList(), messages.Topics)
        assert asked == 0
        await api.bench.ok(Opcode.TOPIC_LIST, messages.TopicList(linearizable=True), messages.Topics)
        assert asked == 1
        monkeypatch.undo()

    served(tmp_path, monkeypatch, work)


def test_every_refusal_of_the_runtime_has_a_status() -> None:
    never = {
        Code.BAD_HEADER,
        Code.UNKNOWN_OPCODE,
        Code.BODY_CRC,
        Code.WRONG_SLOT,
        Code.ZERO_ROWS,
        Code.SEQUENCE_GAP,
        Code.FORGOTTEN,
        Code.AHEAD,
        Code.TRUNCATED,
        Code.RESUME_UNKNOWN,
    }
    assert set(Code) - never == set(STATUS_OF), "of the data plane only, or in the table"
    assert all(400 <= status < 600 for status in STATUS_OF.values())


def test_depth_is_counted_outside_of_texts_and_in_linear_time() -> None:
    deep = b"[" * (DEPTH_MAX + 1)
    assert is_too_deep(deep)
    assert is_too_deep(b'{"a":' * (DEPTH_MAX + 1))
    assert not is_too_deep(json.dumps({"a": deep.decode()}).encode())
    assert not is_too_deep(b"[]," * 1_000)
    assert not is_too_deep(b"[" * DEPTH_MAX + b"]" * DEPTH_MAX + b"[]")
    assert is_too_deep(b'"' + b'\\"' * 100_000 + b'"' + deep)
    assert not is_too_deep(b'"' + b'\\"' * 100_000 + deep)
