"""What `ringfence read` and `publish` make of values, names and files: nothing is lost, changed or obeyed."""

from __future__ import annotations

import datetime as dt
import decimal
import io
import json
import os
import pty
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ringfence
from ringfence.control.cli.escape_control import printable
from ringfence.control.cli.exit_codes import Exit
from ringfence.control.cli.values import duration_text, rows_of
from tests.harness.processes import PROGRAM, NodeProcess, cli

HOSTILE = "\x1b]0;title\x07\x1b[2Jred\u202e"


def numbers(kind: pa.DataType, *values: int | None) -> pa.Array:
    return pa.array(values, pa.int64()).view(kind)


def shown(array: pa.Array) -> list[Any]:
    return [row["v"] for row in rows_of(pa.record_batch([array], ["v"]), as_json=True)]


@pytest.mark.parametrize(
    ("kind", "number", "text"),
    [
        (pa.timestamp("s", "UTC"), 0, "1970-01-01T00:00:00Z"),
        (pa.timestamp("us", "Asia/Tokyo"), 1_700_000_000_123_456, "2023-11-14T22:13:20.123456Z"),
        (pa.timestamp("ns", "+0530"), 1_700_000_000_123_456_789, "2023-11-14T22:13:20.123456789Z"),
        (pa.timestamp("ms"), 1_700_000_000_100, "2023-11-14T22:13:20.100"),
        (pa.timestamp("us", "Z"), 253_402_300_800_000_000, "10000-01-01T00:00:00Z"),
        (pa.timestamp("s"), -62_198_755_200, "-0001-01-01T00:00:00"),
        (pa.timestamp("us"), 2**63 - 1, "<value out of range: 9223372036854775807>"),
        (pa.time64("ns"), 1, "00:00:00.000000001"),
        (pa.duration("s"), 2**62, "P53375995583650DT27904S"),
        (pa.duration("ns"), -1, "-PT0.000000001S"),
    ],
    ids=str,
)
def test_moments_and_durations_are_shown_whatever_their_unit_year_or_zone(
    kind: pa.DataType, number: int, text: str
) -> None:
    assert shown(numbers(kind, number, None)) == [text, None]


@pytest.mark.parametrize("seconds", [0, 1, -1, 0.5, 86_400, 90_061.000001, -90_061.25])
def test_durations_have_the_form_that_json_had_before(seconds: float) -> None:
    span = dt.timedelta(seconds=seconds)
    number = round(seconds * 1_000_000)
    assert f'"{duration_text(number, "us")}"' == msgspec.json.encode(span).decode()


def test_values_are_in_this_form_at_any_depth() -> None:
    instant = pa.timestamp("ns", "UTC")
    text = "1970-01-01T00:00:00.000000001Z"
    one = numbers(instant, 1, 1, 1, 1)
    lists = pa.ListArray.from_arrays([0, 1, 1, 4], one).slice(1)
    assert shown(lists) == [[], [text] * 3]
    assert shown(pa.LargeListArray.from_arrays([0, None, 4], one)) == [[text] * 4, None]
    assert shown(pa.FixedSizeListArray.from_arrays(one, 2).slice(1)) == [[text] * 2]
    struct = pa.StructArray.from_arrays([one], ["at"], mask=pa.array([False, True, False, False]))
    assert shown(struct.slice(1)) == [None, {"at": text}, {"at": text}]
    maps = pa.MapArray.from_arrays([0, 1, 4], pa.array(["a", "b", "c", "d"]), one).slice(1)
    assert shown(maps) == [[("b", text), ("c", text), ("d", text)]]
    assert shown(pa.DictionaryArray.from_arrays(pa.array([0, None]), one)) == [text, None]
    assert shown(pa.RunEndEncodedArray.from_arrays(pa.array([2], pa.int32()), one.slice(0, 1))) == [text] * 2
    assert shown(pa.array([[float("inf"), float("nan"), 1.5, None]])) == [["Infinity", "NaN", 1.5, None]]
    plain = [decimal.Decimal("1.50"), b"x", None]
    assert [shown(pa.array([value]))[0] for value in plain] == plain


