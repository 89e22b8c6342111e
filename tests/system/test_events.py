"""What a running cluster tells of changes: events in order at every node, one line of audit for each."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple, Self
from urllib.parse import urlsplit

import pytest

from ringfence.control.cli.exit_codes import Exit
from tests.fakes.admin_api import PLACE, TOPIC, Answer, send
from tests.harness.admin_cluster import AdminCluster
from tests.harness.processes import cli, until

TOPIC_NAME = "public/default/t"
EVENTS = 20
"""More than a node of three tells of in a life of seconds."""
OTHERS = {"leader", "config"}
"""Kinds of what nobody here asks for."""


class Event(NamedTuple):
    number: int
    kind: str
    values: dict[str, Any]


class Stream:
    """Events of one node, as they come, until it is closed."""

    def __init__(self, address: str, token: str, last: int | None = None) -> None:
        parts = urlsplit(address)
        self._connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=60)
        headers = {"authorization": f"Bearer {token}"}
        if last is not None:
            headers["last-event-id"] = str(last)
        self._connection.request("GET", "/admin/events", headers=headers)
        self._answer = self._connection.getresponse()
        assert self._answer.status == 200, self._answer.read()
        self.told: list[Event] = []
        self.missed = False
        self._thread = Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._connection.sock is not None:
            self._connection.sock.shutdown(2)
        self._thread.join(30)
        assert not self._thread.is_alive()
        self._connection.close()

    def kinds(self) -> list[str]:
        return [event.kind for event in self.told]

    def _run(self) -> None:
        fields: dict[str, str] = {}
        try:
            for line in self._answer:
                name, colon, value = line.decode().rstrip("\n").partition(": ")
                if colon:
                    fields[name] = value
                elif fields.get("event") == "missed":
                    self.missed = True
                elif "data" in fields:
                    self.told.append(Event(int(fields["id"]), fields["event"], json.loads(fields["data"])))
                if not colon:
                    fields = {}
        except (OSError, ValueError, http.client.HTTPException):
            pass  # closed under it


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[AdminCluster]:
    made = AdminCluster(tmp_path)
    try:
        made.three.start()
        yield made
    finally:
        made.three.kill_all()


class Office:
    """A cluster whose changes are asked for by name, at a node that is named."""

    def __init__(self, desk: AdminCluster, folder: Path) -> None:
        self.desk, self.folder = desk, folder / "tokens"
        self.secrets: dict[str, str] = {}
        self.folder.mkdir()
        self.create_token("root", "admin", 0)

    def create_token(self, name: str, role: str, place: int) -> None:
        known = ("--token-file", str(self.folder / "root")) if self.secrets else ()
        file = self.folder / name
        arguments = ("token", "create", name, "--role", role, "--to", str(file))
        done = cli(*arguments, "--http", self.desk.doors[place], *known)
        assert done.returncode == Exit.OK, done.stderr
        self.secrets[name] = file.read_text().strip()

    def ask(self, place: int, who: str, method: str, path: str, given: Any = None, **more: str) -> Answer:
        headers = {"authorization": f"Bearer {self.secrets[who]}", "content-type": "application/json"}
        headers |= {name.replace("_", "-"): value for name, value in more.items()}
        body = None if given is None else json.dumps(given).encode()
        return send(self.desk.doors[place], method, path, body, headers)

    def rebalance(self, place: int) -> dict[str, Any]:
        told: dict[str, Any] = self.ask(place, "root", "GET", "/admin/rebalance").body
        return told

    def until_idle(self) -> dict[str, Any]:
        until(lambda: self.rebalance(0)["state"] == "IDLE", what="the end of the run")
        return self.rebalance(0)

    def lines(self, place: int) -> list[dict[str, Any]]:
        """Of the node's audit log."""
        file = self.desk.three.nodes[place].data / "audit" / "audit.log"
        return [json.loads(line) for line in file.read_text().splitlines()]

    def everything_told(self) -> str:
        """Logs of all nodes, and of their audits."""
        nodes = self.desk.three.nodes
        files = [file for node in nodes for file in (node.log, *(node.data / "audit").iterdir())]
        return "\n".join(file.read_text() for file in files)


def expected(part: dict[str, Any], goal: int, end: int) -> list[tuple[str, dict[str, Any]]]:
    """Of the story: what each node tells of it, in this order."""
    number, home = part["partition"], part["owner"]
    return [
        ("token_created", {"name": "ops", "role": "operator"}),
        ("topic_created", {"name": TOPIC_NAME, "partitions": 1}),
        ("owners", {"moved": [{"partition": number, "from": home, "to": goal}]}),
        ("node", {"node": goal, "draining": True}),
        ("owners", {"moved": [{"partition": number, "from": goal, "to": end}]}),
        ("node", {"node": goal, "draining": False}),
        ("token_revoked", {"name": "ops"}),
    ]


def check_told(stream: Stream, wanted: list[tuple[str, dict[str, Any]]]) -> None:
    told = [event for event in stream.told if event.kind not in OTHERS]
    assert [event.kind for event in told] == [kind for kind, _ in wanted], stream.told
    for event, (_, values) in zip(told, wanted, strict=True):
        assert values.items() <= event.values.items(), event
    numbers = [event.number for event in stream.told]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    indexes = [event.values["index"] for event in stream.told]
    assert indexes == sorted(indexes)


