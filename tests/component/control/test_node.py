"""The runtime above a fake native node: order of things, deadlines, refusals, failures."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from ringfence.control.model.ids import NodeId
from ringfence.control.model.topics import Replica
from ringfence.control.runtime.data_plane import retries
from ringfence.control.runtime.node_process import Node
from ringfence.control.runtime.process.settings import Settings
from ringfence.native import messages
from ringfence.native._node import schema_message
from ringfence.native.errors import ConfigError, StorageError
from ringfence.native.wire import Code, Opcode, Status
from tests.fakes.node_bench import CREATE, ID, NAME, SCHEMA, Bench, Patch, buried, run, soon

WIDER = schema_message(pa.schema([ID, NAME, pa.field("n", pa.int32())]))


def test_a_topic_is_answered_when_its_partitions_are_open(tmp_path: Path, monkeypatch: Patch) -> None:
    async def work(bench: Bench) -> None:
        info = await bench.ok(Opcode.TOPIC_CREATE, CREATE, messages.TopicInfo)
        assert info.created
        assert info.name == "public/default/t"
        assert [part.end_offset for part in info.partitions] == [100, 100, 100]
        assert bench.native.names() == ["listen", "install_topic", *["open"] * 3, "install_table"]
        assert bench.native.orders[1] == ("install_topic", info.topic, 1, (0,), 0, 0)
        assert bench.native.table.nodes[0].addresses == ["tcp://127.0.0.1:7411"]
        again = await bench.ok(
            Opcode.TOPIC_CREATE,
            messages.TopicCreate(name="t", schema=SCHEMA, key=["id"], exist_ok=True),
            messages.TopicInfo,
        )
        assert not again.created
        assert again.topic == info.topic
        assert await bench.refused(Opcode.TOPIC_CREATE, CREATE) == Code.ALREADY_EXISTS

    run(tmp_path, monkeypatch, work)


def test_a_restart_opens_everything_under_new_epochs_before_it_listens(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    epochs: list[int] = []

    async def first(bench: Bench) -> None:
        await bench.ok(Opcode.TOPIC_CREATE, CREATE, messages.TopicInfo)
        epochs.append(bench.native.orders[2][-1])

    async def second(bench: Bench) -> None:
        assert bench.native.names() == ["install_topic", *["open"] * 3, "install_table", "listen"]
        again = {order[-1] for order in bench.native.orders if order[0] == "open"}
        assert len(again) == 1
        assert again.pop() > epochs[0]
        status = await bench.ok(Opcode.STATUS, None, messages.Status)
        assert (status.state, status.topics, status.partitions) == ("serving", 1, 3)

    run(tmp_path, monkeypatch, first)
    run(tmp_path, monkeypatch, second)


def test_a_free_port_is_told_once_it_is_known(tmp_path: Path, monkeypatch: Patch) -> None:
    async def work(bench: Bench) -> None:
        assert bench.node.addresses == ["tcp://127.0.0.1:4711"]
        await bench.ok(Opcode.TOPIC_CREATE, CREATE, messages.TopicInfo)
        assert bench.native.table.nodes[0].addresses == ["tcp://127.0.0.1:4711"]

    run(tmp_path, monkeypatch, work, listen=("tcp://127.0.0.1:0",))


def test_a_named_producer_fences_every_partition_and_gets_what_was_left(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    async def work(bench: Bench) -> None:
        info = await bench.ok(Opcode.TOPIC_CREATE, CREATE, messages.TopicInfo)
        second = info.partitions[1].partition
        bench.native.resume[second] = {"sequence": 4, "send": 9, "note": b"row 9", "offset": 40, "rows": 5}
        body = messages.ProducerOpen(topic="t", name="loader")
        first = await bench.ok(Opcode.PRODUCER_OPEN, body, messages.ProducerOpened)
        point = messages.ResumePoint(
            partition=second, sequence=4, send=9, note=b"row 9", first_offset=40, rows=5
        )
        assert first.resume == [point]
        opened = [order for order in bench.native.orders if order[0] == "open_producer"]
        assert {order[2] for order in opened} == {part.partition for part in info.partitions}
        assert {order[3:] for order in opened} == {(first.producer_id, first.producer_epoch, b"loader")}
        again = await bench.ok(Opcode.PRODUCER_OPEN, body, messages.ProducerOpened)
        assert again.producer_id == first.producer_id
        assert again.producer_epoch > first.producer_epoch
        bench.native.refuses["open_producer"] = "the disk is gone"
        assert await bench.refused(Opcode.PRODUCER_OPEN, body) == Code.INTERNAL

    run(tmp_path, monkeypatch, work)


def test_unnamed_producers_get_ids_of_their_own(tmp_path: Path, monkeypatch: Patch) -> None:
    async def work(bench: Bench) -> None:
        await bench.ok(Opcode.TOPIC_CREATE, CREATE, messages.TopicInfo)
        body = messages.ProducerOpen(topic="t", count=10)
        first = await bench.ok(Opcode.PRODUCER_OPEN, body, messages.ProducerOpened)
        second = await bench.ok(Opcode.PRODUCER_OPEN, body, messages.ProducerOpened)
        assert second.producer_id >= first.producer_id + 10
        assert second.producer_epoch > first.producer_epoch
        assert (
            await bench.refused(Opcode.PRODUCER_OPEN, messages.ProducerOpen(topic="t", count=0))
            == Code.INVALID_ARGUMENT
        )
        assert (
            await bench.refused(Opcode.PRODUCER_OPEN, messages.ProducerOpen(topic="nope"))
            == Code.UNKNOWN_TOPIC
        )

    run(tmp_path, monkeypatch, work)


def test_schemas_truncation_and_deletion_become_orders(tmp_path: Path, monkeypatch: Patch) -> None:
    async def work(bench: Bench) -> None:
        info = await bench.ok(Opcode.TOPIC_CREATE, CREATE, messages.TopicInfo)
        bench.native.orders.clear()
        wider = messages.SchemaAdd(name="t", schema=WIDER)
        assert (await bench.ok(Opcode.SCHEMA_ADD, wider, messages.SchemaAdded)).schema_id == 1
        assert (await bench.ok(Opcode.SCHEMA_ADD, wider, messages.SchemaAdded)).schema_id == 1
        assert bench.native.names() == ["install_topic", "install_table"]
        part = info.partitions[0].partition
        await bench.ok(
            Opcode.TOPIC_TRUNCATE,
            messages.TopicTruncate(name="t", partition=part, before_offset=7),
            messages.TopicInfo,
        )
        assert ("truncate", info.topic, part, 7, info.partitions[0].epoch) in bench.native.orders
        beyond = messages.TopicTruncate(name="t", before_offset=101)
        assert await bench.refused(Opcode.TOPIC_TRUNCATE, beyond) == Code.INVALID_ARGUMENT
        bench.native.orders.clear()
        await bench.ok(Opcode.TOPIC_DELETE, messages.TopicName(name="t"), messages.TopicInfo)
        assert bench.native.names() == ["remove_topic", "drop", "drop", "drop"]
        await buried(bench)
        assert await bench.refused(Opcode.TOPIC_DESCRIBE, messages.TopicName(name="t")) == Code.UNKNOWN_TOPIC

    run(tmp_path, monkeypatch, work)


def test_a_drop_whose_confirmation_was_lost_is_confirmed_at_the_next_start(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    """The store does not know the partitions any more, and says so: there is nothing left to drop."""

    async def first(bench: Bench) -> None:
        await bench.ok(Opcode.TOPIC_CREATE, CREATE, messages.TopicInfo)
        bench.native.refuses["drop"] = "killed before the confirmation"
        await bench.refused(Opcode.TOPIC_DELETE, messages.TopicName(name="t"))

    async def second(bench: Bench) -> None:
        await buried(bench)
        assert bench.node.health.state == "serving"

    run(tmp_path, monkeypatch, first)
    run(
        tmp_path,
        monkeypatch,
        second,
        prepare=lambda native: native.refuses.update(drop="is not on this store"),
    )


def test_unsound_requests_are_refused_and_change_nothing(tmp_path: Path, monkeypatch: Patch) -> None:
    async def work(bench: Bench) -> None:
        index = bench.node.proposer.applied.index
        refused = bench.refused
        bad_name = messages.TopicCreate(name="a b", schema=SCHEMA)
        assert await refused(Opcode.TOPIC_CREATE, bad_name) == Code.INVALID_ARGUMENT
        garbage = messages.TopicCreate(name="t", schema=b"x")
        assert await refused(Opcode.TOPIC_CREATE, garbage) == Code.BAD_BODY
        none = messages.TopicCreate(name="t", schema=SCHEMA, partitions=0)
        assert await refused(Opcode.TOPIC_CREATE, none) == Code.INVALID_ARGUMENT
        three = messages.TopicCreate(name="t", schema=SCHEMA, replication=3)
        assert await refused(Opcode.TOPIC_CREATE, three) == Code.TOO_FEW_REPLICAS
        missing = messages.TopicCreate(name="t", schema=SCHEMA, key=["nope"])
        assert await refused(Opcode.TOPIC_CREATE, missing) == Code.INVALID_ARGUMENT
        for body in (b"", b"\xc1", b"\x93\x01\x02", b"\x81\xa4name\x01", b"\x91" * 10_000, b"\xff" * 1_000):
            assert await refused(Opcode.TOPIC_CREATE, body) == Code.BAD_BODY
        assert await refused(Opcode.BEGIN, b"") == Code.BAD_BODY
        assert await refused(Opcode.ATTACH, b"") == Code.NOT_SUPPORTED
        assert bench.node.proposer.applied.index == index

    run(tmp_path, monkeypatch, work)


def test_a_deadline_gives_an_unknown_outcome_and_the_work_goes_on(tmp_path: Path, monkeypatch: Patch) -> None:
    async def work(bench: Bench) -> None:
        bench.native.holds.add("open")
        # Long enough that a busy machine has proposed it by then.
        header, _ = await bench.ask(Opcode.TOPIC_CREATE, CREATE, deadline_ms=300)
        assert (header.status, header.code) == (Status.REFUSED, Code.UNKNOWN_OUTCOME)
        bench.native.release()
        header, packed = await bench.ask(Opcode.TOPIC_DESCRIBE, messages.TopicName(name="t"))
        for _ in range(100):  # the deadline may have ended before the entry was applied
            if header.status == Status.OK:
                break
            await asyncio.sleep(0.02)
            header, packed = await bench.ask(Opcode.TOPIC_DESCRIBE, messages.TopicName(name="t"))
        assert len(messages.decode(messages.TopicInfo, packed).partitions) == 3

    run(tmp_path, monkeypatch, work)


def test_topics_are_listed_page_by_page(tmp_path: Path, monkeypatch: Patch) -> None:
    async def work(bench: Bench) -> None:
        names = [f"t{number}" for number in range(7)]
        await asyncio.gather(
            *(
                bench.ok(
                    Opcode.TOPIC_CREATE, messages.TopicCreate(name=name, schema=SCHEMA), messages.TopicInfo
                )
                for name in names
            )
        )
        found: list[str] = []
        after = ""
        while True:
            page = await bench.ok(
                Opcode.TOPIC_LIST, messages.TopicList(after=after, limit=3), messages.Topics
            )
            found += [info.name for info in page.topics]
            if not page.more:
                break
            after = found[-1]
        assert found == [f"public/default/{name}" for name in names]
        other = await bench.ok(Opcode.TOPIC_LIST, messages.TopicList(prefix="acme/"), messages.Topics)
        assert other == messages.Topics(topics=[])

    run(tmp_path, monkeypatch, work)


def test_worries_are_reasons_and_end(tmp_path: Path, monkeypatch: Patch) -> None:
    async def work(bench: Bench) -> None:
        bench.native.tell(("disk_full", 0, True))
        bench.native.tell(("quarantined", 2, 3, "record 9: CRC"))
        bench.native.tell(("shard_failed", 1, "EIO"))
        status = await bench.ok(Opcode.STATUS, None, messages.Status)
        assert status.state == "degraded"
        assert status.reasons == [
            "disk full: shard 0 has no space for rows; reads go on",
            "partition 3 of topic 2 is quarantined: record 9: CRC",
            "storage failed: shard 1: EIO; check the disk, then start the node again",
        ]
        bench.native.tell(("disk_full", 0, False))
        assert len((await bench.ok(Opcode.STATUS, None, messages.Status)).reasons) == 2

    run(tmp_path, monkeypatch, work)


@pytest.mark.parametrize("replicas", [1, 2])
def test_a_node_whose_disk_failed_ends_when_others_have_what_it_has(
    tmp_path: Path, monkeypatch: Patch, replicas: int
) -> None:
    async def work(bench: Bench) -> None:
        await bench.ok(Opcode.TOPIC_CREATE, CREATE, messages.TopicInfo)
        state, other = bench.node.proposer.state, Replica(node=NodeId(9), store=bytes(16))
        (topic,) = state.topics.values()
        shared = {
            partition: msgspec.structs.replace(one, replicas=(*one.replicas, other)[:replicas])
            for partition, one in topic.assignments.items()
        }
        topics = {topic.topic: msgspec.structs.replace(topic, assignments=shared)}
        with monkeypatch.context() as changed:
            known = msgspec.structs.replace(state, topics=topics)
            changed.setattr(type(bench.node.proposer), "state", property(lambda _: known))
            bench.native.tell(("shard_failed", 1, "EIO"))
            await soon(lambda: bool(bench.node.health.reasons))
            assert bench.node.failed.done() == (replicas == 2)
        if replicas == 2:
            failure = bench.node.failed.result()
            assert isinstance(failure, StorageError)
            assert "shard 1: EIO; check the disk" in str(failure)

    run(tmp_path, monkeypatch, work)


def recovered(topic: int, owner_epoch: int) -> dict[str, Any]:
    """A partition in the native node's recovery report."""
    counters = {"start_offset": 0, "end_offset": 12, "owner_epoch": owner_epoch, "fence": 0}
    return {"topic": topic, "partition": 7, **counters, "quarantined": None}


