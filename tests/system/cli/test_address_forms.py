"""Addresses with and without a scheme: every command and setting that takes one takes the other."""

from __future__ import annotations

import importlib
import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ringfence
from ringfence.control.cli import admin
from ringfence.control.cli.exit_codes import Exit
from ringfence.control.cli.program import COMMANDS, run
from ringfence.native.errors import RefusedError
from tests.harness.processes import NodeProcess, batch, cli, free_port, until

HTTP = {
    "cluster finalize": [],
    "cluster versions": [],
    "cohort change": ["t", "c", "--limit", "3"],
    "cohort create": ["t", "c", "--mode", "stream"],
    "cohort delete": ["t", "c", "--yes"],
    "cohort discard": ["t", "c", "--all", "--yes"],
    "cohort evict": ["t", "c", "m"],
    "cohort list": [],
    "cohort members": ["t", "c"],
    "cohort parked": ["t", "c"],
    "cohort reset": ["t", "c", "earliest", "--yes"],
    "cohort retry": ["t", "c", "--all"],
    "cohort show": ["t", "c"],
    "config set": ["topics_max=5"],
    "config show": [],
    "debug events": [],
    "fsck": ["--cluster"],
    "node auto": ["1"],
    "node demote": ["1"],
    "node drain": ["1"],
    "node list": [],
    "node promote": ["1"],
    "node remove": ["1"],
    "node undrain": ["1"],
    "partition force-owner": ["7", "--owner", "1", "--yes"],
    "partition give-up": ["7", "--scope", "3", "--epoch", "1", "--yes"],
    "partition merge": ["7", "8"],
    "partition release": ["7"],
    "partition show": ["7"],
    "partition split": ["7"],
    "producer forget": ["t", "p", "--yes"],
    "producer list": ["t"],
    "rebalance cancel": [],
    "rebalance history": [],
    "rebalance pause": [],
    "rebalance preview": ["balance"],
    "rebalance resume": [],
    "rebalance reverse": [],
    "rebalance start": ["balance"],
    "rebalance status": [],
    "scope forget": ["s", "--yes"],
    "scope list": [],
    "status": [],
    "token create": ["t", "--role", "viewer"],
    "token list": [],
    "token revoke": ["t"],
    "top": ["--count", "1"],
    "topic abort-transition": ["7", "--yes"],
    "topic auto": ["t", "split=1"],
    "topic create": ["t", "--column", "id:int64"],
    "topic delete": ["t", "--yes"],
    "topic explain": ["t"],
    "topic layout": ["t"],
    "topic list": [],
    "topic merge": ["t", "7", "8"],
    "topic partition": ["t", "7"],
    "topic repartition": ["t", "4"],
    "topic show": ["t"],
    "topic split": ["t", "7"],
    "topic transitions": [],
    "topic truncate": ["t", "--yes"],
}
ADDRESS = {
    "bench": ["--seconds", "0.1", "--rows", "10", "--partitions", "1"],
    "cohort export": ["t", "c", "--to", "t-parked", "--create"],
    "compact": ["t", "OUT"],
    "publish": ["t", "FILE"],
    "read": ["t"],
    "status": [],
    "topic create": ["u", "--column", "id:int64"],
    "topic delete": ["u", "--yes"],
    "topic list": [],
    "topic show": ["t"],
    "topic truncate": ["t", "--yes"],
}


def leaves() -> Iterator[tuple[str, click.Command]]:
    """Every command that runs something, with its whole name."""
    for name, (module, _) in COMMANDS.items():
        command = importlib.import_module(module).command
        if not isinstance(command, click.Group):
            yield name, command
            continue
        for inner, leaf in command.commands.items():
            yield f"{name} {inner}", leaf


def commands_with(option: str) -> dict[str, click.Command]:
    return {name: leaf for name, leaf in leaves() if any(param.name == option for param in leaf.params)}


def test_the_tables_of_this_file_name_every_command() -> None:
    assert commands_with("http").keys() - {"serve"} == HTTP.keys()
    assert commands_with("address").keys() == ADDRESS.keys()
    assert commands_with("control").keys() - {"serve"} <= HTTP.keys()