@pytest.mark.timeout(180)
def test_every_change_is_told_in_order_by_every_node_and_audited_once(
    desk: AdminCluster, tmp_path: Path
) -> None:
    """And a stream that broke is taken up where it ended."""
    three, office = desk.three, Office(desk, tmp_path)
    root = office.secrets["root"]
    leader = three.leader()
    with Stream(desk.doors[0], root) as whole, Stream(desk.doors[1], root) as other:
        with Stream(desk.doors[2], root) as broken:
            office.create_token("ops", "operator", 0)
            assert office.ask(1, "ops", "POST", "/admin/topics", {**TOPIC, "partitions": 1}).status == 201
            until(lambda: "topic_created" in broken.kinds(), what="its event")
        [part] = office.ask(1, "ops", "GET", f"{PLACE}/assignments").body["partitions"]
        place = next(at for at in range(3) if at != leader and three.id(at) != part["owner"])
        goal = three.id(place)
        move = {"action": "move", "moves": [{"partition": part["partition"], "nodes": [goal]}]}
        assert office.ask(2, "ops", "POST", "/admin/rebalance", move).status == 403
        assert office.ask(2, "root", "POST", "/admin/rebalance", move).status == 201
        assert office.until_idle()["outcome"] == "DONE"
        assert office.ask(0, "ops", "DELETE", PLACE, if_match='"1-1-1"').status == 412
        assert office.ask(1, "ops", "POST", f"/admin/nodes/{goal}/drain").status == 200
        [drained] = office.until_idle()["moves"]
        assert office.ask(1, "ops", "POST", f"/admin/nodes/{goal}/undrain").status == 200
        assert office.ask(2, "root", "DELETE", "/admin/tokens/ops").status == 200
        until(lambda: "token_revoked" in whole.kinds() and "token_revoked" in other.kinds(), what="the last")
        wanted = expected(part, goal, drained["to"][0])
        check_told(whole, wanted)
        check_told(other, wanted)
        with Stream(desk.doors[2], root, broken.told[-1].number) as again:
            until(lambda: "token_revoked" in again.kinds(), what="the rest of the story")
    assert not again.missed
    broken.told += again.told
    check_told(broken, wanted)

    def shown(at: int) -> list[tuple[str, str, str, int]]:
        return [(line["who"], line["role"], line["action"], line["status"]) for line in office.lines(at)]

    assert shown(0) == [
        ("local", "admin", "token create root admin", 201),
        ("root", "admin", "token create ops operator", 201),
        ("ops", "operator", "topic delete", 412),
    ]
    assert shown(1) == [
        ("ops", "operator", "topic create", 201),
        ("ops", "operator", "node drain", 200),
        ("ops", "operator", "node undrain", 200),
    ]
    assert shown(2) == [
        ("ops", "operator", "start_rebalance", 403),
        ("root", "admin", "rebalance start move", 201),
        ("root", "admin", "token revoke ops", 200),
    ]
    lines = [line for at in range(3) for line in office.lines(at)]
    assert all(bool(line["index"]) == (line["status"] < 300) for line in lines), lines
    for at in range(3):
        assert {line["node"] for line in office.lines(at)} == {three.id(at)}
    assert {line["peer"].partition(":")[0] for line in lines} == {"127.0.0.1"}
    drains = [line["path"] for line in office.lines(1)[1:]]
    assert drains == [f"/admin/nodes/{goal}/drain", f"/admin/nodes/{goal}/undrain"]
    told = office.everything_told() + repr(whole.told)
    for secret in office.secrets.values():
        assert secret not in told
        assert sha256(secret.encode()).hexdigest() not in told


@pytest.mark.timeout(120)
def test_a_stream_of_a_life_that_is_over_is_not_taken_up_as_if_nothing_was_missed(
    desk: AdminCluster, tmp_path: Path
) -> None:
    three, office = desk.three, Office(desk, tmp_path)
    root, place = office.secrets["root"], (three.leader() + 1) % 3
    other = 3 - place - three.leader()
    with Stream(desk.doors[place], root) as stream:
        assert office.ask(other, "root", "POST", "/admin/topics", {**TOPIC, "name": "before"}).status == 201
        until(lambda: "topic_created" in stream.kinds(), what="its event")
    last = stream.told[-1].number
    three.nodes[place].kill()
    made = office.ask(other, "root", "POST", "/admin/topics", {**TOPIC, "name": "missed"})
    assert made.status in {201, 202}, made
    three.nodes[place].start()
    three.until_whole()
    # Its new life tells of more than the old one had told.
    for number in range(EVENTS):
        config = {"values": {"reverse_hold_s": number}}
        assert office.ask(other, "root", "PATCH", "/admin/config", config, if_match="*").status == 200
    with Stream(desk.doors[place], root, last) as again:
        until(lambda: again.missed or again.told, 60, "an answer")
    assert again.missed, again.told
    assert again.told == []