def test_rows_without_metadata_are_reported_and_kept(tmp_path: Path, monkeypatch: Patch) -> None:
    found = recovered(topic=99, owner_epoch=1)

    async def nothing(_: Bench) -> None:
        """A first start, so that index 1 exists."""

    async def work(bench: Bench) -> None:
        status = await bench.ok(Opcode.STATUS, None, messages.Status)
        assert status.reasons == [
            "data without metadata: 12 rows of partition 7 of topic 99; kept as they are"
        ]
        assert "drop" not in bench.native.names()

    run(tmp_path, monkeypatch, nothing)
    run(tmp_path, monkeypatch, work, prepare=lambda native: native.found.append(found))


def test_metadata_older_than_the_rows_ends_the_start(tmp_path: Path, monkeypatch: Patch) -> None:
    found = recovered(topic=2, owner_epoch=500)

    async def never(_: Bench) -> None:
        raise AssertionError("the node started")

    with pytest.raises(StorageError, match="older than the rows"):
        run(tmp_path, monkeypatch, never, prepare=lambda native: native.found.append(found))


def test_a_dead_engine_fails_the_node(tmp_path: Path, monkeypatch: Patch) -> None:
    async def work(bench: Bench) -> None:
        bench.native.broken = "the engine's thread panicked"
        bench.native.tell(("disk_full", 0, True))
        error = await asyncio.wait_for(asyncio.shield(bench.node.failed), 5)
        assert "panicked" in str(error)
        bench.native.broken = None

    run(tmp_path, monkeypatch, work)