@pytest.mark.parametrize("command", HTTP)
def test_http_is_a_url_or_host_and_port(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    asked: list[str] = []

    def refuse(address: str, *_: Any) -> Any:
        asked.append(address)
        raise RefusedError("this test refuses everything")

    monkeypatch.setattr(admin, "_request", refuse)
    monkeypatch.delenv("RINGFENCE_ADMIN", raising=False)
    monkeypatch.chdir(tmp_path)
    arguments = [*command.split(), *HTTP[command]]
    for form in ("http://node.test:7412", "node.test:7412"):
        assert run([*arguments, "--http", form]) == Exit.REFUSED, capsys.readouterr().err
    monkeypatch.setenv("RINGFENCE_ADMIN", "node.test:7412")
    assert run(arguments) == Exit.REFUSED
    assert asked == ["http://node.test:7412"] * 3
    for wrong in ("node.test", "tcp://node.test:1", "http://node.test:x", "node.test:7412/admin"):
        assert run([*arguments, "--http", wrong]) == Exit.USAGE
        assert f"{wrong!r}: expected http://HOST:PORT or HOST:PORT" in capsys.readouterr().err


@pytest.mark.parametrize("command", sorted(commands_with("control").keys() - {"serve"}))
def test_control_is_a_tcp_address_or_host_and_port(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RINGFENCE_ADMIN", raising=False)
    arguments = [*command.split(), *HTTP[command], "--timeout", "0.1", "--control"]
    for form in ("tcp://127.0.0.1:1", "127.0.0.1:1"):
        assert run([*arguments, form]) == Exit.UNREACHABLE
        assert "no answer from tcp://127.0.0.1:1 within 0.1 s" in capsys.readouterr().err
    assert run([*arguments, "http://127.0.0.1:1"]) == Exit.USAGE
    assert "it must be tcp://HOST:PORT or HOST:PORT" in capsys.readouterr().err


def test_every_command_that_takes_an_address_takes_host_and_port(tmp_path: Path, node: NodeProcess) -> None:
    file, bare = tmp_path / "rows.parquet", f"127.0.0.1:{node.port}"
    rows = batch(0, 5)
    pq.write_table(pa.Table.from_batches([rows]), file)
    with ringfence.connect(bare) as client:
        client.create_topic("t", schema=rows.schema)
        with client.consumer("t", cohort="c", mode="queue") as consumer:
            consumer.next(0.1)
            until(lambda: consumer.core.is_member, what="the cohort exists")
    for command, arguments in ADDRESS.items():
        given = [{"FILE": str(file), "OUT": str(tmp_path / "out")}.get(word, word) for word in arguments]
        done = cli(*command.split(), *given, "--address", bare)
        assert done.returncode == Exit.OK, (command, done.stderr)
    assert cli("status", address=bare).returncode == Exit.OK, "the variable, too"


def test_serve_takes_both_forms_and_says_the_same(tmp_path: Path) -> None:
    """What a node tells others has a scheme, however its addresses were given."""
    http, control = free_port(), free_port()
    bare = {"http": f"127.0.0.1:{http}", "control": f"127.0.0.1:{control}"}
    options = ("--http", f"http://{bare['http']}/", "--control", bare["control"])
    node = NodeProcess(tmp_path / "data", options=options)
    shown = []
    with node:
        assert node.ready["http"] == f"http://{bare['http']}"
        assert node.ready["control"] == f"tcp://{bare['control']}"
        for form in ((), ("--control", bare["control"]), ("--http", bare["http"])):
            done = cli("node", "list", "--json", *(form or ("--http", f"http://{bare['http']}")))
            assert done.returncode == Exit.OK, done.stderr
            shown += [json.loads(line) for line in done.stdout.splitlines()]
    assert [entry["node"] for entry in shown] == [1] * 3
    node.options = ()
    node.environment = {f"RINGFENCE_{key.upper()}": value for key, value in bare.items()}
    node.environment["RINGFENCE_ADVERTISE"] = "localhost:7411"
    with node:
        assert node.ready["http"] == f"http://{bare['http']}"
        assert node.ready["control"] == f"tcp://{bare['control']}"
        with urllib.request.urlopen(f"http://{bare['http']}/admin/nodes", timeout=20) as answer:
            (entry,) = json.load(answer)["nodes"]
        assert entry["addresses"] == ["tcp://localhost:7411"]
