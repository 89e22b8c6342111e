"""Bad input to the running program: refused, nothing stored, nobody else disturbed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from ringfence.native import messages, wire
from tests.system.harness import SCHEMA, NodeProcess, batch
from tests.system.raw import RawClient, RawTopic, message_of

if TYPE_CHECKING:
    from collections.abc import Iterator

Code, Op, Status = wire.Code, wire.Opcode, wire.Status


@pytest.fixture
def topic(client: RawClient, request: pytest.FixtureRequest) -> Iterator[RawTopic]:
    """A topic of its own with one row stored; afterwards exactly one more good batch must fit behind it."""
    name = "".join(c if c.isalnum() else "-" for c in request.node.name)[-100:]
    made = RawTopic(client, name, SCHEMA, ["id"])
    assert made.publish(batch(0, 1), 0).status == Status.OK
    yield made
    assert made.ends() == (0, 1), "a refused request stored something"
    made.refresh()
    answer = made.publish(batch(1, 1), 1)
    assert (answer.status, answer.header.first_offset) == (Status.OK, 1), answer


def refused(answer: object, code: wire.Code) -> None:
    assert getattr(answer, "code", None) == code, answer
    body = answer.read(messages.Refused)  # type: ignore[attr-defined]
    assert body.message, "a refusal says why"


GOOD = batch(1, 1)
BYTES = GOOD.serialize().to_pybytes()


def test_a_wrong_body_crc_is_refused(topic: RawTopic) -> None:
    refused(topic.publish(GOOD, 1, body_crc=1), Code.BODY_CRC)


def test_every_truncation_of_a_body_is_refused(topic: RawTopic) -> None:
    for end in range(1, len(BYTES)):
        refused(topic.publish(BYTES[:end], 1), Code.BAD_BODY)


def test_bytes_behind_the_batch_are_refused(topic: RawTopic) -> None:
    refused(topic.publish(BYTES + bytes(64), 1), Code.BAD_BODY)


@pytest.mark.parametrize("kind", ["bool", "null"])
def test_metadata_that_readers_cannot_open_is_refused(client: RawClient, kind: str) -> None:
    """An offset of zero is sound to the flatbuffers of Rust, not to those of Arrow C++."""
    column = pa.nulls(5) if kind == "null" else pa.array([True, False, None, True, False])
    sound = pa.record_batch({"c": column})
    topic = RawTopic(client, f"zeroed-{kind}", sound.schema, [])
    body = message_of(sound, "lz4")
    assert topic.publish(body, 0, rows=5).status == Status.OK
    unreadable = 0
    for at in range(8, 8 + int.from_bytes(body[4:8], "little"), 4):
        zeroed = body[:at] + bytes(4) + body[at + 4 :]
        try:
            pa.ipc.read_record_batch(pa.ipc.read_message(zeroed), sound.schema)
        except (pa.ArrowException, OSError):
            unreadable += 1
            assert topic.publish(zeroed, 1, rows=5).status == Status.REFUSED, f"byte {at}"
    assert unreadable > 5
    assert topic.ends() == (0, 5), "a refused body was stored"
    assert topic.publish(body, 1, rows=5).status == Status.OK


def test_a_schema_message_in_front_is_refused(topic: RawTopic) -> None:
    refused(topic.publish(SCHEMA.serialize().to_pybytes() + BYTES, 1), Code.BAD_BODY)


def test_rows_that_differ_from_the_header_are_refused(topic: RawTopic) -> None:
    assert topic.publish(GOOD, 1, rows=2).code in (Code.WRONG_SCHEMA, Code.BAD_BODY)


def test_a_batch_of_another_schema_is_refused(topic: RawTopic) -> None:
    other = pa.record_batch({"a": pa.array([1.5])})
    assert topic.publish(other, 1).code in (Code.WRONG_SCHEMA, Code.BAD_BODY)
    refused(topic.publish(GOOD, 1, schema_id=7), Code.WRONG_SCHEMA)


def test_zero_rows_are_refused(topic: RawTopic) -> None:
    refused(topic.publish(batch(1, 0), 1, rows=0), Code.ZERO_ROWS)


def test_a_key_of_another_partition_is_refused(client: RawClient) -> None:
    made = RawTopic(client, "wrong-slot", SCHEMA, ["id"], partitions=2)
    answers = [made.publish(batch(row, 1), 0, index=0) for row in range(8)]
    codes = {answer.code for answer in answers}
    assert Code.WRONG_SLOT in codes, "eight keys do not all fall into one half"
    assert (
        made.ends(0)[1]
        == sum(answer.status == Status.OK and not answer.header.flags & 2 for answer in answers[:1])
        or made.ends(0)[1] <= 1
    )


def test_stale_and_zero_and_future_epochs_are_redirected(topic: RawTopic) -> None:
    epoch = topic.place()["owner_epoch"]
    for wrong in (0, epoch - 1, epoch + 1, 2**64 - 1):
        answer = topic.publish(GOOD, 1, owner_epoch=wrong)
        assert answer.reason == wire.RedirectReason.STALE_EPOCH or answer.code is not None, answer
        if answer.status == Status.REDIRECT:
            assert answer.header.owner_epoch == epoch
            assert answer.read(messages.Redirected).owner == topic.table.partitions[0].owner


def test_a_future_version_waits_for_its_deadline_and_is_refused(topic: RawTopic) -> None:
    refused(topic.publish(GOOD, 1, layout_version=topic.table.version + 1, deadline_ms=300), Code.AHEAD)


def test_a_gap_in_sequences_names_the_expected_one(topic: RawTopic) -> None:
    answer = topic.publish(GOOD, 3)
    refused(answer, Code.SEQUENCE_GAP)
    assert answer.header.sequence == 1


def test_a_repeat_gets_the_first_answer_and_other_content_a_conflict(topic: RawTopic) -> None:
    again = topic.publish(batch(0, 1), 0)
    assert (again.status, again.header.first_offset, again.header.rows) == (Status.OK, 0, 1)
    assert again.header.flags & wire.AnswerFlags.REPEATED
    refused(topic.publish(batch(5, 1), 0), Code.CONFLICT)


def test_unknown_topics_partitions_opcodes_and_schemas_are_refused(topic: RawTopic) -> None:
    refused(topic.publish(GOOD, 1, topic=999_999), Code.UNKNOWN_TOPIC)
    refused(topic.publish(GOOD, 1, partition=999_999), Code.UNKNOWN_PARTITION)
    topic.client.socket.send_multipart(topic.client.frames(250))
    answer = topic.client.receive()
    assert answer is not None
    assert answer.code == Code.UNKNOWN_OPCODE


def test_defined_opcodes_that_are_not_served_say_so(topic: RawTopic) -> None:
    for opcode in (Op.WATCH_OPEN, Op.JOIN, Op.LEAVE, Op.ACKNOWLEDGE, Op.CONFIRM_MARK, Op.ORDER):
        code = topic.client.ask(opcode, **topic.place()).code
        assert code is not None, opcode
        assert code in (Code.NOT_SUPPORTED, Code.UNKNOWN_OPCODE), opcode


def test_what_only_owners_and_transactions_send_is_refused_from_a_stranger(topic: RawTopic) -> None:
    """Nobody told this node to follow anybody, and no scope was begun."""
    for opcode in (Op.REPLICATE, Op.FENCE, Op.STAGE, Op.BEGIN, Op.COMMIT, Op.EXPIRE):
        code = topic.client.ask(opcode, **topic.place()).code
        assert code is not None, opcode
        assert code not in (Code.NOT_SUPPORTED, Code.UNKNOWN_OPCODE, Code.INTERNAL), opcode


@pytest.mark.parametrize("field", ["magic", "header_crc", "version", "flags", "extension_bytes"])
def test_a_damaged_header_is_refused_or_ends_its_connection_alone(
    node: NodeProcess, topic: RawTopic, field: str
) -> None:
    with RawClient(node.address) as stranger:
        stranger.socket.send_multipart(
            stranger.frames(Op.PUBLISH, BYTES, **{**topic.fields(1, 1), field: 77})
        )
        answer = stranger.receive(2_000)
        assert answer is None or answer.status == Status.REFUSED


@pytest.mark.parametrize(
    "frames", [[b""], [b"x" * 127], [b"x" * 129], [b"x" * 128, b"y", b"z"], [b"", b""], [b"garbage"] * 5]
)
def test_other_frames_end_the_connection_alone(
    node: NodeProcess, topic: RawTopic, frames: list[bytes]
) -> None:
    with RawClient(node.address) as stranger:
        stranger.socket.send_multipart(frames)
        answer = stranger.receive(1_000)
        assert answer is None or answer.status == Status.REFUSED


def test_an_oversized_body_ends_its_connection_and_the_next_works(node: NodeProcess, topic: RawTopic) -> None:
    with RawClient(node.address) as stranger:
        stranger.send(Op.PUBLISH, bytes(wire.MESSAGE_BYTES_MAX + 64), **topic.fields(1, 1))
        answer = stranger.receive(3_000)
        assert answer is None or answer.code in (Code.TOO_LARGE, Code.BAD_HEADER)


def test_oversized_notes_and_extensions_are_refused(topic: RawTopic) -> None:
    note = (1).to_bytes(2, "little") + bytes(2) + (5_000).to_bytes(4, "little") + b"n" * 5_000
    padded = note + bytes(-len(note) % 64)
    refused(topic.publish(padded + BYTES, 1, extension_bytes=len(padded)), Code.TOO_LARGE)
    broken = b"\x09\x00" + bytes(62)
    assert topic.publish(broken + BYTES, 1, extension_bytes=64).status == Status.REFUSED


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xc1",
        b"\x93\x01\x02",
        b"\x81\xa4name\x01",
        b"\x91" * 10_000,
        b"\xdf\xff\xff\xff\xff",
        b"\xff" * 1_000,
    ],
)
def test_control_bodies_that_are_not_sound_are_refused(topic: RawTopic, body: bytes) -> None:
    for opcode in (
        Op.TOPIC_CREATE,
        Op.TOPIC_DESCRIBE,
        Op.TOPIC_DELETE,
        Op.PRODUCER_OPEN,
        Op.SCHEMA_ADD,
        Op.TOPIC_TRUNCATE,
    ):
        answer = topic.client.ask(opcode, body, flags=wire.RequestFlags.CONTROL)
        assert answer.code in (Code.BAD_BODY, Code.INVALID_ARGUMENT), (opcode, answer)


def test_every_kind_of_value_in_a_control_body_has_an_answer(topic: RawTopic) -> None:
    unknown = {0xC1, *range(0xC7, 0xCA), *range(0xD4, 0xD9)}  # the reserved byte, extension types
    for opcode in (Op.HELLO, Op.STATUS, Op.TOPIC_DESCRIBE):
        for first in range(256):
            for rest in (b"", b"\x01\x00", bytes(300)):
                body = b"\x81\xa1a" + bytes([first]) + rest
                answer = topic.client.ask(opcode, body, flags=wire.RequestFlags.CONTROL)
                assert first not in unknown or answer.code == Code.BAD_BODY, (opcode, body, answer)


def test_a_control_body_above_its_limit_is_too_large(topic: RawTopic) -> None:
    body = b"\x81\xa4name\xc6" + (1 << 20).to_bytes(4, "big") + bytes(1 << 20)
    refused(topic.client.ask(Op.TOPIC_DESCRIBE, body, flags=wire.RequestFlags.CONTROL), Code.TOO_LARGE)


def test_impossible_topics_are_refused_with_the_reason(topic: RawTopic) -> None:
    schema = SCHEMA.serialize().to_pybytes()
    wanted = [
        messages.TopicCreate(name="", schema=schema),
        messages.TopicCreate(name="x" * 300, schema=schema),
        messages.TopicCreate(name="a b", schema=schema),
        messages.TopicCreate(name="n0", schema=schema, partitions=0),
        messages.TopicCreate(name="n1", schema=schema, partitions=65_537),
        messages.TopicCreate(name="n2", schema=schema, key=["nope"]),
        messages.TopicCreate(name="n3", schema=schema, key=["id", "id"]),
        messages.TopicCreate(name="n4", schema=schema[:-9]),
        messages.TopicCreate(name="n5", schema=b""),
        messages.TopicCreate(name="n6", schema=schema, replication=2),
    ]
    for message in wanted:
        answer = topic.client.control(Op.TOPIC_CREATE, message)
        assert answer.status == Status.REFUSED, message
        assert answer.read(messages.Refused).message
    listed = topic.client.control(Op.TOPIC_LIST, messages.TopicList(prefix="public/default/n")).read(
        messages.Topics
    )
    assert [info.name for info in listed.topics] == []


def test_a_fetch_outside_the_log_says_where_it_begins(topic: RawTopic) -> None:
    place = topic.place()
    answer = topic.client.ask(
        Op.FETCH, topic=place["topic"], partition=place["partition"], sequence=10**12, deadline_ms=100
    )
    assert answer.code == Code.TRUNCATED or (answer.status == Status.OK and not answer.body)
    answer = topic.client.ask(
        Op.FETCH,
        topic=place["topic"],
        partition=place["partition"],
        sequence=1,
        owner_epoch=1,
        deadline_ms=100,
    )
    assert answer.code == Code.TRUNCATED


def test_a_second_process_on_the_same_data_is_refused(node: NodeProcess, topic: RawTopic) -> None:
    second = NodeProcess(Path(node.data))
    with pytest.raises(AssertionError, match="exit code"):
        second.start()


def test_listening_off_loopback_needs_insecure(tmp_path: Path) -> None:
    from tests.system.harness import cli

    done = cli("serve", "--data", str(tmp_path / "d"), "--listen", "tcp://0.0.0.0:0", timeout_s=30)
    assert done.returncode not in (0, 1)
    assert "--insecure" in done.stderr
    assert not (tmp_path / "d").exists() or not list((tmp_path / "d").iterdir())