def test_what_would_drive_a_terminal_is_escaped() -> None:
    assert printable(HOSTILE) == r"\x1b]0;title\x07\x1b[2Jred\u202e"
    assert printable("a\nb\x9b\u2028") == r"a\nb\x9b\u2028"
    whole = "Zoë 日本 \N{FAMILY}\u200d\N{GIRL}"
    assert printable(whole) == whole


def on_terminal(*words: str, address: str) -> bytes:
    controller, terminal = pty.openpty()
    process = subprocess.Popen([str(PROGRAM), *words, "--address", address], stdout=terminal, stderr=terminal)
    os.close(terminal)
    found = b""
    try:
        while piece := os.read(controller, 65_536):
            found += piece
    except OSError:
        pass
    os.close(controller)
    process.wait()
    return found


def test_rows_columns_properties_and_errors_do_not_reach_a_terminal_unescaped(node: NodeProcess) -> None:
    rows = pa.record_batch([[HOSTILE, "one\nrow"]], names=[f"v{HOSTILE}"])
    with ringfence.connect(node.address) as client:
        client.create_topic("hostile", schema=rows.schema, properties={"owner": HOSTILE})
        with client.producer("hostile") as producer:
            producer.send(rows)
    for words in (("read", "hostile"), ("topic", "show", "hostile"), ("read", "hostile", "--columns", "x")):
        text = on_terminal(*words, address=node.address)
        for code in (b"\x1b]0;", b"\x1b[2J", "\u202e".encode()):
            assert code not in text, words
    assert rb"one\nrow" in on_terminal("read", "hostile", address=node.address)
    done = cli("read", "hostile", "--json", address=node.address)
    assert json.loads(done.stdout.splitlines()[0]) == {f"v{HOSTILE}": HOSTILE}


@pytest.mark.parametrize(
    ("encoding", "text"), [("ascii", rb"Zo\xeb"), ("latin-1", b"Zo\xeb"), ("latin-1:replace", b"Zo\xeb  ??")]
)
def test_letters_that_the_output_lacks_become_escapes(node: NodeProcess, encoding: str, text: bytes) -> None:
    rows = pa.record_batch({"v": ["Zoë  日本"]})
    with ringfence.connect(node.address) as client:
        client.create_topic("letters", schema=rows.schema, exist_ok=True)
        client.truncate("letters")
        with client.producer("letters") as producer:
            producer.send(rows)
    done = subprocess.run(
        [str(PROGRAM), "read", "letters", "--address", node.address],
        capture_output=True,
        check=True,
        env={**os.environ, "PYTHONIOENCODING": encoding},
        timeout=60,
    )
    assert text in done.stdout
    assert (rb"\u65e5\u672c" in done.stdout) == (":" not in encoding)


def test_files_of_dictionaries_that_differ_or_have_nulls_are_whole(node: NodeProcess, tmp_path: Path) -> None:
    word = pa.dictionary(pa.int8(), pa.string())
    null = pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int8()), pa.array([None, "d"]))
    with ringfence.connect(node.address) as client:
        client.create_topic("words", schema=pa.schema([("v", word)]))
        with client.producer("words") as producer:
            for column in (pa.array(["a", "b"], word), pa.array(["c", "a"], word), null):
                producer.send(pa.record_batch([column], ["v"])).result()
    for name in ("words.arrow", "words.parquet"):
        done = cli("read", "words", "--output", str(tmp_path / name), address=node.address)
        assert done.returncode == Exit.OK, done.stderr
    want = ["a", "b", "c", "a", None, "d"]
    assert pa.ipc.open_file(tmp_path / "words.arrow").read_all()["v"].to_pylist() == want
    assert pq.read_table(tmp_path / "words.parquet")["v"].to_pylist() == want


