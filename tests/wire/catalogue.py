"""Every message of the protocol once, with values that a reader can follow through the document."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from ringfence.native import cluster_messages as cluster
from ringfence.native import messages, wire
from tests.wire.catalogue_cohorts import acknowledgements, administration, members, parked
from tests.wire.catalogue_gates import gates
from tests.wire.catalogue_layouts import layout_changes
from tests.wire.catalogue_watches import tables, watches
from tests.wire.codec import (
    EPOCH,
    PARTITION,
    PRODUCER,
    PRODUCER_EPOCH,
    TOPIC,
    VERSION,
    answer,
    control,
    extension,
    record,
    reply,
    request,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

FOLDER = Path(__file__).resolve().parent

CLUSTER = bytes(range(0x10, 0x20))
HISTORY = bytes(range(0x20, 0x30))
STORE = bytes(range(0x30, 0x40))


SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string())])
ROWS = pa.record_batch([pa.array([1, 2, 3], pa.int64()), pa.array(["a", None, "ccc"])], schema=SCHEMA)
# Written once with pyarrow and kept as bytes, so that another version of it cannot change the vectors.
SCHEMA_MESSAGE = bytes.fromhex((FOLDER / "schema_message.hex").read_text())
BATCH_MESSAGE = bytes.fromhex((FOLDER / "batch_message.hex").read_text())

PLACE: dict[str, Any] = {
    "topic": TOPIC,
    "partition": PARTITION,
    "layout_version": VERSION,
    "owner_epoch": EPOCH,
}
WRITER: dict[str, Any] = {"producer_id": PRODUCER, "producer_epoch": PRODUCER_EPOCH, "sequence": 4, "send": 5}
Op, St = wire.Opcode, wire.Status
TABLE = messages.Table(
    topic=TOPIC,
    name="public/default/lineitem",
    history=HISTORY,
    generation=14,
    version=VERSION,
    key=["id"],
    schemas=[SCHEMA_MESSAGE],
    replication=1,
    partitions=[
        messages.PartitionEntry(partition=PARTITION, lo=0, hi=65535, state="ACTIVE", owner=1, epoch=EPOCH)
    ],
    nodes=[messages.NodeEntry(node=1, addresses=["tcp://127.0.0.1:7411"])],
)
TOPIC_INFO = messages.TopicInfo(
    topic=TOPIC,
    name="public/default/lineitem",
    version=VERSION,
    key=["id"],
    schema_messages=[SCHEMA_MESSAGE],
    replication=1,
    retention_bytes=None,
    retention_ms=None,
    properties={},
    created=True,
    partitions=[
        messages.PartitionStats(
            partition=PARTITION,
            name="0000-ffff-9",
            lo=0,
            hi=65535,
            state="ACTIVE",
            owner=1,
            epoch=EPOCH,
            start_offset=0,
            end_offset=0,
            bytes=0,
        )
    ],
)
STATUS = messages.Status(
    cluster=CLUSTER,
    history=HISTORY,
    node=1,
    store=STORE,
    program="ringfence 0.1.0",
    state="serving",
    reasons=[],
    addresses=["tcp://127.0.0.1:7411"],
    uptime_s=60.0,
    index=14,
    topics=1,
    partitions=1,
    counters={"rows": 15},
    leader=1,
    term=1,
    role="leader",
    members=1,
)


def handshake() -> Iterator[tuple[str, dict[str, Any]]]:
    yield (
        "hello",
        control(Op.HELLO, messages.Hello(version_min=1, version_max=1, client="example 1.0"), request_id=1),
    )
    ready = messages.Ready(
        cluster=CLUSTER,
        history=HISTORY,
        node=1,
        store=STORE,
        version_min=1,
        version_max=1,
        program="ringfence 0.1.0",
        message_bytes_max=wire.MESSAGE_BYTES_MAX,
        window=wire.DEDUPE_WINDOW,
        heartbeat_ms=10_000,
        features=int(wire.Features.RESUME_RANGES | wire.Features.LINEAGE),
    )
    yield "ready", reply(Op.HELLO, ready, St.READY, request_id=1, generation=14)
    cohorts = int(wire.Features.RESUME_RANGES | wire.Features.LINEAGE | wire.Features.COHORTS)
    with_cohorts = msgspec.structs.replace(ready, features=cohorts)
    yield "ready_with_cohorts", reply(Op.HELLO, with_cohorts, St.READY, request_id=1, generation=14)


def topics() -> Iterator[tuple[str, dict[str, Any]]]:  # table
    name = messages.TopicName(name="lineitem")
    yield (
        "topic_create",
        control(
            Op.TOPIC_CREATE,
            messages.TopicCreate(name="lineitem", schema=SCHEMA_MESSAGE, key=["id"]),
            request_id=2,
            deadline_ms=30_000,
        ),
    )
    yield "topic_create_ok", reply(Op.TOPIC_CREATE, TOPIC_INFO, request_id=2)
    yield "topic_describe", control(Op.TOPIC_DESCRIBE, name, request_id=3, deadline_ms=30_000)
    yield (
        "topic_list",
        control(Op.TOPIC_LIST, messages.TopicList(prefix="public/"), request_id=4, deadline_ms=30_000),
    )
    yield "topic_list_ok", reply(Op.TOPIC_LIST, messages.Topics(topics=[TOPIC_INFO]), request_id=4)
    yield "topic_list_cluster", control(Op.TOPIC_LIST, messages.TopicList(cluster=True), request_id=27)
    cluster_of = messages.Topics(
        topics=[],
        names=[(TOPIC, TOPIC_INFO.name)],
        nodes=[messages.NodeEntry(node=1, addresses=["tcp://127.0.0.1:7411"])],
        generation=18,
    )
    yield "topic_list_cluster_ok", reply(Op.TOPIC_LIST, cluster_of, request_id=27)
    yield (
        "topic_truncate",
        control(
            Op.TOPIC_TRUNCATE,
            messages.TopicTruncate(name="lineitem", partition=PARTITION, before_offset=3),
            request_id=5,
            deadline_ms=30_000,
        ),
    )
    known = msgspec.structs.replace(TOPIC_INFO, created=False)
    yield "topic_truncate_ok", reply(Op.TOPIC_TRUNCATE, known, request_id=5)
    yield (
        "topic_delete",
        control(Op.TOPIC_DELETE, messages.TopicDelete(name="lineitem"), request_id=6, deadline_ms=30_000),
    )
    yield (
        "schema_add",
        control(
            Op.SCHEMA_ADD,
            messages.SchemaAdd(name="lineitem", schema=SCHEMA_MESSAGE),
            request_id=7,
            deadline_ms=30_000,
        ),
    )
    yield "schema_add_ok", reply(Op.SCHEMA_ADD, messages.SchemaAdded(schema_id=1), request_id=7)
    yield (
        "producer_open",
        control(
            Op.PRODUCER_OPEN,
            messages.ProducerOpen(topic="lineitem", name="loader-1"),
            request_id=8,
            deadline_ms=30_000,
        ),
    )
    yield (
        "producer_open_ok",
        reply(
            Op.PRODUCER_OPEN,
            messages.ProducerOpened(
                producer_id=PRODUCER,
                producer_epoch=PRODUCER_EPOCH,
                resume=[
                    messages.ResumePoint(
                        partition=PARTITION, sequence=3, send=4, note=b"file 7", first_offset=9, rows=3
                    )
                ],
            ),
            request_id=8,
        ),
    )
    yield "status", request(Op.STATUS, request_id=9, deadline_ms=30_000)
    yield "status_ok", reply(Op.STATUS, STATUS, request_id=9)
    yield "table", request(Op.TABLE, request_id=10, topic=TOPIC)
    yield (
        "table_ok",
        reply(Op.TABLE, TABLE, request_id=10, topic=TOPIC, layout_version=VERSION, generation=14),
    )
    yield (
        "table_push",
        reply(Op.TABLE_PUSH, TABLE, St.PUSH, topic=TOPIC, layout_version=VERSION, generation=14),
    )
    yield "table_ack", request(Op.TABLE_ACK, topic=TOPIC, sequence=14)
    yield from tables()


def rows() -> Iterator[tuple[str, dict[str, Any]]]:
    note = extension(wire.ExtensionKind.NOTE, b"file 7, row 9")
    stored: dict[str, Any] = {**PLACE, "sequence": 4, "send": 5, "end_offset": 15, "generation": 14}
    yield (
        "publish",
        request(Op.PUBLISH, BATCH_MESSAGE, request_id=11, rows=3, deadline_ms=30_000, **PLACE, **WRITER),
    )
    yield (
        "publish_with_note",
        request(
            Op.PUBLISH,
            note + BATCH_MESSAGE,
            request_id=12,
            rows=3,
            deadline_ms=30_000,
            extension_bytes=len(note),
            **PLACE,
            **{**WRITER, "sequence": 5, "send": 6},
        ),
    )
    yield "publish_ok", answer(Op.PUBLISH, St.OK, request_id=11, rows=3, first_offset=12, **stored)
    yield (
        "publish_repeated",
        answer(
            Op.PUBLISH,
            St.OK,
            request_id=11,
            rows=3,
            first_offset=12,
            flags=wire.AnswerFlags.REPEATED,
            **stored,
        ),
    )
    yield (
        "publish_redirect",
        reply(
            Op.PUBLISH,
            messages.Redirected(owner=2, addresses=["tcp://127.0.0.1:7412"]),
            St.REDIRECT,
            request_id=11,
            code=wire.RedirectReason.STALE_VERSION,
            topic=TOPIC,
            partition=PARTITION,
            layout_version=1,
            owner_epoch=20,
            generation=21,
        ),
    )


def refusals() -> Iterator[tuple[str, dict[str, Any]]]:
    for code, values in (
        (wire.Code.SEQUENCE_GAP, {"sequence": 3}),
        (wire.Code.FORGOTTEN, {"producer_epoch": 15}),
        (wire.Code.CONFLICT, {"first_offset": 12}),
        (wire.Code.HELD, {"partition": 9}),
        (wire.Code.TRUNCATED, {"start_offset": 3}),
    ):
        retry = 50 if code == wire.Code.HELD else 0
        opcode = Op.FETCH if code == wire.Code.TRUNCATED else Op.PUBLISH
        body = messages.Refused(message=f"partition 9: {code.name.lower().replace('_', ' ')}", details=values)
        yield (
            f"refused_{code.name.lower()}",
            reply(
                opcode,
                body,
                St.REFUSED,
                request_id=11,
                code=code,
                retry_after_ms=retry,
                generation=14,
                first_offset=3 if code == wire.Code.TRUNCATED else 0,
                sequence=3 if code == wire.Code.SEQUENCE_GAP else 0,
                **PLACE,
            ),
        )


def reading() -> Iterator[tuple[str, dict[str, Any]]]:
    run = record(BATCH_MESSAGE, record_number=6, first_offset=12, rows=3, **WRITER)
    yield (
        "fetch",
        request(
            Op.FETCH,
            request_id=13,
            topic=TOPIC,
            partition=PARTITION,
            sequence=12,
            send=1_048_576,
            deadline_ms=500,
        ),
    )
    yield (
        "fetch_ok",
        answer(
            Op.FETCH,
            St.OK,
            run,
            request_id=13,
            rows=3,
            first_offset=12,
            **{**PLACE, "end_offset": 15, "generation": 14},
        ),
    )
    yield "end_offsets", request(Op.END_OFFSETS, request_id=14, topic=TOPIC, partition=PARTITION)
    yield (
        "end_offsets_ok",
        answer(
            Op.END_OFFSETS,
            St.OK,
            request_id=14,
            first_offset=0,
            send=12,
            **{**PLACE, "end_offset": 15, "generation": 14},
        ),
    )
    yield (
        "offset_for_time",
        request(
            Op.OFFSET_FOR_TIME, request_id=15, topic=TOPIC, partition=PARTITION, sequence=1_767_225_600_000
        ),
    )
    first = {**PLACE, "end_offset": 15, "generation": 14}
    yield (
        "offset_for_time_ok",
        answer(Op.OFFSET_FOR_TIME, St.OK, request_id=15, first_offset=12, send=12, **first),
    )
    yield (
        "resolve",
        request(Op.RESOLVE, request_id=16, topic=TOPIC, partition=PARTITION, producer_id=PRODUCER),
    )
    yield (
        "resolve_ok",
        reply(
            Op.RESOLVE,
            messages.Resolved(
                producer_epoch=PRODUCER_EPOCH, sequence=4, send=5, answers=[(3, 9, 3), (4, 12, 3)]
            ),
            request_id=16,
            **PLACE,
        ),
    )


def replicas() -> Iterator[tuple[str, dict[str, Any]]]:
    run = record(BATCH_MESSAGE, record_number=6, first_offset=12, rows=3, **WRITER)
    # The mark is below record 6, at row 12.
    yield (
        "replicate",
        request(Op.REPLICATE, run, request_id=30, **PLACE, sequence=6, send=6, producer_epoch=12),
    )
    yield "replica_ack", answer(Op.REPLICA_ACK, St.OK, request_id=30, **PLACE, sequence=7)
    bound = (1 << 64) - 1
    yield (
        "fence",
        request(Op.FENCE, request_id=32, topic=TOPIC, partition=PARTITION, owner_epoch=20, sequence=bound),
    )
    yield (
        "fence_ok",
        answer(
            Op.FENCE,
            St.OK,
            STORE,
            request_id=32,
            topic=TOPIC,
            partition=PARTITION,
            owner_epoch=12,
            sequence=7,
            end_offset=15,
            send=0x0123456789ABCDEF,
        ),
    )
    yield "copy", request(Op.COPY, request_id=33, **PLACE, sequence=0, send=1_048_576)
    yield "confirm_mark", request(Op.CONFIRM_MARK, request_id=34, **PLACE)
    yield (
        "order",
        control(
            Op.ORDER,
            cluster.Order(
                term=3,
                operation=25,
                kind="open",
                topic=TOPIC,
                partition=PARTITION,
                epoch=26,
                replicas=[1, 2, 3],
            ),
            request_id=35,
        ),
    )


def scopes() -> Iterator[tuple[str, dict[str, Any]]]:
    stage = struct.pack("<QQQII", 30, 31, 8, 2, 0) + bytes(range(16))
    staged = extension(wire.ExtensionKind.STAGE, stage)
    begin = cluster.ScopeBegin(scope="query-1", instance=b"run-3", after=29)
    yield "begin", control(Op.BEGIN, begin, request_id=40)
    yield (
        "begin_ok",
        reply(Op.BEGIN, cluster.ScopeBegun(scope_id=30, driver=31, committed=6, decided=7), request_id=40),
    )
    yield (
        "stage",
        request(
            Op.STAGE,
            staged + BATCH_MESSAGE,
            request_id=41,
            rows=3,
            extension_bytes=len(staged),
            **PLACE,
            sequence=0,
        ),
    )
    yield "stage_ok", answer(Op.STAGE, St.STAGED, request_id=41, rows=3, **PLACE)
    yield (
        "commit",
        control(
            Op.COMMIT,
            cluster.ScopeCommit(
                scope_id=30, driver=31, epoch=8, tokens=[bytes(range(16))], parts=[(7, 9, 3)]
            ),
            request_id=42,
        ),
    )
    again = messages.encode(cluster.AlreadyCommitted(own=True))
    yield "commit_again", answer(Op.COMMIT, St.ALREADY_COMMITTED, again, request_id=42)
    yield "expire", control(Op.EXPIRE, cluster.ScopeExpire(scope_id=30, epoch=8, driver=31), request_id=43)
    yield "expire_ok", reply(Op.EXPIRE, cluster.ScopeCommitted(), request_id=43)


def all_vectors() -> Iterator[tuple[str, dict[str, Any]]]:
    for part in (handshake, topics, rows, refusals, reading):
        yield from part()
    yield from watches(TABLE)
    for part in (members, acknowledgements, gates, administration, parked, replicas, scopes, layout_changes):
        yield from part()
