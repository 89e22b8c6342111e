"""Public Arrow files through the running program: golden ones come back equal, damaged ones are refused."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import ringfence
from ringfence.native import messages, wire
from tests.conftest import public_data
from tests.harness.processes import SCHEMA, NodeProcess, batch
from tests.harness.raw_client import Answer, RawClient, RawTopic
from tests.wire import integration_json

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ARROW = public_data("arrow")
GOLDEN = sorted((ARROW / "arrow-ipc-stream" / "integration").glob("*/*.stream"))
DAMAGED = sorted(
    [
        *(ARROW / "arrow-ipc-file").glob("*fuzz*"),
        *(path for path in (ARROW / "arrow-ipc-stream").glob("c*") if path.is_file()),
    ]
)

# Raw messages that are refused, and why. Their rows are stored once a client of today sends them.
OLD_METADATA = "metadata version"  # Arrow before 1.0 wrote V4; every client of today writes V5
REFUSED_RAW: dict[str, str] = {
    "0.14.1/generated_datetime": OLD_METADATA,
    "0.14.1/generated_dictionary": OLD_METADATA,
    "0.14.1/generated_map": OLD_METADATA,
    "0.14.1/generated_primitive": OLD_METADATA,
    "0.14.1/generated_primitive_zerolength": OLD_METADATA,
    "0.17.1/generated_union": OLD_METADATA,
}
# What is not stored in any form.
REFUSED: dict[str, str] = {
    # Values that the type's own rules forbid: date64 within a day, a decimal wider than its precision.
    "0.14.1/generated_datetime": "outside its type's range",
    "1.0.0-littleendian/generated_decimal": "outside its type's range",
    # A column is found by its name.
    "1.0.0-littleendian/generated_duplicate_fieldnames": "two columns",
    "cpp-21.0.0/generated_duplicate_fieldnames": "two columns",
    "0.17.1/generated_union": "two columns",
}
# Stored, and compared byte for byte: pyarrow has no Python type for two of its interval units.
VERBATIM = {"1.0.0-littleendian/generated_interval"}


@pytest.fixture(scope="module")
def node(module_folder: Path) -> Iterator[NodeProcess]:
    with NodeProcess(module_folder / "data") as running:
        yield running


def bodies(stream: bytes) -> tuple[bytes, list[bytes]]:
    """A stream as schema message and publish bodies: each batch with the dictionaries before it."""
    reader = pa.ipc.MessageReader.open_stream(stream)
    schema, dictionaries, out = b"", [], []
    for message in reader:
        raw = message.serialize().to_pybytes()
        if message.type == "schema":
            schema = raw
        elif message.type == "dictionary":
            dictionaries.append(raw)
        else:
            out.append(b"".join(dictionaries) + raw)
    return schema, out


def create(client: RawClient, name: str, schema: bytes) -> Answer:
    return client.control(wire.Opcode.TOPIC_CREATE, messages.TopicCreate(name=name, schema=schema))


def store(client: RawClient, name: str, stream: bytes, counts: list[int]) -> tuple[Answer | None, int]:
    """Publish each batch; the first refusal, or None, and the rows stored."""
    schema, parts = bodies(stream)
    answer = create(client, name, schema)
    if answer.status != wire.Status.OK:
        return answer, 0
    topic = RawTopic.existing(client, answer.read(messages.TopicInfo).topic, name)
    stored = 0
    for body, rows in zip(parts, counts, strict=True):
        if rows == 0:
            assert topic.publish(body, topic.stored, rows=0).code == wire.Code.ZERO_ROWS
            continue
        answer = topic.publish(body, topic.stored, rows=rows)
        if answer.status != wire.Status.OK:
            return answer, stored
        topic.stored += 1
        stored += rows
    return None, stored


def reason_of(answer: Answer | None) -> str:
    return "" if answer is None else answer.read(messages.Refused).message


def send_again(address: str, name: str, path: Path) -> str:
    """The rows as today's client sends them; why they were refused, or nothing."""
    reader = pa.ipc.open_stream(path.read_bytes())
    with ringfence.connect(address) as client:
        try:
            client.create_topic(name, schema=reader.schema)
            with client.producer(name) as producer:
                for item in reader:
                    if item.num_rows:
                        producer.send(item).result(30)
        except ringfence.RefusedError as error:
            return str(error)
    return ""