def test_a_column_that_parquet_lacks_is_named_and_leaves_no_file(node: NodeProcess, tmp_path: Path) -> None:
    with ringfence.connect(node.address) as client:
        client.create_topic("months", schema=pa.schema([("every", pa.month_day_nano_interval())]))
    done = cli("read", "months", "--output", str(tmp_path / "x.parquet"), address=node.address)
    assert done.returncode == Exit.REFUSED
    assert "'every' (month_day_nano_interval)" in done.stderr
    done = cli("compact", "months", str(tmp_path / "out"), address=node.address)
    assert done.returncode == Exit.REFUSED
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def stream_of(field: pa.Field, array: pa.Array) -> bytes:
    sink = io.BytesIO()
    schema = pa.schema([field], metadata={"of": "the file"})
    with pa.ipc.new_stream(sink, schema) as writer:
        writer.write_batch(pa.record_batch([array], schema=schema))
    return sink.getvalue()


def published(stdin: bytes, topic: str, node: NodeProcess) -> subprocess.CompletedProcess[bytes]:
    command = [str(PROGRAM), "publish", topic, "-", "--create", "--address", node.address, "--json"]
    return subprocess.run(command, input=stdin, capture_output=True, timeout=60, check=False)


def test_published_columns_keep_their_extension_types(node: NodeProcess) -> None:
    named = {b"ARROW:extension:name": b"acme.money", b"ARROW:extension:metadata": b"EUR"}
    field = pa.field("price", pa.int64(), metadata={**named, b"PARQUET:field_id": b"1"})
    assert published(stream_of(field, pa.array([1])), "money", node).returncode == Exit.OK
    assert published(stream_of(field, pa.array([2])), "money", node).returncode == Exit.OK
    with ringfence.connect(node.address) as client:
        schema = client.topic("money").schemas[-1]
        assert schema.field("price").metadata == named
        assert schema.metadata is None
        assert client.count("money") == 2


def test_damaged_metadata_of_a_column_is_named(node: NodeProcess, tmp_path: Path) -> None:
    field = pa.field("price", pa.int64(), metadata={b"ARROW:extension:name": b"\xff\xfe"})
    done = published(stream_of(field, pa.array([1])), "damaged-metadata", node)
    assert done.returncode == Exit.USAGE
    assert "the metadata of column 'price' is not UTF-8" in json.loads(done.stderr)["message"]
    path = tmp_path / "name.parquet"
    pq.write_table(pa.table({"nameless": [1]}), path, store_schema=False)
    path.write_bytes(path.read_bytes().replace(b"nameless", b"namele\xff\xfe"))
    refused = cli("publish", "damaged-name", str(path), "--create", address=node.address)
    assert refused.returncode == Exit.USAGE, refused.stderr
    assert r"the name of a column is not UTF-8: b'namele\xff\xfe'" in refused.stderr


def test_bad_input_behind_rows_that_are_stored_ends_with_11_and_says_how_many(
    node: NodeProcess, tmp_path: Path
) -> None:
    pq.write_table(pa.table({"v": range(1_000)}), tmp_path / "good.parquet")
    pq.write_table(pa.table({"v": ["x"]}), tmp_path / "words.parquet")
    names = [str(tmp_path / name) for name in ("good.parquet", "words.parquet")]
    done = cli("publish", "partly", *names, "--create", "--json", address=node.address)
    assert done.returncode == Exit.PARTLY
    error = json.loads(done.stderr)
    assert (error["error"], error["exit"], error["rows"]) == ("PartlyStoredError", 11, 1_000)
    assert "1,000 rows in 1 partition are on disk, the other rows are not" in error["message"]
    done = cli("publish", "whole", *names, "--create", "--scope", "s", "--json", address=node.address)
    assert done.returncode == Exit.REFUSED
    assert cli("read", "whole", "--json", address=node.address).stdout == ""
