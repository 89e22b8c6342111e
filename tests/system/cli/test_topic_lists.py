"""`topic list`: one request however many topics there are, and the same rows over both endpoints."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import ringfence
from ringfence.control.cli import admin
from ringfence.control.cli.exit_codes import Exit
from ringfence.control.cli.program import run
from tests.harness.processes import SCHEMA, NodeProcess, batch

# More than a page of the admin API has without `limit` and `stats`.
TOPICS = 120


@pytest.fixture(scope="module")
def listed(module_folder: Path) -> Any:
    """A node with many topics; the first has rows."""
    data = module_folder / "data"
    with (
        NodeProcess(data, options=("--http", "127.0.0.1:0")) as node,
        ringfence.connect(node.address) as client,
    ):
        for number in range(TOPICS):
            client.create_topic(f"many/topics/t{number:03}", schema=SCHEMA, key=["id"], partitions=2)
        with client.producer("many/topics/t000") as producer:
            producer.send(batch(0, 100)).result(30)
        yield node


def lines_of(capfdbinary: pytest.CaptureFixture[bytes], *arguments: str) -> list[dict[str, Any]]:
    assert run(["topic", "list", "--json", *arguments]) == Exit.OK
    return [json.loads(line) for line in capfdbinary.readouterr().out.splitlines()]


def counting(monkeypatch: pytest.MonkeyPatch, *, without_stats: bool = False) -> list[str]:
    """The paths that the admin API is asked from now on. `without_stats`: as a node with an older program."""
    paths: list[str] = []
    ask = admin._request

    def count(address: str, method: str, path: str, *rest: Any) -> Any:
        paths.append(path)
        return ask(address, method, path.replace("stats=true&", "") if without_stats else path, *rest)

    monkeypatch.setattr(admin, "_request", count)
    return paths


def test_a_list_over_http_is_one_request_and_equals_that_of_the_data_socket(
    listed: NodeProcess, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    paths = counting(monkeypatch)
    over_http = lines_of(capfdbinary, "--http", listed.ready["http"])
    assert len(paths) == 1
    over_socket = lines_of(capfdbinary, "--address", listed.address)
    assert [topic["name"] for topic in over_http] == [f"many/topics/t{number:03}" for number in range(TOPICS)]
    assert (over_http[0]["rows"], over_http[1]["rows"]) == (100, 0)
    for topic in over_http:
        for part in topic["partitions"]:
            assert (part.pop("replicas"), part.pop("lag_records")) == ([1], 0)
    assert over_http == over_socket


def test_a_node_with_an_older_program_is_asked_for_each_topic(
    listed: NodeProcess, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    whole = lines_of(capfdbinary, "--http", listed.ready["http"])
    paths = counting(monkeypatch, without_stats=True)
    assert lines_of(capfdbinary, "--http", listed.ready["http"]) == whole
    assert len(paths) == TOPICS + 2  # two pages of names


def test_a_list_loads_neither_pydantic_nor_rich() -> None:
    """Both load in 0.1 s, a third of the time of a short list."""
    listing = (
        "import sys, ringfence.control.cli.program, ringfence.control.cli.topic\n"
        "print(sorted({'pydantic', 'pydantic_settings', 'rich', 'structlog'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", listing], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
