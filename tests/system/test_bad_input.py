"""Bad input to the running program: refused, nothing stored, nobody else disturbed."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
import zmq

import ringfence
from ringfence.control.cli.exit_codes import Exit
from ringfence.native import messages, wire
from tests.harness.processes import SCHEMA, NodeProcess, batch, cli
from tests.harness.raw_client import ANSWER_TIMEOUT_MS, Answer, RawClient, RawTopic, message_of

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
    refused(topic.publish(GOOD, 1, rows=2), Code.WRONG_SCHEMA)


def test_a_batch_of_another_schema_is_refused(topic: RawTopic) -> None:
    other = pa.record_batch({"a": pa.array([1.5])})
    refused(topic.publish(other, 1), Code.WRONG_SCHEMA)
    refused(topic.publish(GOOD, 1, schema_id=7), Code.WRONG_SCHEMA)


def test_zero_rows_are_refused(topic: RawTopic) -> None:
    refused(topic.publish(batch(1, 0), 1, rows=0), Code.ZERO_ROWS)


def test_a_key_of_another_partition_is_refused(client: RawClient) -> None:
    made = RawTopic(client, "wrong-slot", SCHEMA, ["id"], partitions=2)
    first, rows = made.table.partitions[0], batch(0, 8)
    belongs = [first.lo <= slot <= first.hi for slot in ringfence.slots(rows, key=["id"])]
    assert len(set(belongs)) == 2, "eight keys do not all fall into one half"
    refused(made.publish(rows, 0), Code.WRONG_SLOT)
    stored = 0
    for row, here in enumerate(belongs):
        answer = made.publish(batch(row, 1), stored)
        if here:
            assert answer.header.first_offset == stored, answer
            stored += 1
        else:
            refused(answer, Code.WRONG_SLOT)
    assert [made.ends(index) for index in (0, 1)] == [(0, stored), (0, 0)]


def redirected(topic: RawTopic, answer: Answer, reason: wire.RedirectReason) -> None:
    """Not stored; the answer has what a client needs to send it right."""
    [place] = topic.table.partitions
    assert (answer.status, answer.reason) == (Status.REDIRECT, reason), answer
    assert (answer.header.layout_version, answer.header.owner_epoch) == (topic.table.version, place.epoch)
    [node] = topic.table.nodes
    body = answer.read(messages.Redirected)
    assert (body.owner, body.addresses) == (place.owner, node.addresses) and body.addresses, body
    assert topic.ends() == (0, 1)


def test_a_stale_version_is_answered_with_owner_and_version(topic: RawTopic) -> None:
    """F2."""
    answer = topic.publish(GOOD, 1, layout_version=topic.table.version - 1)
    redirected(topic, answer, wire.RedirectReason.STALE_VERSION)


def test_no_epoch_passes_but_the_one_that_is_open(topic: RawTopic) -> None:
    """Z9: stale and zero ones are redirected, future ones wait for their deadline."""
    epoch = topic.place()["owner_epoch"]
    for stale in (0, 1, epoch - 1):
        redirected(topic, topic.publish(GOOD, 1, owner_epoch=stale), wire.RedirectReason.STALE_EPOCH)
    for future in (epoch + 1, 2**64 - 1):
        refused(topic.publish(GOOD, 1, owner_epoch=future, deadline_ms=100), Code.AHEAD)
    for stale in (0, 1, topic.producer_epoch - 1):
        refused(topic.publish(GOOD, 1, producer_epoch=stale), Code.FENCED_PRODUCER)
    refused(topic.publish(GOOD, 1, producer_id=0), Code.INVALID_ARGUMENT)
    assert topic.ends() == (0, 1)


def test_what_an_owner_took_before_its_restart_is_stale_after_it(tmp_path: Path) -> None:
    with NodeProcess(tmp_path / "data") as node, RawClient(node.address) as before:
        topic = RawTopic(before, "restarted", SCHEMA, ["id"])
        assert topic.publish(batch(0, 1), 0).status == Status.OK
        stale = topic.place()["owner_epoch"]
        node.kill()
        node.start()
        with RawClient(node.address) as after:
            topic.client = after
            assert topic.refresh().partitions[0].epoch > stale
            redirected(topic, topic.publish(GOOD, 1, owner_epoch=stale), wire.RedirectReason.STALE_EPOCH)
            assert topic.publish(GOOD, 1).header.first_offset == 1


def test_a_full_table_refuses_a_new_producer_and_forgets_no_live_one(tmp_path: Path) -> None:
    node = NodeProcess(tmp_path / "data", options=("--producers-max", "1"))
    with node, RawClient(node.address) as client:
        first = RawTopic(client, "full", SCHEMA, ["id"])
        assert first.publish(batch(0, 1), 0).status == Status.OK
        second = RawTopic.existing(client, first.topic, "full")
        refused(second.publish(batch(1, 1), 0), Code.OVERLOADED)
        again = first.publish(batch(0, 1), 0)
        assert again.status == Status.OK
        assert again.header.flags & wire.AnswerFlags.REPEATED
        assert first.publish(batch(2, 1), 1).status == Status.OK
        assert first.ends() == (0, 2)


@pytest.mark.parametrize(("low", "high"), [(0, 0), (2, 3), (9, 255), (5, 2)])
def test_a_client_of_other_versions_is_told_which_one_it_needs(
    topic: RawTopic, node: NodeProcess, low: int, high: int
) -> None:
    """P28; what is stored and who is connected are not affected."""
    with RawClient(node.address) as other:
        hello = messages.Hello(version_min=low, version_max=high, client="of another time")
        answer = other.control(Op.HELLO, hello)
        refused(answer, Code.UNSUPPORTED_VERSION)
        assert (
            f"this node {wire.PROTOCOL_VERSION_MIN}..={wire.PROTOCOL_VERSION}"
            in answer.read(messages.Refused).message
        )
        answer = other.ask(Op.STATUS, version=wire.PROTOCOL_VERSION + 1)
        refused(answer, Code.UNSUPPORTED_VERSION)


def big_endian(schema: pa.Schema) -> bytes:
    """The schema's message, of one column, marked as big-endian.

    The mark's place in the table of the flatbuffer is led to a 1 that is there already: the count of fields.
    """
    assert len(schema) == 1
    message = bytearray(schema.serialize().to_pybytes())

    def at(place: int, size: int = 4) -> int:
        return int.from_bytes(message[place : place + size], "little")

    def field(table: int, slot: int) -> int:
        """Where the table's vtable says where that field is."""
        return table - int.from_bytes(message[table : table + 4], "little", signed=True) + 4 + 2 * slot

    root = 8 + at(8)
    header = root + at(field(root, 2), 2)
    table = header + at(header)
    fields = table + at(field(table, 1), 2)
    count = fields + at(fields)
    assert at(count) == 1
    place = field(table, 0)
    message[place : place + 2] = (count - table).to_bytes(2, "little")
    return bytes(message)


