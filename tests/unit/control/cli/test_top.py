"""`ringfence top`: what is under way and what it costs, out of what the admin API tells."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ringfence.control.cli import endpoint, top
from ringfence.control.cli.program import run
from ringfence.native.errors import NotFoundError, RetriableError

MOVE = {"partition": 7, "from": [1], "to": [2], "rows": 10, "attempts": 1, "error": "", "gap_us": None}

NODE = {
    "node": 3,
    "life": "LIVE",
    "role": "voter",
    "draining": False,
    "in_ring": True,
    "partitions": 2,
    "replicas": 5,
    "http": ["http://127.0.0.1:1"],
}


def told(size: int) -> dict[str, Any]:
    return {
        "run": 4,
        "action": "drain",
        "node": 1,
        "state": "RUNNING",
        "outcome": "",
        "eta_s": 3.0,
        "counts": {"COMMITTED": 1, "DUAL_WRITE": 1},
        "moves": [{**MOVE, "state": "COPYING", "bytes": size}, {**MOVE, "state": "COMMITTED", "bytes": 9}],
        "loads": [
            {
                "node": 1,
                "bytes_s": 2_000_000,
                "requests_s": 30,
                "busiest": [{"partition": 7, "bytes_s": 1_500_000, "requests_s": 20}],
            }
        ],
        "policy": "loads node 1: 2e+06 B/s: max/min inf is above 2",
    }


PART = {"partition": 9, "owner": 3, "start_offset": 100, "bytes": 4_000, "lag_records": 12}

OLDER = {name: value for name, value in NODE.items() if name != "replicas"}
"""As a node tells it that has no such field."""


class Fake:
    """An admin API whose copy goes on by a megabyte a look."""

    size = 0

    def __init__(self, *_: Any, **__: Any) -> None:
        """Any address will do."""

    def get(self, path: str) -> dict[str, Any]:
        if path == "/admin/nodes":
            return {"leader": 1, "term": 2, "nodes": [NODE]}
        if path == f"/admin/topics?stats=true&limit={top.TOPICS_MAX}":
            return {"topics": [self.get("/admin/topics/public/default/t")], "more": False}
        if path == "/admin/topics/public/default/t":
            return {"name": "public/default/t", "stats": [PART | {"end_offset": 100 + Fake.size}]}
        if path == "/admin/status":
            return {"state": "degraded", "reasons": ["disk full: no space"], "counters": {}, "index": 5}
        assert path == "/admin/rebalance"
        Fake.size += 1_000_000
        return told(Fake.size)


def test_moves_are_shown_with_their_rates_and_loads_with_the_busiest(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(top, "Admin", Fake)
    assert run(["top", "--count", "2", "--interval", "0.2", "--json"]) == 0
    first, second = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert (first["moves"][0]["bytes_s"], len(first["moves"])) == (None, 1)
    assert 0 < second["moves"][0]["bytes_s"] <= 1_000_000 / 0.2
    assert (second["rebalance"]["counts"], second["policy"]) == (told(0)["counts"], told(0)["policy"])
    [part] = second["partitions"]
    assert (part["rows"], part["lag_records"], part["owner"]) == (1_000_000, 12, 3)
    assert (first["partitions"][0]["rows_s"], part["bytes_s"]) == (None, 0.0)
    assert 0 < part["rows_s"] <= 1_000_000 / 0.2
    assert run(["top", "--count", "1", "--topic", "t"]) == 0
    said = capsys.readouterr().out
    for part in (
        "public/default/t",
        "lag",
        "rebalance 4: drain RUNNING",
        "node 3: disk full: no space",
        "COPYING",
        "busiest 7 1.5 MB/s",
        "30 batches/s",
        "max/min inf",
    ):
        assert part in said, said


def test_a_node_of_an_older_program_is_shown_without_its_replicas(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Older(Fake):
        def get(self, path: str) -> dict[str, Any]:
            told = {"leader": 1, "term": 2, "nodes": [OLDER]}
            more = {"cluster": "c", "node": 3, "hash_index": 1, "hash": "h"}
            return told if path == "/admin/nodes" else {**super().get(path), **more}

    monkeypatch.setattr(top, "Admin", Older)
    monkeypatch.setattr(endpoint, "Admin", Older)
    for command in (["top", "--count", "1"], ["node", "list"]):
        assert run(command) == 0, command
        assert "voter" in capsys.readouterr().out


NAMES = [f"public/default/t{number}" for number in range(5)]


@pytest.mark.parametrize(("is_older", "requests"), [(False, 1), (True, 6)])
def test_one_request_returns_the_topics_of_a_sample(
    is_older: bool, requests: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A node of an older program lists names only; one of the topics is deleted before it is asked for."""
    asked: list[str] = []

    class Many(Fake):
        def get(self, path: str) -> dict[str, Any]:
            if not path.startswith("/admin/topics"):
                return super().get(path)
            asked.append(path)
            topics = [
                {"name": name, "stats": [PART | {"partition": number, "end_offset": 100}]}
                for number, name in enumerate(NAMES)
            ]
            if "?" not in path:
                if path.endswith("t3"):
                    raise NotFoundError("there is no such topic")
                return next(topic for topic in topics if path.endswith(str(topic["name"])))
            return {"topics": [{"name": name} for name in NAMES] if is_older else topics, "more": False}

    monkeypatch.setattr(top, "Admin", Many)
    assert run(["top", "--count", "1", "--json"]) == 0
    shown = [part["topic"] for part in json.loads(capsys.readouterr().out)["partitions"]]
    assert shown == [name for name in NAMES if not (is_older and name.endswith("t3"))]
    assert len(asked) == requests, asked


