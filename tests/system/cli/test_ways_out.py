"""What is refused says what to do instead; what is not well ends a command with its code."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ringfence.control.cli import debug, endpoint
from ringfence.control.cli.exit_codes import Exit
from ringfence.control.cli.program import run
from ringfence.control.runtime.process.addresses import check_addresses
from ringfence.control.runtime.process.settings import Settings
from ringfence.control.runtime.rpc import messages
from ringfence.native.errors import ConfigError
from tests.harness.processes import NodeProcess, cli

Patch = pytest.MonkeyPatch


@pytest.mark.parametrize("options", [(), ("--scope", "nightly")], ids=["plain", "scope"])
def test_publish_to_no_topic_names_create(
    options: tuple[str, ...], node: NodeProcess, tmp_path: Path
) -> None:
    file = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"id": [1]}), file)
    done = cli("publish", "missing", str(file), *options, address=node.address)
    assert done.returncode == Exit.REFUSED, done.stderr
    assert "no topic is named" in done.stderr
    assert f"or publish with --create, which uses the columns of {file}" in done.stderr


@pytest.mark.parametrize(("name", "kind"), [("rows.arrow", "Arrow"), ("rows.parquet", "Parquet")])
def test_a_file_of_another_kind_than_its_suffix_says_so(name: str, kind: str, tmp_path: Path) -> None:
    file = tmp_path / name
    file.write_text("id,text\n1,a\n")
    done = cli("publish", "t", str(file), "--create", address="tcp://127.0.0.1:1")
    assert done.returncode == Exit.USAGE, done.stderr
    assert f"{file}: not a valid {kind} file, as its suffix says (" in done.stderr
    assert "or rename it with the suffix of its format: .parquet" in done.stderr


@pytest.mark.parametrize(("given", "meant"), [("bigint", "int64"), ("varchar(10)", "string")])
def test_a_type_of_sql_is_told_what_it_is_here(
    given: str, meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["topic", "create", "t", "--column", f"c:{given}"]) == Exit.USAGE
    assert f"is unknown (did you mean {meant}?)" in capsys.readouterr().err


@pytest.mark.parametrize(
    "command",
    [
        ["node", "promote", "hans"],
        ["node", "drain", "hans"],
        ["rebalance", "start", "drain", "--node", "hans"],
        ["partition", "force-owner", "7", "--owner", "hans"],
    ],
)
def test_a_name_where_an_id_belongs_is_told_where_ids_are(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(command) == Exit.USAGE
    assert "'hans' is not a node id, a number from 1; run `ringfence node list`" in (capsys.readouterr().err)


class Admin:
    """An admin API of node 3 whose answers stand here."""

    control: tuple[str, ...] = ("tcp://127.0.0.1:7413",)
    failed: tuple[int, ...] = ()

    def __init__(self, *_: Any) -> None:
        """Whatever the address."""

    def get(self, path: str) -> Any:
        if path == "/admin/nodes/3":
            return {"control": list(self.control)}
        assert path == "/admin/status"
        return {
            "node": 3,
            "state": "serving",
            "reasons": [],
            "members": 3,
            "failed": list(self.failed),
            "counters": {},
        }


@pytest.mark.parametrize(("failed", "code"), [((), Exit.OK), ((5,), Exit.DEGRADED)])
@pytest.mark.parametrize("form", [[], ["--json"]], ids=["people", "json"])
def test_status_ends_with_9_while_a_member_failed(
    form: list[str], failed: tuple[int, ...], code: Exit, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(Admin, "failed", failed)
    monkeypatch.setattr(endpoint, "Admin", Admin)
    assert run(["status", "--http", "http://127.0.0.1:1", *form]) == code


def test_debug_events_finds_the_control_address_through_the_admin_api(
    monkeypatch: Patch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = []

    def answered(control: str, call: object, _: float) -> messages.RecordingSaved:
        asked.append((control, call))
        return messages.RecordingSaved(path="/data/debug/consensus-1.events")

    monkeypatch.setattr(debug, "ask_node", answered)
    monkeypatch.setattr(endpoint, "Admin", Admin)
    assert run(["debug", "events", "--http", "http://127.0.0.1:1"]) == Exit.OK
    assert asked == [("tcp://127.0.0.1:7413", messages.SaveRecording())]
    assert capsys.readouterr().out == "/data/debug/consensus-1.events\n"
    monkeypatch.setattr(Admin, "control", ())
    assert run(["debug", "events", "--http", "http://127.0.0.1:1"]) == Exit.REFUSED
    assert "node 3 has no control address: start it with `serve --control ADDRESS`" in capsys.readouterr().err


@pytest.mark.parametrize("key", ["listen", "control", "http"])
def test_a_start_at_a_port_that_is_taken_makes_no_store(key: str, tmp_path: Path) -> None:
    data = tmp_path / "deep" / "data"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        place = f"127.0.0.1:{taken.getsockname()[1]}"
        address = place if key == "http" else f"tcp://{place}"
        free = () if key == "listen" else ("--listen", "tcp://127.0.0.1:0")
        done = cli("serve", "--data", str(data), f"--{key}", address, *free)
    assert done.returncode == Exit.USAGE, done.stderr
    assert f"{key}='{address}': Address already in use; stop the process that listens there" in done.stderr
    assert not list(tmp_path.iterdir())


def test_addresses_that_only_binding_can_judge_are_left_to_it(tmp_path: Path) -> None:
    (tmp_path / "taken").touch()
    odd = (
        f"ipc://{tmp_path}/taken",
        "ipc://@abstract",
        "tcp://127.0.0.1:0",
        "tcp://127.0.0.1:*",
        "tcp://no-such-interface:7411",
    )
    check_addresses(Settings(data_dir=tmp_path / "data", listen=odd))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        twice = f"tcp://127.0.0.1:{taken.getsockname()[1]}"
        (tmp_path / "store.toml").touch()
        check_addresses(Settings(data_dir=tmp_path, listen=(twice,)))
    with pytest.raises(ConfigError, match="Address already in use"):
        check_addresses(Settings(data_dir=tmp_path / "data", listen=(twice, twice)))


@pytest.mark.parametrize(
    ("path", "why"), [("nowhere/socket", "No such file or directory"), ("a" * 120, "AF_UNIX path too long")]
)
def test_a_start_at_a_path_that_no_socket_can_have_makes_no_store(
    path: str, why: str, tmp_path: Path
) -> None:
    address = f"ipc://{tmp_path}/{path}"
    done = cli("serve", "--data", str(tmp_path / "data"), "--listen", address)
    assert done.returncode == Exit.USAGE, done.stderr
    assert f"listen='{address}': {why}; name a short path in a folder that exists" in done.stderr
    assert not list(tmp_path.iterdir())


def test_a_path_that_was_tried_is_free_again(tmp_path: Path) -> None:
    check_addresses(Settings(data_dir=tmp_path / "data", listen=(f"ipc://{tmp_path}/socket",)))
    assert not list(tmp_path.iterdir())


def test_localhost_that_is_taken_makes_no_store(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        place = f"tcp://localhost:{taken.getsockname()[1]}"
        with pytest.raises(ConfigError, match="Address already in use"):
            check_addresses(Settings(data_dir=tmp_path / "data", listen=(place,)))


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (b"\xff\0\0\0\0\0\0\0\1\x7f\3\0NULL\0\0\r\n", "the server does not speak HTTP (BadStatusLine)"),
        (b"", "Remote end closed connection without response"),
    ],
    ids=["a data port", "closed"],
)
def test_who_does_not_speak_http_is_not_quoted(said: bytes, why: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:

        def greet() -> None:
            with suppress(OSError):
                while True:
                    say_to(other.accept()[0])

        def say_to(connection: socket.socket) -> None:
            with connection:
                connection.recv(4096)
                connection.sendall(said)

        threading.Thread(target=greet, daemon=True).start()
        place = f"http://127.0.0.1:{other.getsockname()[1]}"
        done = cli("node", "list", "--http", place, "--timeout", "1")
    assert done.returncode == Exit.UNREACHABLE, done.stderr
    assert f"{place}: no answer: {why}" in done.stderr


@pytest.mark.parametrize(
    "command",
    [
        ["partition", "show", "events"],
        ["partition", "give-up", "events", "--scope", "1", "--epoch", "1"],
        ["rebalance", "reverse", "events"],
        ["read", "t", "--partition", "events"],
        ["topic", "truncate", "t", "--partition", "events"],
    ],
    ids=lambda command: " ".join(command[:2]),
)
def test_a_name_where_a_partition_is_wanted_is_told_where_numbers_are(command: list[str]) -> None:
    done = cli(*command)
    assert done.returncode == Exit.USAGE
    assert "'events' is not a partition id, a number from 1; run `ringfence topic show TOPIC`" in done.stderr