def test_a_big_endian_schema_is_refused(topic: RawTopic) -> None:
    schema = pa.schema([pa.field("id", pa.int64())])
    marked = big_endian(schema)
    stream = marked + pa.RecordBatch.from_pylist([{"id": 1}], schema).serialize().to_pybytes()
    assert pa.ipc.open_stream(stream).read_next_batch()["id"].to_pylist() == [1 << 56], "it is what it says"
    refusals = [
        topic.client.control(Op.TOPIC_CREATE, messages.TopicCreate(name="big", schema=marked)),
        topic.client.control(Op.SCHEMA_ADD, messages.SchemaAdd(name=topic.table.name, schema=marked)),
    ]
    for answer in refusals:
        assert answer.status == Status.REFUSED
        assert "big-endian" in answer.read(messages.Refused).message


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
    for opcode in (Op.REPLICA_ACK, Op.CONFIRM_MARK, Op.ORDER):
        refused(topic.client.ask(opcode, **topic.place()), Code.NOT_SUPPORTED)
    for opcode in (Op.TABLE_PUSH, Op.WATCH_UPDATE, Op.ASSIGN):
        refused(topic.client.ask(opcode, **topic.place()), Code.UNKNOWN_OPCODE)


def test_what_only_members_send_is_refused_from_a_stranger(topic: RawTopic) -> None:
    refused(topic.client.ask(Op.ATTACH, **topic.place()), Code.UNKNOWN_COHORT)
    for opcode in (Op.ACKNOWLEDGE, Op.MEMBER_BEAT):
        for session in (0, 1, 2**64 - 1):
            answer = topic.client.ask(opcode, producer_id=session, **topic.place())
            refused(answer, Code.FENCED_MEMBER)


def test_what_only_owners_and_transactions_send_is_refused_from_a_stranger(topic: RawTopic) -> None:
    """The node was told to follow nobody, no scope was begun, and control requests need their flag."""
    for opcode in (Op.REPLICATE, Op.FENCE):
        refused(topic.client.ask(opcode, **topic.place()), Code.HELD)
    refused(topic.client.ask(Op.STAGE, **topic.place()), Code.ZERO_ROWS)
    refused(topic.client.ask(Op.STAGE, BYTES, rows=1, **topic.place()), Code.INVALID_ARGUMENT)
    control = (Op.BEGIN, Op.COMMIT, Op.EXPIRE, Op.STAGED_LIST, Op.WATCH_OPEN, Op.WATCH_CLOSE)
    for opcode in (*control, Op.JOIN, Op.LEAVE):
        refused(topic.client.ask(opcode, **topic.place()), Code.BAD_BODY)


