"""The command line without a node: help, mistakes, exit codes, files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path

import click
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ringfence.control.cli.exit_codes import MEANINGS, Exit, exit_code_of
from ringfence.control.cli.program import COMMANDS
from ringfence.control.cli.schema_text import parse_column, parse_duration_ms
from ringfence.control.cli.tables import Sink, Source
from ringfence.native import errors
from tests.harness.processes import PROGRAM

NOBODY = "tcp://127.0.0.1:1"
ALONE = "tcp://127.0.0.1:29871"  # below the ports that connections get


def ringfence(*arguments: str, **options: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **options}
    environment.pop("RINGFENCE_DEBUG", None)
    command = [str(PROGRAM), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment, check=False)


def test_help_is_quick_and_loads_neither_arrow_nor_the_node() -> None:
    began = time.monotonic()
    done = ringfence("--help")
    assert done.returncode == 0
    # 0.15 s on an idle machine; the bound leaves room for a loaded one.
    assert time.monotonic() - began < 3
    for name in COMMANDS:
        assert name in done.stdout
    for meaning in MEANINGS.values():
        assert meaning in done.stdout
    listing = (
        "import sys, ringfence.control.cli.program, ringfence\n"
        "heavy = {'pyarrow', 'numpy', 'zmq', 'fastapi', 'uvicorn', 'pydantic', 'rich', 'pyspark'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    loaded = subprocess.run([sys.executable, "-c", listing], capture_output=True, text=True, check=True)
    assert loaded.stdout.strip() == "[]"


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_has_an_example_and_json(name: str) -> None:
    done = ringfence(name, "--help")
    assert done.returncode == 0, done.stderr
    assert "Example:" in done.stdout
    assert f"ringfence {name}" in done.stdout
    command = import_module(COMMANDS[name][0]).command
    if name != "completion" and not isinstance(command, click.Group):
        assert "--json" in done.stdout


UNHEARD = {
    "address": (NOBODY, f"ringfence: {NOBODY} refuses connections"),
    "http": ("http://127.0.0.1:1", "ringfence: http://127.0.0.1:1: no answer: [Errno 111]"),
    "control": (NOBODY, f"ringfence: {NOBODY}: no answer so far; retrying for "),
}


@pytest.mark.parametrize("endpoint", UNHEARD)
def test_who_waits_for_nobody_is_told_so_long_before_the_end(endpoint: str) -> None:
    whom, says = UNHEARD[endpoint]
    command = ["status"] if endpoint == "address" else ["node", "list"]
    waits = [str(PROGRAM), *command, f"--{endpoint}", whom, "--timeout", "600"]
    with subprocess.Popen(waits, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            assert process.stderr.readline().startswith(says)
            assert process.poll() is None
        finally:
            process.kill()
    done = ringfence(*command, f"--{endpoint}", whom, "--timeout", "4", "--json")
    assert (done.returncode, json.loads(done.stderr)["exit"]) == (Exit.UNREACHABLE, Exit.UNREACHABLE)


@pytest.mark.parametrize("name", ["create", "list", "revoke"])
def test_every_token_command_has_an_example_and_json(name: str) -> None:
    done = ringfence("token", name, "--help")
    assert done.returncode == 0, done.stderr
    assert f"ringfence token {name}" in done.stdout
    assert "--json" in done.stdout


@pytest.mark.parametrize("name", ["list", "forget"])
def test_every_producer_command_has_an_example_and_json(name: str) -> None:
    done = ringfence("producer", name, "--help")
    assert done.returncode == 0, done.stderr
    assert f"ringfence producer {name}" in done.stdout
    assert "--json" in done.stdout


@pytest.mark.parametrize("name", ["list", "forget"])
def test_every_scope_command_has_an_example_and_json(name: str) -> None:
    done = ringfence("scope", name, "--help")
    assert done.returncode == 0, done.stderr
    assert f"ringfence scope {name}" in done.stdout
    assert "--json" in done.stdout


@pytest.mark.parametrize("name", ["show", "release", "force-owner", "give-up"])
def test_every_partition_command_has_an_example_and_json(name: str) -> None:
    done = ringfence("partition", name, "--help")
    assert done.returncode == 0, done.stderr
    assert f"ringfence partition {name}" in done.stdout
    assert "--json" in done.stdout


@pytest.mark.parametrize("name", ["events", "replay"])
def test_every_debug_command_has_an_example_and_json(name: str) -> None:
    done = ringfence("debug", name, "--help")
    assert done.returncode == 0, done.stderr
    assert f"ringfence debug {name}" in done.stdout
    assert "--json" in done.stdout


@pytest.mark.parametrize("name", ["create", "list", "show", "truncate", "delete"])
def test_every_topic_command_has_an_example_and_json(name: str) -> None:
    done = ringfence("topic", name, "--help")
    assert done.returncode == 0, done.stderr
    assert f"ringfence topic {name}" in done.stdout
    assert "--json" in done.stdout


@pytest.mark.parametrize("name", ["list", "promote", "demote", "auto", "drain", "undrain", "remove"])
def test_every_node_command_has_an_example_and_json(name: str) -> None:
    done = ringfence("node", name, "--help")
    assert done.returncode == 0, done.stderr
    assert f"ringfence node {name}" in done.stdout
    assert "--json" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["fly"], "No such command 'fly'"),
        (["read"], "Missing argument 'TOPIC'"),
        (["read", "t", "--start", "5"], "pass --partition"),
        (["read", "t", "--start", "2026-01-31T12:00"], "needs a time zone"),
        (["read", "t", "--start", "soon"], "earliest, latest, an offset, or a time"),
        (["read", "t", "--output", "x.csv"], "the suffix is none of"),
        (["read", "t", "--json", "--output", "x.parquet"], "pass one of them"),
        (["read", "t", "--columns", "id,id"], "named twice: id,id"),
        (["publish", "t", "nope.parquet"], "nope.parquet"),
        (["publish", "t", "rows.csv"], "rows.csv: No such file or directory"),
        (["publish", "t", __file__], "the suffix is none of"),
        (["topic", "create", "t"], "--column"),
        (["topic", "create", "t", "--column", "id"], "NAME:TYPE"),
        (["topic", "create", "t", "--column", "id:int65"], "type 'int65' is unknown"),
        (["topic", "create", "t", "--column", "id:int64", "--retention", "7x"], "for example 7d"),
        (["serve"], "pass --data"),
        (["serve", "--data", "d", "--shards", "many"], "shards='many' of --shards"),
        (["serve", "--data", "d", "--listen", "http://x"], "tcp://HOST:PORT, HOST:PORT or ipc://PATH"),
        (["serve", "--data", "d", "--listen", "tcp://0.0.0.0:0"], "--insecure"),
        (["serve", "--data", "d", "--join", "x"], "join address 'x'"),
        (["serve", "--data", "d", "--join", "tcp://127.0.0.1:0"], "port 1 to 65535"),
        (["serve", "--data", "d", "--join", "127.0.0.1:0"], "port 1 to 65535"),
        (["serve", "--data", "d", "--advertise", "tcp://a"], "advertise address 'tcp://a'"),
        (["serve", "--data", "d", "--control", "9", "--join", ALONE], "listen address '9'"),
        (["serve", "--data", "d", "--http", "https://127.0.0.1:1"], "HOST:PORT or http://HOST:PORT"),
        (["serve", "--data", "d", "--control", ALONE, "--join", ALONE], "this node's own control address"),
        (["serve", "--data", "d", "--producer-expiry-ms", str(1 << 64)], "of --producer-expiry-ms"),
        (["serve", "--data", "d", "--scrub-bytes-s", f"{'9' * 20}TiB"], "of --scrub-bytes-s"),
        (["serve", "--data", "d", "--reserve-bytes", f"{'9' * 400}TiB"], "of --reserve-bytes"),
        (["topic", "list", "--address", NOBODY, "--http", "http://x:1"], "--address and --http each name"),
        (["node", "list", "--control", NOBODY, "--http", "http://x:1"], "--http and --control each name"),
        (["token", "create", "t", "--role", "admin", "--to", __file__], "exists; name a new file"),
        (["status", "--address", "carrier:pigeon"], "carrier:pigeon"),
    ],
)
def test_mistakes_end_with_2_and_one_line(arguments: list[str], says: str, tmp_path: Path) -> None:
    environment = {**os.environ, "RINGFENCE_ADDRESS": NOBODY}
    done = subprocess.run(
        [str(PROGRAM), *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        env=environment,
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == Exit.USAGE, done.stderr
    assert says in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert done.stdout == ""
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("text", ["2026-01-01", "2026-01-01T12:30", "2026-01-01T12:30:05"])
def test_the_time_that_is_suggested_is_one(text: str) -> None:
    done = ringfence("read", "t", "--start", text)
    suggested = done.stderr.partition("needs a time zone, for example ")[2].partition(";")[0].strip()
    assert suggested.startswith(text), done.stderr
    for taken in (suggested, suggested.replace("+00:00", "Z")):
        assert (
            ringfence("read", "t", "--start", taken, "--timeout", "0.2", "--address", NOBODY).returncode
            == Exit.UNREACHABLE
        )


@pytest.mark.parametrize("command", [["topic", "list"], ["status"]])
def test_a_door_as_a_flag_beats_one_as_a_variable(command: list[str]) -> None:
    admin = "http://127.0.0.1:2"
    flag = [*command, "--timeout", "0.3", "--address", NOBODY]
    done = ringfence(*flag, RINGFENCE_ADMIN=admin)
    assert (done.returncode, admin in done.stderr) == (Exit.UNREACHABLE, False), done.stderr
    done = ringfence(*flag[:-2], RINGFENCE_ADMIN=admin, RINGFENCE_ADDRESS=NOBODY)
    assert (done.returncode, admin in done.stderr) == (Exit.UNREACHABLE, True), done.stderr


def test_a_node_that_does_not_come_up_names_its_log(tmp_path: Path) -> None:
    (tmp_path / "node-1").write_text("no directory")
    done = ringfence("dev", "--nodes", "1", "--data", str(tmp_path))
    assert done.returncode == Exit.UNREACHABLE, done.stderr
    assert "node-1 ended before it served" in done.stderr
    assert f"log: {tmp_path / 'node-1.log'}; last line: " in done.stderr


@pytest.mark.parametrize("group", [[], ["topic"]], ids=["ringfence", "topic"])
def test_a_group_without_a_command_shows_its_help_as_lines(group: list[str]) -> None:
    done = ringfence(*group)
    help_text = ringfence(*group, "--help").stdout
    assert help_text.strip() in done.stdout + done.stderr
    assert done.returncode in {Exit.OK, Exit.USAGE}  # click before 8.2 ends with 0


@pytest.mark.parametrize(
    ("answer", "code", "says"),
    [("", Exit.USAGE, "pass --yes"), ("n\n", Exit.INTERRUPTED, "nothing was changed")],
    ids=["nobody", "no"],
)
def test_what_is_not_confirmed_is_not_done(answer: str, code: Exit, says: str) -> None:
    environment = {**os.environ, "RINGFENCE_ADDRESS": NOBODY}
    done = subprocess.run(
        [str(PROGRAM), "topic", "delete", "t"],
        input=answer,
        capture_output=True,
        text=True,
        timeout=60,
        env=environment,
        check=False,
    )
    assert done.returncode == code, done.stderr
    assert says in done.stderr
    assert done.stdout == ""


def test_a_demo_asked_for_spark_says_what_spark_lacks(tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    environment = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    done = subprocess.run(
        [str(PROGRAM), "demo", "--spark", "--scale", "0.001"],
        capture_output=True,
        text=True,
        timeout=60,
        env={**environment, "PATH": str(tmp_path)},
        check=False,
    )
    assert done.returncode == Exit.USAGE, done.stderr
    assert "Java is missing" in done.stderr


def test_nobody_there_ends_with_4() -> None:
    done = ringfence("status", "--timeout", "0.5", RINGFENCE_ADDRESS=NOBODY)
    assert done.returncode == Exit.UNREACHABLE
    assert len(done.stderr.strip().splitlines()) == 1
    as_json = ringfence("topic", "list", "--json", "--timeout", "0.5", RINGFENCE_ADDRESS=NOBODY)
    told = json.loads(as_json.stderr)
    assert as_json.returncode == told["exit"] == Exit.UNREACHABLE
    assert told["error"] == "ConnectError"
    assert told["retriable"] is True


def test_debug_shows_the_traceback() -> None:
    done = ringfence("--debug", "status", "--timeout", "0.5", RINGFENCE_ADDRESS=NOBODY)
    assert done.returncode != 0
    assert "Traceback" in done.stderr


def test_an_unknown_variable_is_an_error(tmp_path: Path) -> None:
    done = ringfence("serve", "--data", str(tmp_path / "d"), RINGFENCE_BUDGETS="1")
    assert done.returncode == Exit.USAGE
    assert "RINGFENCE_BUDGETS is no setting" in done.stderr
    assert not (tmp_path / "d").exists()


def test_a_directory_that_is_none_ends_with_7(tmp_path: Path) -> None:
    done = ringfence("fsck", "--data", str(tmp_path))
    assert done.returncode == Exit.STORAGE
    assert "no data directory" in done.stderr
    (tmp_path / "thesis.txt").write_text("x")
    done = ringfence("serve", "--data", str(tmp_path))
    assert done.returncode == Exit.STORAGE
    assert "thesis.txt" in done.stderr


def test_every_error_class_has_an_exit_code() -> None:
    kinds = [
        kind
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, errors.RingfenceError)
    ]
    without = {kind for kind in kinds if exit_code_of(kind("x")) is Exit.DEFECT}
    # The base is never raised itself, and using a closed object is a defect of the command.
    assert {kind for kind in without if not issubclass(kind, errors.ClosedError)} == {errors.RingfenceError}


def test_columns_and_times_are_typed_as_people_do() -> None:
    assert parse_column("id:int64!") == pa.field("id", pa.int64(), nullable=False)
    assert parse_column("price:decimal(15,2)") == pa.field("price", pa.decimal128(15, 2))
    assert parse_column("at:timestamp[us, UTC]") == pa.field("at", pa.timestamp("us", tz="UTC"))
    assert parse_column("tags:list<string>") == pa.field("tags", pa.list_(pa.string()))
    assert parse_column("day:date") == pa.field("day", pa.date32())
    assert parse_duration_ms("7d") == 7 * 86_400_000
    assert parse_duration_ms("90s") == 90_000


ROWS = pa.table({"id": pa.array(range(1000)), "text": pa.array([f"row {n}" for n in range(1000)])})


@pytest.mark.parametrize("kind", ["parquet", "file", "stream", "arrows"])
def test_files_of_every_kind_give_the_same_rows(kind: str, tmp_path: Path) -> None:
    path = tmp_path / f"rows.{kind if kind in {'parquet', 'arrows'} else 'arrow'}"
    if kind == "parquet":
        pq.write_table(ROWS, path)
    else:
        make = pa.ipc.new_file if kind == "file" else pa.ipc.new_stream
        with make(str(path), ROWS.schema) as writer:
            writer.write_table(ROWS)
    with Source(str(path), batch_rows=300) as source:
        batches = list(source)
    assert max(batch.num_rows for batch in batches) == 300
    assert pa.Table.from_batches(batches).equals(ROWS)


def test_views_become_plain_columns(tmp_path: Path) -> None:
    path = tmp_path / "views.arrow"
    views = pa.record_batch({"text": pa.array(["a", "b" * 50], pa.string_view())})
    with pa.ipc.new_file(str(path), views.schema) as writer:
        writer.write_batch(views)
    with Source(str(path)) as source:
        assert source.schema.field("text").type == pa.string()
        assert [batch.to_pydict() for batch in source] == [{"text": ["a", "b" * 50]}]


@pytest.mark.parametrize("name", ["rows.parquet", "rows.arrow"])
def test_a_broken_off_file_never_appears_under_its_name(name: str, tmp_path: Path) -> None:
    for whole in (False, True):
        sink = Sink(str(tmp_path / name))
        sink.begin(ROWS.schema)
        for batch in ROWS.to_batches():
            sink.write(batch)
        sink.end(is_complete=whole)
        assert sorted(path.name for path in tmp_path.iterdir()) == ([name] if whole else [])
    with Source(str(tmp_path / name)) as source:
        assert pa.Table.from_batches(list(source)).equals(ROWS)


TYPES = """
import datetime as dt, decimal
from ringfence.control.cli.output import emit_rows
time = dt.datetime(2026, 1, 2, tzinfo=dt.timezone.utc)
row = {"d": decimal.Decimal("1.50"), "t": time, "day": time.date(), "b": bytes([0, 255]), "n": float("nan")}
emit_rows([row | {"l": [1, None], "s": "ä" + chr(10)}] * 2)
"""


def test_json_lines_hold_every_type_that_arrow_gives() -> None:
    done = subprocess.run([sys.executable, "-c", TYPES], capture_output=True, text=True, check=True)
    first, second = (json.loads(line) for line in done.stdout.splitlines())
    assert first == second
    assert first.pop("t") == "2026-01-02T00:00:00Z"
    assert first == {"d": "1.50", "day": "2026-01-02", "b": "AP8=", "n": None, "l": [1, None], "s": "ä\n"}


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_an_interrupt_while_modules_load_is_one_line(options: list[str]) -> None:
    early = (
        "import sys\n"
        "class Interrupts:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.endswith('.program'):\n"
        "            raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupts())\n"
        "from ringfence.control.cli import main\n"
        "main()"
    )
    command = [sys.executable, "-c", early, "topic", "list", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == Exit.INTERRUPTED, done.stderr
    (line,) = done.stderr.splitlines()
    assert json.loads(line)["exit"] == 130 if options else line == "ringfence: interrupted"
