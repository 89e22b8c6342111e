"""The admin API of running nodes: requests drawn from its description, and what a killed leader leaves."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path

import pytest

from ringfence.control.cli.exit_codes import Exit
from ringfence.control.cli.program import run as run_command
from tests.fakes.admin_api import TOPIC, Answer, send
from tests.fakes.api_roles import MATRIX
from tests.harness.admin_http import ask, open_raw, read_until_closed, with_http
from tests.harness.cluster import ThreeNodes
from tests.harness.processes import NodeProcess, cli, until

SCHEMATHESIS = Path(sys.executable).parent / "schemathesis"
SECRET = "rf_for_tests_" + "0" * 40
BEARER = {"authorization": f"Bearer {SECRET}"}
CHECKS = """
[checks.negative_data_rejection]
expected-statuses = [400, 401, 403, 404, 405, 406, 408, 409, 412, 413, 414, 415, 422, 428, 429, 431]
"""
PLACE = """
[parameters]
"path.tenant" = "public"
"path.namespace" = "default"
"path.name" = "t"
"path.number" = 1
"""


def fuzz(root: Path, address: str, phases: str, *, examples: int, config: str = "") -> None:
    """Requests out of /openapi.json, sound and unsound; AssertionError tells what was found."""
    path = root / "schemathesis.toml"
    path.write_text(CHECKS + config)
    # Whether a sound form is a sound request (a key column that exists, say) the description cannot tell; and
    # a verb that is none is 422 at /admin/rebalance/{verb}, also where that path can be read.
    done = subprocess.run(
        [
            str(SCHEMATHESIS),
            "--config-file",
            str(path),
            "run",
            f"{address}/openapi.json",
            "--header",
            f"Authorization: Bearer {SECRET}",
            "--exclude-path",
            "/admin/events",
            "--exclude-checks",
            "positive_data_acceptance,unsupported_method",
            "--max-examples",
            str(examples),
            "--phases",
            phases,
            "--seed",
            "7",
            "--request-timeout",
            "30",
            "--warnings",
            "off",
            "--suppress-health-check",
            "all",
        ],
        cwd=root,
        capture_output=True,
        text=True,
        timeout=840,
        check=False,
    )
    shown = "\n".join(line[:300] for line in done.stdout.splitlines())
    assert done.returncode == 0, f"{shown[-8_000:]}\n{done.stderr[-2_000:]}"


def let_in(address: str) -> None:
    token = {"name": "root", "sha256": sha256(SECRET.encode()).hexdigest(), "role": "admin"}
    assert ask(address, "POST", "/admin/tokens", token).status == 201


def is_sound(address: str, log: Path) -> None:
    """It serves, and nothing it was asked was a defect of its own."""
    assert ask(address, "GET", "/health/ready", **BEARER).status == 200
    assert "request failed" not in log.read_text()
    assert "Traceback" not in log.read_text()


def crowd(address: str) -> None:
    """Many at once, many of them the same: each gets an answer with a reason, and one of them is first."""

    def create(name: str, **headers: str) -> Answer:
        return ask(address, "POST", "/admin/topics", {**TOPIC, "name": name}, **headers, **BEARER)

    with ThreadPoolExecutor(100) as pool:
        told = list(pool.map(lambda _: create("crowded"), range(200)))
        keyed = list(pool.map(lambda _: create("once", idempotency_key="c"), range(200)))
    assert [answer.status for answer in told].count(201) == 1
    assert {answer.status for answer in told} <= {201, 409, 429}
    assert {answer.status for answer in keyed} <= {201, 429}
    assert len({answer.text for answer in keyed if answer.status == 201}) == 1


def huge(address: str) -> None:
    """Too much of each kind, in one piece and without an end: 4xx with a reason, and nothing comes of it."""
    deep = b'{"name": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    wide = json.dumps({**TOPIC, "properties": {"a": "x" * (1 << 20)}}).encode()
    kind = {"content-type": "application/json", **BEARER}
    many = {f"x-{number}": "1" for number in range(100)}
    endless = (bytes(1 << 16) for _ in range(1 << 7))
    columns = [{"name": f"c{number}", "type": "int64"} for number in range(8_000)]
    told = [
        send(address, "POST", "/admin/topics", deep, kind),
        send(address, "POST", "/admin/topics", wide, kind),
        send(address, "POST", "/admin/topics", endless, kind),
        send(address, "POST", "/admin/topics", json.dumps({**TOPIC, "columns": columns}).encode(), kind),
        send(address, "GET", "/admin/topics?prefix=" + "x" * 5_000, None, BEARER),
        send(address, "GET", "/admin/topics", None, {**BEARER, **many}),
        ask(address, "POST", "/admin/topics", TOPIC, idempotency_key="k" * 500, **BEARER),
    ]
    assert [answer.status for answer in told] == [400, 413, 413, 422, 414, 431, 422]
    assert all(answer.slug for answer in told), "each says why"
    port = int(address.rpartition(":")[2])
    for head in (b"GET /", b"GET /admin/status HTTP/1.1\r\nx-long: "):
        assert read_until_closed(open_raw(port, head + b"y" * 16_500)).startswith(b"HTTP/1.1 400 ")
    shown = ask(address, "GET", "/admin/topics?limit=1000", **BEARER).body["topics"]
    assert [topic["name"] for topic in shown] == ["public/default/t"]


def test_no_request_to_a_node_finds_a_defect(tmp_path: Path) -> None:
    node = NodeProcess(tmp_path / "a")
    address = with_http(node)
    with node:
        let_in(address)
        assert ask(address, "POST", "/admin/topics", TOPIC, **BEARER).status == 201
        huge(address)
        fuzz(tmp_path, address, "coverage,fuzzing,stateful", examples=3, config=PLACE)
        crowd(address)
        is_sound(address, node.log)


def test_no_endpoint_lets_anybody_in_who_shows_no_sound_token(tmp_path: Path) -> None:
    """Missing, wrong, of another scheme, expired, under-privileged: nothing happens."""
    node = NodeProcess(tmp_path / "a")
    address = with_http(node)
    with node:
        let_in(address)
        assert ask(address, "POST", "/admin/topics", TOPIC, **BEARER).status == 201
        secrets = {name: f"rf_of_{name}_" + "1" * 40 for name in ("viewer", "operator", "late")}
        for name, secret in secrets.items():
            role, until_ms = ("admin", {"expires_ms": 1}) if name == "late" else (name, {})
            token = {"name": name, "sha256": sha256(secret.encode()).hexdigest(), "role": role, **until_ms}
            assert ask(address, "POST", "/admin/tokens", token, **BEARER).status == 201
        before = ask(address, "GET", "/admin/metadata", **BEARER).body["index"]
        late = {"authorization": f"Bearer {secrets['late']}"}
        nobody = [{}, {"authorization": "Bearer rf_wrong"}, {"authorization": f"Basic {SECRET}"}, late]
        ranks = ["viewer", "operator", "admin"]
        for method, path, body, role in MATRIX:
            for headers in nobody:
                refused = ask(address, method, path, body, **headers)
                assert (method, path, refused.status, refused.slug) == (method, path, 401, "unauthorized")
                assert ("expired" in refused.body["detail"]) == (headers is late), refused
            for weaker in ranks[: ranks.index(role)]:
                refused = ask(address, method, path, body, authorization=f"Bearer {secrets[weaker]}")
                assert (method, path, refused.status, refused.slug) == (method, path, 403, "forbidden")
        assert ask(address, "GET", "/admin/metadata", **BEARER).body["index"] == before
        audit = (tmp_path / "a" / "audit" / "audit.log").read_text()
        assert not any(secret in audit + node.log.read_text() for secret in (SECRET, *secrets.values()))


def test_a_change_with_a_key_survives_the_leader_and_any_node_takes_it(tmp_path: Path) -> None:
    three = ThreeNodes(tmp_path)
    addresses = [with_http(node) for node in three.nodes]
    try:
        three.start()
        let_in(addresses[1])
        until(lambda: ask(addresses[2], "GET", "/admin/me", **BEARER).status == 200, what="the token on all")
        status = [ask(address, "GET", "/admin/status", **BEARER).body for address in addresses]
        leader = next(place for place in range(3) if status[place]["role"] == "leader")
        assert {told["leader"] for told in status} == {status[leader]["node"]}
        term = status[leader]["term"]
        others = [place for place in range(3) if place != leader]

        def create(place: int, name: str) -> Answer:
            given = {**TOPIC, "name": name}
            key = f"key-{name}"
            return ask(addresses[place], "POST", "/admin/topics", given, idempotency_key=key, **BEARER)

        first = create(leader, "kept")
        assert first.status == 201
        three.nodes[leader].kill()
        # The answer is the dead leader's, from either of the others; a new change waits for the next leader.
        until(lambda: create(others[0], "kept").text == first.text, what="the first answer again")
        assert create(others[1], "kept").headers["idempotency-replayed"] == "true"
        until(lambda: create(others[1], "new").status in {201, 202}, what="a change under the next leader")
        now = ask(addresses[others[0]], "GET", "/admin/status?linearizable=true", **BEARER).body
        assert now["term"] > term
        assert now["leader"] != status[leader]["node"]
        shown = ask(addresses[others[0]], "GET", "/admin/topics?linearizable=true&limit=1000", **BEARER).body
        names = [topic["name"] for topic in shown["topics"]]
        assert names.count("public/default/kept") == names.count("public/default/new") == 1
        three.nodes[leader].restart()
        until(lambda: create(leader, "kept").text == first.text, what="the first answer from who gave it")
        # Last, for an admin may take votes away and change limits.
        fuzz(tmp_path, addresses[others[1]], "fuzzing", examples=2)
        for place in range(3):
            is_sound(addresses[place], three.nodes[place].log)
    finally:
        three.kill_all()


def test_the_command_line_goes_through_the_admin_api(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    node = NodeProcess(tmp_path / "a")
    address = with_http(node)
    token = tmp_path / "root.token"

    def run(*arguments: str, code: int = 0, let: bool = True) -> str:
        options = ["--http", address, *(["--token-file", str(token)] if let else [])]
        ended = run_command([*arguments, *options])
        said = capsys.readouterr()
        assert ended == code, (arguments, ended, said)
        return said.out or said.err

    with node:
        run("token", "create", "root", "--role", "admin", "--to", str(token), let=False)
        assert token.stat().st_mode & 0o777 == 0o600
        secret = token.read_text().strip()
        assert secret not in run("token", "list")
        assert "send `Authorization" in run("token", "list", code=Exit.REFUSED, let=False)
        made = run("token", "create", "eye", "--role", "viewer", "--expires", "1h", "--json")
        eye = json.loads(made)["token"]
        assert ask(address, "GET", "/admin/me", authorization=f"Bearer {eye}").body["name"] == "eye"
        created = json.loads(run("topic", "create", "t", "--column", "id:int64!", "--key", "id", "--json"))
        show = ("topic", "show", "t", "--json")
        by_socket = json.loads(cli(*show, "--token-file", str(token), address=node.address).stdout)
        assert cli(*show, address=node.address).returncode == Exit.REFUSED, "that door asks for it, too"
        by_http = json.loads(run("topic", "show", "t", "--json"))
        for told in (by_http, created):
            more = [(part.pop("replicas"), part.pop("lag_records")) for part in told["partitions"]]
            assert more == [([1], 0)], "this door tells it, too"
        assert by_http == by_socket
        assert {**created, "created": False} == by_socket
        assert run("topic", "create", "t", "--column", "id:int64!", code=Exit.REFUSED)
        run("topic", "create", "t", "--column", "id:int64!", "--key", "id", "--exist-ok")
        run("topic", "truncate", "t", "--yes")
        assert "t " in run("topic", "list")
        status = json.loads(run("status", "--json"))
        assert (status["leader"], status["role"], status["topics"]) == (1, "leader", 1)
        told = json.loads(cli("status", "--json", "--token-file", str(token), address=node.address).stdout)
        assert (told["leader"], told["term"], told["role"]) == (1, status["term"], "leader")
        assert "no other node takes partitions" in run("node", "drain", "1", "--wait", code=Exit.REFUSED)
        assert json.loads(run("node", "list", "--json"))["nodes"][0]["draining"] is False
        looks = [
            json.loads(line)
            for line in run("top", "--count", "2", "--interval", "0.2", "--json").splitlines()
        ]
        assert looks[1]["nodes"][0]["state"] == "serving"
        assert "rows_s" in looks[1]["total"]
        assert "leads term" in run("top", "--count", "1")
        run("topic", "delete", "t", "--yes")
        assert run("topic", "show", "t", code=Exit.REFUSED)
        run("token", "revoke", "eye")
        for path in (tmp_path / "a").rglob("*"):
            assert not path.is_file() or secret.encode() not in path.read_bytes()