def test_a_cluster_that_tells_of_no_moves_is_shown_without(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Silent(Fake):
        def get(self, path: str) -> dict[str, Any]:
            if path == "/admin/rebalance":
                raise RetriableError("the node is starting")
            return super().get(path)

    monkeypatch.setattr(top, "Admin", Silent)
    assert run(["top", "--count", "1", "--json"]) == 0
    look = json.loads(capsys.readouterr().out)
    assert (look["rebalance"], look["moves"], look["policy"]) == (None, [], "the node is starting")


DEAD = {**NODE, "node": 1, "life": "FAILED", "http": []}


@pytest.mark.parametrize("dead", [DEAD, {**DEAD, "life": "LIVE", "http": ["http://127.0.0.1:2"]}])
def test_what_a_dead_node_told_last_is_not_shown_as_its_load_of_now(
    dead: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Dying(Fake):
        def __init__(self, address: str | None, *_: Any, **__: Any) -> None:
            super().__init__()
            self._address = address

        def get(self, path: str) -> dict[str, Any]:
            if path == "/admin/nodes":
                return {"leader": 3, "term": 2, "nodes": [NODE, dead]}
            if path == "/admin/status" and self._address == "http://127.0.0.1:2":
                raise RetriableError("no answer")
            if path == "/admin/topics/public/default/t":
                nobody = {
                    **PART,
                    "partition": 8,
                    "owner": 1,
                    "start_offset": None,
                    "end_offset": None,
                    "bytes": None,
                    "unknown": "node 1 is FAILED",
                }
                return {"name": "public/default/t", "stats": [PART | {"end_offset": 1_100}, nobody]}
            return super().get(path)

    monkeypatch.setattr(top, "Admin", Dying)
    assert run(["top", "--count", "1", "--json"]) == 0
    [load] = json.loads(capsys.readouterr().out)["loads"]
    assert load == {"node": 1, "bytes_s": None, "requests_s": None, "busiest": []}
    assert run(["top", "--count", "1"]) == 0
    said = capsys.readouterr().out
    assert "node 1: - appended" in said
    assert "busiest" not in said
    parts = [line.split()[1] for line in said.splitlines() if line.startswith("public/default/t")]
    assert parts == ["8", "9"], "what nobody serves comes first"