NOBODYS = "tcp://192.0.2.1:1"
"""An address for documents (RFC 5737): no machine has it."""


async def nothing(_: Bench) -> None:
    """Started."""


@pytest.mark.parametrize("address", ["tcp://0.0.0.0:0", "tcp://example.com:1", "tcp://*:0", NOBODYS])
def test_listening_off_loopback_must_be_asked_for(tmp_path: Path, monkeypatch: Patch, address: str) -> None:
    with pytest.raises(ConfigError, match="off loopback"):
        run(tmp_path, monkeypatch, nothing, listen=(address,))
    assert not tmp_path.joinpath("store.toml").exists()
    if address != NOBODYS:
        run(tmp_path, monkeypatch, nothing, listen=(address,), insecure=True)


def test_an_address_that_this_machine_does_not_have_leaves_no_store(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    with pytest.raises(ConfigError, match=r"192\.0\.2\.1.*No store was created"):
        run(tmp_path, monkeypatch, nothing, listen=(NOBODYS,), insecure=True)
    assert not tmp_path.joinpath("store.toml").exists()


def test_a_journal_that_fails_while_the_node_starts_ends_the_start(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    # Found by a simulated cluster: nobody looked at `failed` before the node served, and it hung for good.
    async def work() -> None:
        node = Node(Settings(data_dir=tmp_path))

        async def catch_up(_: object) -> None:
            node.fail(StorageError("the journal is gone"))
            await asyncio.Event().wait()

        monkeypatch.setattr("ringfence.control.runtime.cluster.Cluster.catch_up", catch_up)
        with pytest.raises(StorageError, match="while it started: the journal is gone"):
            await asyncio.wait_for(node.start(), 60)

    asyncio.run(work())


def test_a_partition_that_could_not_be_opened_is_tried_again_until_it_is(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    """J4: the order is repeated as it was: the same epoch, so an open that had been done stays done."""
    monkeypatch.setattr(retries, "DELAY_S", 0.01)

    async def work(bench: Bench) -> None:
        bench.native.refuses["open"] = "no space"
        assert await bench.refused(Opcode.TOPIC_CREATE, CREATE) == Code.INTERNAL
        assert bench.node.health.state == "degraded"
        await soon(lambda: bench.native.names().count("open") >= 8)
        del bench.native.refuses["open"]
        await soon(lambda: bench.node.health.state == "serving")
        opens = {order for order in bench.native.orders if order[0] == "open"}
        assert len(opens) == 3
        assert len(bench.native.hosted) == 3

    run(tmp_path, monkeypatch, work)


def test_a_partition_that_is_not_ours_any_more_is_not_opened_again(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(retries, "DELAY_S", 0.01)

    async def work(bench: Bench) -> None:
        bench.native.refuses["open"] = "no space"
        assert await bench.refused(Opcode.TOPIC_CREATE, CREATE) == Code.INTERNAL
        await bench.ok(Opcode.TOPIC_DELETE, messages.TopicName(name="t"), messages.TopicInfo)
        for _ in range(100):
            before = bench.native.names().count("open")
            await asyncio.sleep(0.05)
            if bench.native.names().count("open") == before:
                assert not [reason for reason in bench.node.health.reasons if "opening" in reason]
                return
        raise AssertionError("it is tried for ever")

    run(tmp_path, monkeypatch, work)
