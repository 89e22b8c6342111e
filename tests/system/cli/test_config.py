"""`ringfence config` against a running node."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ringfence.control.cli.exit_codes import Exit
from tests.harness.processes import NodeProcess, cli, free_port


@pytest.fixture(scope="module")
def http(module_folder: Path) -> Iterator[str]:
    address = f"127.0.0.1:{free_port()}"
    with NodeProcess(module_folder / "data", options=("--http", address)):
        yield f"http://{address}"


def config(http: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return cli("config", *arguments, "--http", http)


def told(done: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_a_limit_is_shown_changed_and_put_back(http: str) -> None:
    (shown,) = told(config(http, "show", "sync_bytes_per_s", "--json"))
    assert (shown["name"], shown["value"], shown["default"], shown["low"]) == ("sync_bytes_per_s", 0, 0, 0)
    changed = config(http, "set", "sync_bytes_per_s=50MB", "moves_concurrent=4")
    assert changed.returncode == 0, changed.stderr
    assert changed.stdout == "sync_bytes_per_s: 50000000, was 0\nmoves_concurrent: 4, was 1\n"
    values = {line["name"]: line["value"] for line in told(config(http, "show", "--json"))}
    assert (values["sync_bytes_per_s"], values["moves_concurrent"]) == (50_000_000, 4)
    assert len(values) > 20
    (back,) = told(config(http, "set", "moves_concurrent=default", "sync_bytes_per_s=0", "--json"))
    assert back["values"] == {"moves_concurrent": 1, "sync_bytes_per_s": 0}
    assert back["index"] > 0
    table = config(http, "show", "moves_concurrent").stdout
    assert "one at a time" in table
    assert len(table.splitlines()) == 2


@pytest.mark.parametrize(
    ("pairs", "code", "says"),
    [
        (["nothing=1"], Exit.REFUSED, "no limit is named 'nothing'; the limits are auto_merge,"),
        (["voters_max=2"], Exit.REFUSED, "voters_max"),
        (["moves_concurrent=65"], Exit.REFUSED, "moves_concurrent=65: from 1 to 64; one at a time"),
        (["moves_concurrent=1" + "0" * 30], Exit.REFUSED, "from 1 to 64"),
        (["moves_concurrent=many"], Exit.USAGE, "=many: expected a whole number from 1 to 64"),
        (["moves_concurrent=2", "nothing=1"], Exit.REFUSED, "nothing"),
        (["moves_concurrent"], Exit.USAGE, "NAME=VALUE"),
        (["moves_concurrent="], Exit.USAGE, "NAME=VALUE"),
        (["moves_concurrent=-1"], Exit.USAGE, "from 1 to 64"),
        (["moves_concurrent=1.5"], Exit.USAGE, "from 1 to 64"),
        (["moves_concurrent=2", "moves_concurrent=3"], Exit.USAGE, "given twice"),
    ],
)
def test_what_no_cluster_takes_changes_nothing(pairs: list[str], code: Exit, says: str, http: str) -> None:
    done = config(http, "set", *pairs, "--json")
    assert done.returncode == code, done.stderr
    assert says in json.loads(done.stderr)["message"]
    (shown,) = told(config(http, "show", "moves_concurrent", "--json"))
    assert shown["value"] == 1


@pytest.mark.parametrize("name", ["show", "set"])
def test_both_have_an_example_and_json(name: str, http: str) -> None:
    done = config(http, name, "--help")
    assert done.returncode == 0, done.stderr
    for part in (f"ringfence config {name}", "--json", "--http", "--token-file"):
        assert part in done.stdout