@pytest.mark.parametrize(
    ("field", "code"),
    [
        ("magic", Code.BAD_HEADER),
        ("header_crc", Code.BAD_HEADER),
        ("version", Code.UNSUPPORTED_VERSION),
        ("flags", Code.BAD_HEADER),
        ("extension_bytes", Code.BAD_HEADER),
    ],
)
def test_a_damaged_header_is_refused(node: NodeProcess, topic: RawTopic, field: str, code: wire.Code) -> None:
    with RawClient(node.address) as stranger:
        stranger.socket.send_multipart(
            stranger.frames(Op.PUBLISH, BYTES, **{**topic.fields(1, 1), field: 77})
        )
        refused(stranger.receive(), code)


def ends_connection(stranger: RawClient, frames: list[bytes]) -> None:
    """The node ends the connection and answers nothing."""
    assert stranger.hello().status == Status.READY
    with stranger.socket.get_monitor_socket(zmq.EVENT_DISCONNECTED) as monitor:
        stranger.socket.send_multipart(frames)
        assert monitor.poll(ANSWER_TIMEOUT_MS), (
            f"still connected after {[len(frame) for frame in frames]} bytes"
        )
        stranger.socket.disable_monitor()
    assert stranger.receive(0) is None


@pytest.mark.parametrize(
    "frames", [[b""], [b"x" * 127], [b"x" * 129], [b"x" * 128, b"y", b"z"], [b"", b""], [b"garbage"] * 5]
)
def test_other_frames_end_the_connection_alone(
    node: NodeProcess, topic: RawTopic, frames: list[bytes]
) -> None:
    with RawClient(node.address) as stranger:
        ends_connection(stranger, frames)


def test_an_oversized_body_ends_its_connection_and_the_next_works(node: NodeProcess, topic: RawTopic) -> None:
    with RawClient(node.address) as stranger:
        body = bytes(wire.MESSAGE_BYTES_MAX + 64)
        ends_connection(stranger, stranger.frames(Op.PUBLISH, body, **topic.fields(1, 1)))


def test_oversized_notes_and_extensions_are_refused(topic: RawTopic) -> None:
    note = (1).to_bytes(2, "little") + bytes(2) + (5_000).to_bytes(4, "little") + b"n" * 5_000
    padded = note + bytes(-len(note) % 64)
    refused(topic.publish(padded + BYTES, 1, extension_bytes=len(padded)), Code.TOO_LARGE)
    broken = b"\x09\x00" + bytes(62)
    refused(topic.publish(broken + BYTES, 1, extension_bytes=64), Code.BAD_BODY)


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
        Op.COHORT_PARKED,
    ):
        answer = topic.client.ask(opcode, body, flags=wire.RequestFlags.CONTROL)
        refused(answer, Code.BAD_BODY)


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

    def fetch(offset: int, epoch: int = 0) -> Answer:
        named = {"topic": place["topic"], "partition": place["partition"], "owner_epoch": epoch}
        return topic.client.ask(Op.FETCH, sequence=offset, deadline_ms=100, **named)

    for offset, epoch, why in (
        (2, 0, "offset 2 is beyond its end at 1; the log begins at 0"),
        (10**12, 0, f"offset {10**12} is beyond its end at 1; the log begins at 0"),
        (10**12, place["owner_epoch"], f"offset {10**12} is beyond its end at 1; the log begins at 0"),
        (1, 1, f"the row before 1 is of epoch {place['owner_epoch']}, not 1; the log begins at 0"),
    ):
        answer = fetch(offset, epoch)
        refused(answer, Code.TRUNCATED)
        assert answer.read(messages.Refused).message.endswith(why), answer
    at_the_end = fetch(1)
    assert (at_the_end.status, at_the_end.body, at_the_end.header.first_offset) == (Status.OK, b"", 1)


def test_a_second_process_on_the_same_data_is_refused(node: NodeProcess, topic: RawTopic) -> None:
    second = NodeProcess(Path(node.data))
    with pytest.raises(AssertionError, match=f"exit code {Exit.STORAGE}"):
        second.start()


def test_listening_off_loopback_needs_insecure(tmp_path: Path) -> None:
    done = cli("serve", "--data", str(tmp_path / "d"), "--listen", "tcp://0.0.0.0:0", timeout_s=30)
    assert done.returncode == Exit.USAGE
    assert "--insecure" in done.stderr
    assert not (tmp_path / "d").exists() or not list((tmp_path / "d").iterdir())


def test_rivals_that_add_one_schema_at_once_all_have_it(node: NodeProcess) -> None:
    """Producers do so when a column appears: one entry is made, and nobody is refused."""
    wider = SCHEMA.append(pa.field("more", pa.int32()))
    rivals = 12
    gate = threading.Barrier(rivals)

    def add(_: int) -> int:
        with ringfence.connect(node.address, timeout_s=30) as client:
            client.topic("rivals")
            gate.wait(30)
            return client.add_schema("rivals", wider)

    with ringfence.connect(node.address, timeout_s=30) as client:
        client.create_topic("rivals", schema=SCHEMA, key=["id"])
        with ThreadPoolExecutor(rivals) as pool:
            assert set(pool.map(add, range(rivals))) == {1}
        assert len(client.topic("rivals").schemas) == 2