def check_read_back(address: str, name: str, path: Path, document: dict[str, Any]) -> None:
    reader = pa.ipc.open_stream(path.read_bytes())
    wanted = [item for item in integration_json.batches(document, reader.schema) if item.num_rows]
    with ringfence.connect(address) as client:
        got = list(client.read(name))
    assert [item.equals(want) for item, want in zip(got, wanted, strict=True)] == [True] * len(wanted)
    if got:
        assert got[0].schema.equals(reader.schema, check_metadata=True)


def check_verbatim(address: str, topic: int, partition: int, stream: bytes) -> None:
    _, parts = bodies(stream)
    with RawClient(address) as client:
        answer = client.ask(wire.Opcode.FETCH, topic=topic, partition=partition, send=1 << 20)
    assert all(part in answer.body for part in parts)


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_golden_stream_is_read_back_equal_to_its_json_or_refused_with_a_reason(
    node: NodeProcess, path: Path
) -> None:
    label = f"{path.parent.name}/{path.stem}"
    name = label.replace("/", "-").replace(".", "-")
    document = integration_json.load(path.with_suffix(".json.gz"))
    counts = [item["count"] for item in document["batches"]]
    with RawClient(node.address) as client:
        client.hello()
        refusal, stored = store(client, name, path.read_bytes(), counts)
        found = client.control(wire.Opcode.TOPIC_DESCRIBE, messages.TopicName(name=name))
    reason = reason_of(refusal)
    if label in REFUSED_RAW:
        assert REFUSED_RAW[label] in reason
        name += "-again"
        reason = send_again(node.address, name, path)
    elif label not in REFUSED:
        assert (reason, stored) == ("", sum(counts))
    if label in REFUSED:
        assert REFUSED[label] in reason, reason
    elif label in VERBATIM:
        info = found.read(messages.TopicInfo)
        check_verbatim(node.address, info.topic, info.partitions[0].partition, path.read_bytes())
    else:
        assert reason == ""
        check_read_back(node.address, name, path, document)


def test_the_public_files_are_all_here() -> None:
    assert (len(GOLDEN), len(DAMAGED)) == (36, 68), f"looked in {ARROW}"


@pytest.mark.parametrize("path", DAMAGED, ids=lambda path: path.name[-24:])
def test_a_damaged_file_is_refused_and_the_next_good_request_works(node: NodeProcess, path: Path) -> None:
    """As a body of a sound topic, and, where its schema can be had, in a topic of its own."""
    damaged = path.read_bytes()
    with RawClient(node.address) as client:
        client.hello()
        topic = RawTopic(client, f"d-{path.name[-40:]}".replace(".", "-"), SCHEMA, ["id"])
        assert topic.publish(damaged, 0, rows=1).status == wire.Status.REFUSED
        own: RawTopic | None = None
        for at, part in enumerate(messages_of(damaged)):
            if at == 0:
                answer = create(client, f"own-{path.name[-40:]}".replace(".", "-"), part)
                if answer.status != wire.Status.OK:
                    assert answer.read(messages.Refused).message
                    break
                own = RawTopic.existing(
                    client, answer.read(messages.TopicInfo).topic, f"own-{path.name[-40:]}".replace(".", "-")
                )
            else:
                assert own is not None
                answer = own.publish(part, own.stored, rows=1)
                own.stored += answer.status == wire.Status.OK
        assert topic.publish(batch(0, 1), 0).status == wire.Status.OK
        assert topic.ends() == (0, 1)
    if own is not None and own.stored:
        check_sound(node.address, own.table.name)


def check_sound(address: str, name: str) -> None:
    """What was taken of a damaged file is sound in itself."""
    with ringfence.connect(address) as client:
        for item in client.read(name):
            item.validate(full=True)


def messages_of(data: bytes) -> list[bytes]:
    """Encapsulated messages as far as their lengths make sense, without a reader that could fail."""
    at = 8 if data[:6] == b"ARROW1" else 0
    starts = [
        index for index in range(at, len(data) - 8, 8) if data[index : index + 4] == b"\xff\xff\xff\xff"
    ][:64]
    return [data[start:end] for start, end in itertools.pairwise([*starts, len(data)])]
