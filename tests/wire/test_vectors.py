"""The shared byte vectors against the Python and Cython codecs, and the generated files against wire.toml."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pyarrow as pa
import pytest

from ringfence.native import layout_messages, messages, wire
from tests.wire import catalogue, vectors

VECTORS = json.loads(vectors.JSON.read_text())
BODIES = {
    "hello": messages.Hello,
    "ready": messages.Ready,
    "ready_with_cohorts": messages.Ready,
    "topic_create": messages.TopicCreate,
    "topic_create_ok": messages.TopicInfo,
    "topic_list_ok": messages.Topics,
    "topic_list_cluster": messages.TopicList,
    "topic_list_cluster_ok": messages.Topics,
    "producer_open": messages.ProducerOpen,
    "producer_open_ok": messages.ProducerOpened,
    "table_ok": messages.Table,
    "table_push": messages.Table,
    "publish_redirect": messages.Redirected,
    "publish_sealed": messages.Redirected,
    "layout_change": layout_messages.LayoutChange,
    "layout_change_ok": layout_messages.LayoutChanged,
    "layout_describe": layout_messages.LayoutDescribe,
    "layout_describe_ok": layout_messages.LayoutDescribed,
    "staged_list": layout_messages.StagedList,
    "staged_list_ok": layout_messages.StagedBatches,
    "refused_conflict": messages.Refused,
    "resolve_ok": messages.Resolved,
    "schema_add_ok": messages.SchemaAdded,
}


def test_generated_constants_are_fresh() -> None:
    done = subprocess.run(
        [sys.executable, "native/gen_wire.py", "--check"],
        cwd=vectors.ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_vectors_and_document_are_fresh() -> None:
    built = vectors.build()
    assert built == VECTORS, "run python -m tests.wire.vectors"
    document = vectors.DOCUMENT.read_text()
    assert vectors.filled(document, built) == document, "run python -m tests.wire.vectors"


def test_document_shows_four_messages_and_names_every_opcode_and_code() -> None:
    document = vectors.DOCUMENT.read_text()
    shown = [line.split()[2] for line in document.splitlines() if line.startswith("<!-- vector: ")]
    assert shown == ["hello", "publish", "publish_ok", "fetch_ok"]
    pages = document + vectors.NODES_DOCUMENT.read_text()
    for opcode in wire.Opcode:
        number, name = int(opcode), opcode.name
        assert f"| {number} | {name} |" in pages or f"{name} {number}" in pages, opcode
    for code in wire.Code:
        assert f"| {int(code)} | `{code.name.lower()}` |" in document


def test_every_opcode_has_a_worked_message() -> None:
    assert {vector["opcode"] for vector in VECTORS.values()} == {
        opcode.name.lower() for opcode in wire.Opcode
    }


@pytest.mark.parametrize("name", sorted(VECTORS))
def test_python_reads_the_header(name: str) -> None:
    vector = VECTORS[name]
    layout, kind = (
        (wire.REQUEST_STRUCT, wire.RequestHeader)
        if vector["kind"] == "request"
        else (wire.ANSWER_STRUCT, wire.AnswerHeader)
    )
    header = kind._make(layout.unpack(bytes.fromhex(vector["header"])))
    assert {key: value for key, value in header._asdict().items() if value} == vector["fields"]


@pytest.mark.parametrize("name", sorted(BODIES))
def test_message_bodies_decode_to_their_type_and_back(name: str) -> None:
    body = bytes.fromhex(VECTORS[name]["body"])
    kind: Any = BODIES[name]
    assert messages.encode(messages.decode(kind, body)) == body


def test_a_push_has_the_body_of_the_answer() -> None:
    assert VECTORS["table_push"]["body"] == VECTORS["table_ok"]["body"]


def test_the_published_batch_is_readable_arrow() -> None:
    schema = pa.ipc.read_schema(pa.BufferReader(catalogue.SCHEMA_MESSAGE))
    batch = pa.ipc.read_record_batch(pa.py_buffer(catalogue.BATCH_MESSAGE), schema)
    assert batch.equals(catalogue.ROWS)
