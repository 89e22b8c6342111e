"""Every command against a running node."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ringfence.control.cli.exit_codes import Exit
from tests.harness.processes import PROGRAM, NodeProcess, cli, until

ROWS = pa.table(
    {
        "id": pa.array(range(10_000), pa.int64()),
        "name": pa.array([f"name {number}" if number % 7 else None for number in range(10_000)]),
    }
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "rows.parquet"
    pq.write_table(ROWS, path)
    return path


def told(done: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def published(node: NodeProcess, topic: str, file: Path, *options: str) -> dict[str, Any]:
    lines = told(
        cli(
            "publish",
            topic,
            str(file),
            "--create",
            "--key",
            "id",
            "--partitions",
            "4",
            "--json",
            *options,
            address=node.address,
        )
    )
    assert sum(line["rows"] for line in lines[:-1]) == lines[-1]["rows"]
    return lines[-1]


def test_topics_from_creation_to_deletion(node: NodeProcess) -> None:
    create = (
        "topic",
        "create",
        "events",
        "--column",
        "id:int64!",
        "--column",
        "name:string",
        "--key",
        "id",
        "--partitions",
        "3",
        "--retention",
        "7d",
        "--property",
        "team=ingest",
        "--retain-until-compacted",
        "--json",
    )
    (made,) = told(cli(*create, address=node.address))
    assert made["created"] is True
    assert made["name"] == "public/default/events"
    assert made["key"] == ["id"]
    assert made["retention_ms"] == 7 * 86_400_000
    assert made["properties"] == {"team": "ingest", "ringfence.retention": "compacted"}
    assert made["columns"][0] == {"name": "id", "type": "int64", "nullable": False}
    again = cli(*create, address=node.address)
    assert again.returncode == Exit.REFUSED
    assert json.loads(again.stderr)["code"] == "already_exists"
    assert told(cli(*create, "--exist-ok", address=node.address))[0]["created"] is False
    (listed,) = told(cli("topic", "list", "events", "--json", address=node.address))
    assert listed["topic"] == made["topic"]
    shown = cli("topic", "show", "events", address=node.address)
    assert "ACTIVE" in shown.stdout
    assert " owner " in shown.stdout
    assert "team=ingest" in shown.stdout
    deleted = told(cli("topic", "delete", "events", "--yes", "--json", address=node.address))
    assert deleted == [{"deleted": "events"}]
    assert cli("topic", "show", "events", address=node.address).returncode == Exit.REFUSED
    assert cli("topic", "delete", "events", "--yes", address=node.address).returncode == Exit.REFUSED
    assert cli("topic", "delete", "events", "--yes", "--missing-ok", address=node.address).returncode == 0


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
def test_a_file_goes_in_and_comes_out_the_same(
    node: NodeProcess, file: Path, tmp_path: Path, suffix: str
) -> None:
    topic = f"round-{suffix}"
    summary = published(node, topic, file, "--batch-rows", "700")
    assert summary["rows"] == 10_000
    assert sum(summary["partitions"].values()) == 10_000
    output = tmp_path / f"out.{suffix}"
    done = cli("read", topic, "--output", str(output), address=node.address)
    assert done.returncode == 0, done.stderr
    read = pq.read_table(output) if suffix == "parquet" else pa.ipc.open_file(str(output)).read_all()
    assert read.sort_by("id").equals(ROWS)


def test_an_arrow_stream_goes_through_pipes(node: NodeProcess) -> None:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, ROWS.schema) as writer:
        writer.write_table(ROWS)
    environment = {**os.environ, "RINGFENCE_ADDRESS": node.address}
    send = [str(PROGRAM), "publish", "piped", "-", "--create", "--key", "id"]
    done = subprocess.run(
        send,
        input=sink.getvalue().to_pybytes(),
        capture_output=True,
        timeout=60,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    read = subprocess.run(
        [str(PROGRAM), "read", "piped", "--output", "-"],
        capture_output=True,
        timeout=60,
        env=environment,
        check=True,
    )
    assert pa.ipc.open_stream(read.stdout).read_all().sort_by("id").equals(ROWS)


def test_a_stream_that_is_not_taken_whole_says_so_and_what_is_on_disk(
    node: NodeProcess, tmp_path: Path
) -> None:
    path = tmp_path / "stream.arrow"
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, ROWS.schema) as writer:
        writer.write_table(ROWS, max_chunksize=len(ROWS) // 4)
    stream = path.read_bytes()
    rows = f"{len(ROWS):,}"

    def sent(stdin: bytes, *files: str) -> list[str]:
        command = [str(PROGRAM), "publish", "part", *files, "--create", "--address", node.address]
        done = subprocess.run(command, input=stdin, capture_output=True, timeout=60, check=False)
        assert done.returncode == Exit.PARTLY, done.stderr
        return done.stderr.decode().splitlines()

    said, why = sent(stream + stream, "-")
    assert said == f"part: at least {rows} rows are on disk"
    assert "data after the end of the Arrow stream was not sent" in why
    said, why = sent(stream[:-2000], "-")
    assert re.fullmatch(r"part: at least [\d,]+ rows are on disk", said), said
    assert "are on disk, the other rows are not (-: the Arrow stream on stdin is truncated or damaged" in why
    said, why = sent(stream, "-", str(tmp_path / "missing.parquet"))
    assert said == f"part: at least {rows} rows are on disk"
    assert "No such file" in why
    path.write_bytes(stream + b"x")
    said, why = sent(b"", str(path))
    assert "data after the end" in why


def test_an_arrow_file_on_stdin_is_told_to_be_named(node: NodeProcess) -> None:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, ROWS.schema) as writer:
        writer.write_table(ROWS)
    done = subprocess.run(
        [str(PROGRAM), "publish", "no-stream", "-", "--create", "--address", node.address],
        input=sink.getvalue().to_pybytes(),
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == Exit.USAGE
    assert b"pass a Parquet or Arrow file by its path" in done.stderr


def test_a_closed_stdin_is_no_stream(node: NodeProcess) -> None:
    command = ["bash", "-c", '"$@" <&-', "bash", str(PROGRAM), "publish", "t", "-", "--address", node.address]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (
        Exit.USAGE,
        "ringfence: -: stdin is closed; pipe an Arrow stream to it; see ringfence publish --help\n",
    )


def test_rows_are_read_from_an_offset_with_a_limit_and_some_columns(node: NodeProcess, file: Path) -> None:
    published(node, "offsets", file)
    (info,) = told(cli("topic", "show", "offsets", "--json", address=node.address))
    part = info["partitions"][0]
    arguments = ("read", "offsets", "--partition", str(part["partition"]), "--json", "--columns", "id")
    everything = told(cli(*arguments, address=node.address))
    assert len(everything) == part["end_offset"]
    some = told(cli(*arguments, "--start", "100", "--limit", "17", address=node.address))
    assert some == everything[100:117]
    table = cli("read", "offsets", "--limit", "3", address=node.address)
    assert len(table.stdout.strip().splitlines()) == 4
    nope = cli("read", "offsets", "--columns", "nope", address=node.address)
    assert nope.returncode == Exit.REFUSED


def test_truncated_rows_are_gone(node: NodeProcess, file: Path) -> None:
    published(node, "short", file)
    (info,) = told(cli("topic", "show", "short", "--json", address=node.address))
    first = info["partitions"][0]
    cut = (
        "topic",
        "truncate",
        "short",
        "--partition",
        str(first["partition"]),
        "--before",
        "100",
        "--yes",
        "--json",
    )
    (after,) = told(cli(*cut, address=node.address))
    assert after["rows"] == 9_900
    assert after["partitions"][0]["start_offset"] == 100
    (empty,) = told(cli("topic", "truncate", "short", "--yes", "--json", address=node.address))
    assert empty["rows"] == 0
    assert told(cli("read", "short", "--json", address=node.address)) == []


def test_following_shows_new_rows_until_interrupted(node: NodeProcess, file: Path, tmp_path: Path) -> None:
    published(node, "live", file)
    marker = tmp_path / "marker.parquet"
    pq.write_table(pa.table({"id": pa.array([-1], pa.int64()), "name": ["marker"]}), marker)
    environment = {**os.environ, "RINGFENCE_ADDRESS": node.address}
    reader = subprocess.Popen(
        [str(PROGRAM), "read", "live", "--follow", "--start", "latest", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        text=True,
    )
    output = reader.stdout
    assert output is not None

    def shows_a_marker() -> bool:
        published(node, "live", marker)
        return bool(select.select([output], [], [], 1)[0])

    # Rows of before the reader's start are not shown: it follows once it shows one that came later.
    until(shows_a_marker, 60, "a row that came after the reader's start")
    published(node, "live", file)
    seen: list[int] = []
    while len(seen) < 10_000:
        number = json.loads(output.readline())["id"]
        if number >= 0:
            seen.append(number)
    assert sorted(seen) == list(range(10_000))
    errors = interrupted(reader)
    assert reader.returncode == Exit.INTERRUPTED
    (line,) = errors.splitlines()
    assert json.loads(line)["exit"] == Exit.INTERRUPTED


def interrupted(process: subprocess.Popen[str]) -> str:
    """Ctrl-C, and once more as people do: Python drops an interrupt that arrives inside of a destructor."""
    process.send_signal(signal.SIGINT)
    try:
        return process.communicate(timeout=20)[1]
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
        return process.communicate(timeout=60)[1]


def test_following_shows_the_first_of_many_rows_at_once(node: NodeProcess, tmp_path: Path) -> None:
    path = tmp_path / "many.parquet"
    pq.write_table(pa.table({"id": pa.array(range(200_000), pa.int64())}), path)
    sent = cli("publish", "many", str(path), "--create", "--batch-rows", "200000", address=node.address)
    assert sent.returncode == 0, sent.stderr
    command = [str(PROGRAM), "read", "many", "--follow", "--address", node.address]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as reading:
        assert reading.stdout is not None
        began = time.monotonic()
        assert reading.stdout.readline().split() == [b"id"]
        # One table of all 200,000 shows nothing within 12 s; of a thousand at a time 1 MB is out by then.
        assert time.monotonic() - began < 10
        reading.kill()


@pytest.mark.parametrize(
    "command", [("read", "enough", "--json"), ("read", "enough", "--follow"), ("topic", "show", "enough")]
)
def test_a_reader_that_has_enough_is_no_error(
    command: tuple[str, ...], node: NodeProcess, tmp_path: Path
) -> None:
    # Wide enough that a pipe does not hold all of it, also of one topic's columns.
    names = ["id", *(f"{place}_{'column' * 30}" for place in range(1000))]
    path = tmp_path / "wide.parquet"
    pq.write_table(pa.table({name: [1, 2] for name in names}), path)
    published(node, "enough", path)
    environment = {**os.environ, "RINGFENCE_ADDRESS": node.address}
    reader = subprocess.Popen(
        [str(PROGRAM), *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    )
    assert reader.stdout is not None
    reader.stdout.read(1)
    reader.stdout.close()
    assert reader.stderr is not None
    said = reader.stderr.read()
    reader.stderr.close()
    assert reader.wait(30) == 0, said
    assert said == b""


def test_output_that_takes_no_more_is_said_to_be_it(node: NodeProcess, file: Path) -> None:
    published(node, "full", file)
    reads = ["read", "full", "--address", node.address]
    for options in ([*reads, "--json"], reads, [*reads, "--output", "-"], ["--help"], ["--version"]):
        with Path("/dev/full").open("wb") as full:
            done = subprocess.run(
                [str(PROGRAM), *options],
                stdout=full,
                stderr=subprocess.PIPE,
                text=True,
                timeout=60,
                check=False,
            )
        assert done.returncode == Exit.OUTPUT, (options, done.stderr)
        assert "the output cannot be written: No space left on device" in done.stderr
        assert "Traceback" not in done.stderr


def test_a_damaged_file_creates_no_topic(node: NodeProcess, file: Path) -> None:
    damaged = file.with_name("damaged.parquet")
    content = bytearray(file.read_bytes())
    content[4:2_000] = bytes(1_996)  # the first pages; the footer, which has the columns, is whole
    damaged.write_bytes(content)
    done = cli("publish", "never", str(damaged), "--create", "--key", "id", address=node.address)
    assert done.returncode == Exit.USAGE, done.stderr
    assert cli("topic", "show", "never", address=node.address).returncode == Exit.REFUSED


def test_a_page_that_its_checksum_does_not_fit_is_not_sent(node: NodeProcess, tmp_path: Path) -> None:
    path = tmp_path / "summed.parquet"
    plain = {"use_dictionary": False, "compression": "none", "write_page_checksum": True}
    pq.write_table(pa.table({"id": pa.array(range(1_000), pa.int64())}), path, **plain)
    content = bytearray(path.read_bytes())
    content[4_000] ^= 1  # in the middle of 8,000 bytes of values: without the sum another number
    path.write_bytes(content)
    done = cli("publish", "summed", str(path), "--create", address=node.address)
    assert done.returncode == Exit.USAGE, done.stderr
    assert "CRC" in done.stderr


@pytest.mark.parametrize("suffix", [".parquet", ".arrow"])
def test_names_that_are_no_text_are_names(node: NodeProcess, file: Path, suffix: str) -> None:
    odd = [os.fsdecode(os.fsencode(file.parent) + name) for name in (b"/\xff in", b"/\xff out")]
    source, target = (Path(name + suffix) for name in odd)
    if suffix == ".parquet":
        file.rename(source)
    else:
        with source.open("wb") as made, pa.ipc.new_file(made, ROWS.schema) as writer:
            writer.write_table(ROWS)
    topic = "odd" + suffix
    sent = cli("publish", topic, str(source), "--create", address=node.address)
    assert sent.returncode == 0, sent.stderr
    done = cli("read", topic, "--output", str(target), address=node.address)
    assert done.returncode == 0, done.stderr
    with target.open("rb") as read:
        table = pq.read_table(read) if suffix == ".parquet" else pa.ipc.open_file(read).read_all()
    assert table.equals(ROWS)


def test_a_folder_whose_name_is_no_text_takes_files(node: NodeProcess, file: Path, tmp_path: Path) -> None:
    published(node, "folders", file)
    folder = os.fsencode(tmp_path) + b"/\xff"
    # As where the language is not C: by itself Python writes no such name then.
    environment = {**os.environ, "PYTHONIOENCODING": "utf-8:strict"}
    done = subprocess.run(
        [str(PROGRAM), "compact", "folders", folder, "--address", node.address],
        capture_output=True,
        timeout=60,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(folder + b": 10,000 rows in 4 new files")


def test_two_columns_of_one_name_are_told_in_one_sentence(node: NodeProcess) -> None:
    twice = ("topic", "create", "twice", "--column", "id:int64", "--column", "id:int64")
    done = cli(*twice, address=node.address)
    assert done.returncode == Exit.REFUSED
    assert done.stderr.startswith('ringfence: schema: two columns are called "id"; rename one [column=')


def test_no_binary_goes_to_a_terminal(node: NodeProcess) -> None:
    controller, terminal = pty.openpty()
    done = subprocess.run(
        [str(PROGRAM), "read", "any", "--output", "-"],
        stdout=terminal,
        stderr=subprocess.PIPE,
        env={**os.environ, "RINGFENCE_ADDRESS": node.address},
        timeout=30,
        check=False,
    )
    os.close(terminal)
    os.close(controller)
    assert done.returncode == Exit.USAGE
    assert b"stdout is a terminal" in done.stderr


def test_progress_is_shown_on_a_terminal_only(node: NodeProcess, file: Path) -> None:
    quiet = cli("publish", "bars", str(file), "--create", address=node.address)
    assert quiet.stderr == ""
    controller, terminal = pty.openpty()
    done = subprocess.run(
        [str(PROGRAM), "publish", "bars", str(file)],
        stdout=subprocess.PIPE,
        stderr=terminal,
        env={**os.environ, "RINGFENCE_ADDRESS": node.address, "TERM": "xterm"},
        timeout=60,
        check=True,
    )
    os.close(terminal)
    shown = os.read(controller, 65_536).decode(errors="replace")
    os.close(controller)
    assert "rows" in shown
    assert b"10,000 rows" in done.stdout


def test_status_tells_who_the_node_is(node: NodeProcess) -> None:
    (status,) = told(cli("status", "--json", address=node.address))
    assert status["state"] == "serving"
    assert status["cluster"] == node.ready["cluster"]
    assert status["addresses"] == [node.address]
    assert status["counters"]["requests"] > 0
    plain = cli("status", "--counters", address=node.address)
    assert "serving" in plain.stdout
    assert "requests" in plain.stdout


def test_a_named_producer_is_taken_over(node: NodeProcess, file: Path) -> None:
    for _ in range(2):
        assert published(node, "named", file, "--producer", "loader")["rows"] == 10_000
    (info,) = told(cli("topic", "show", "named", "--json", address=node.address))
    assert info["rows"] == 20_000


def test_rows_that_do_not_fit_are_refused(node: NodeProcess, file: Path, tmp_path: Path) -> None:
    published(node, "strict", file)
    other = tmp_path / "other.parquet"
    pq.write_table(pa.table({"id": ["no number"]}), other)
    done = cli("publish", "strict", str(other), address=node.address)
    assert done.returncode == Exit.REFUSED, done.stderr
    assert "id" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_publish_that_ends_early_says_what_is_on_disk(node: NodeProcess, tmp_path: Path) -> None:
    path = tmp_path / "late.parquet"
    ids = pa.array([*range(1000), None], pa.int64())
    pq.write_table(pa.table({"id": ids}), path)
    made = cli("topic", "create", "late", "--column", "id:int64!", address=node.address)
    assert made.returncode == 0, made.stderr
    done = cli("publish", "late", str(path), "--batch-rows", "100", address=node.address)
    assert done.returncode == Exit.PARTLY, done.stderr
    first, last = done.stderr.strip().splitlines()
    told_rows = re.fullmatch(r"late: at least ([\d,]+) rows are on disk", first)
    assert told_rows is not None, first
    assert told_rows[1] == "1,000"
    assert "not nullable" in last


def test_bench_measures_and_leaves_nothing(node: NodeProcess) -> None:
    lines = told(cli("bench", "--seconds", "0.5", "--rows", "1000", "--json", address=node.address))
    assert [line["step"] for line in lines] == ["write", "read"]
    assert lines[0]["rows"] == lines[1]["rows"] > 0
    assert lines[0]["ack_p50_ms"] <= lines[0]["ack_p99_ms"]
    names = [info["name"] for info in told(cli("topic", "list", "--json", address=node.address))]
    assert not [name for name in names if "bench-" in name]


def test_the_demo_compares_equal(tmp_path: Path) -> None:
    done = cli("demo", "--scale", "0.01", "--no-spark", "--json", timeout_s=120)
    lines = told(done)
    assert lines[-1]["equal"] is True
    assert lines[-1]["rows"] == 60_175
    assert [line["rows"] for line in lines[:-1]] == [60_175] * 3
    assert lines[0]["digest"] == lines[2]["digest"] == lines[-1]["hash"]
