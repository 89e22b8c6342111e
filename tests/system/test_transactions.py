"""Atomic writes against the running program: all of a transaction's rows, or none, whatever is killed."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import ringfence
import ringfence.aio
from ringfence.common.scope_values import Begun, StagedRows
from tests.fakes.client_topic import SCHEMA, ids_of, rows, until
from tests.harness.cluster import ThreeNodes
from tests.harness.processes import NodeProcess
from tests.harness.proxy import Proxy


@pytest.fixture
def client(node: NodeProcess) -> Iterator[ringfence.Client]:
    with ringfence.connect(node.address, timeout_s=30) as made:
        yield made


def test_rows_come_together_over_partitions_and_topics_and_keep_their_offsets(
    client: ringfence.Client,
) -> None:
    client.create_topic("one", schema=SCHEMA, key=["id"], partitions=4)
    client.create_topic("two", schema=SCHEMA)
    with client.producer("one") as producer:
        producer.send(rows(0, 100))
    with client.transaction("one", scope="both") as transaction:
        for start in range(100, 1100, 100):
            transaction.send(rows(start, 100))
        transaction.send(rows(5000, 10), topic="two")
        assert client.count("one") == 100, "nothing can be read before the commit"
    assert (transaction.rows, transaction.already, transaction.epoch) == (1010, False, 1)
    with client.producer("one") as producer:
        producer.send(rows(1100, 50))
    assert sorted(ids_of(client, "one")) == list(range(1150))
    assert ids_of(client, "two") == list(range(5000, 5010))
    for partition, ends in client.end_offsets("one").items():
        places = []
        reader = client.read("one", partition=partition, batch_rows=7)
        for batch in reader:
            assert reader.place is not None
            places.append((reader.place.first_offset, batch.num_rows))
        assert [at for at, _ in places] == [sum(count for _, count in places[:n]) for n in range(len(places))]
        middle = ends.end // 2
        part = pa.Table.from_batches(list(client.read("one", partition=partition, start=middle)))
        assert part.num_rows == ends.end - middle, "a read may begin in the middle of what was staged"


def test_after_an_exception_nothing_ever_comes(client: ringfence.Client) -> None:
    client.create_topic("failed", schema=SCHEMA, key=["id"], partitions=2)
    with contextlib.suppress(RuntimeError), client.transaction("failed", scope="fails") as transaction:
        transaction.send(rows(0, 1000))
        raise RuntimeError("the application fails")
    with client.transaction("failed", scope="fails") as again:
        again.send(rows(5000, 3))
    assert again.epoch == transaction.epoch + 1
    assert sorted(ids_of(client, "failed")) == [5000, 5001, 5002]


def test_an_epoch_that_is_run_again_changes_nothing_and_an_older_driver_is_fenced(
    client: ringfence.Client,
) -> None:
    client.create_topic("daily", schema=SCHEMA, key=["id"], partitions=2)
    for run in range(2):
        with client.transaction("daily", scope="daily", epoch=20260131) as transaction:
            transaction.send(rows(run * 100, 10))
        assert transaction.already is (run == 1)
    older = client.transaction("daily", scope="daily", epoch=20260201)
    older.send(rows(300, 10))
    with client.transaction("daily", scope="daily", epoch=20260201) as newer:
        newer.send(rows(200, 10))
    late = client.scopes.begin("daily", b"run-1")
    client.scopes.begin("daily", b"run-2")
    with pytest.raises(ringfence.FencedError):
        client.scopes.commit(late, 20260202, [])
    with pytest.raises(ringfence.FencedError):
        client.scopes.begin("daily", b"run-1")
    older.commit()
    assert older.already, "the newer one has committed this epoch"
    assert sorted(ids_of(client, "daily")) == [*range(10), *range(200, 210)]


def test_who_was_overtaken_by_another_writer_of_its_scope_hears_of_it(client: ringfence.Client) -> None:
    client.create_topic("raced", schema=SCHEMA, key=["id"], partitions=2)
    older = client.transaction("raced", scope="raced")
    older.send(rows(300, 10))
    with client.transaction("raced", scope="raced") as newer:
        newer.send(rows(200, 10))
    assert newer.epoch == older.epoch == 1
    with pytest.raises(ringfence.FencedError, match="another writer"):
        older.commit()
    assert sorted(ids_of(client, "raced")) == [*range(200, 210)]


def test_the_asyncio_twin_commits_all_of_a_block_or_nothing(
    client: ringfence.Client, node: NodeProcess
) -> None:
    client.create_topic("awaited", schema=SCHEMA, key=["id"], partitions=2)

    async def write() -> tuple[int, int]:
        async with ringfence.aio.connect(node.address) as twin:
            async with twin.transaction("awaited", scope="awaited") as transaction:
                await transaction.send(rows(0, 10))
                await transaction.flush()
                await transaction.send(rows(10, 10))
            with contextlib.suppress(ZeroDivisionError):
                async with twin.transaction("awaited", scope="awaited") as failed:
                    await failed.send(rows(100, 10))
                    _ = 1 / 0
            waiting = await twin.transaction("awaited", scope="awaited")
            late = asyncio.create_task(waiting.send(rows(200, 10)))
            await asyncio.sleep(0)
            late.cancel()
            await waiting.abort()
            offsets = await twin.offsets_at("awaited", dt.datetime(2000, 1, 1, tzinfo=dt.UTC))
            assert set(offsets.values()) == {0}
            return transaction.rows, len((await twin.layout("awaited")).active)

    assert asyncio.run(write()) == (20, 2)
    assert sorted(ids_of(client, "awaited")) == [*range(20)]


def test_the_asyncio_twin_stages_in_parts_that_one_commit_puts_into_the_log(
    client: ringfence.Client, node: NodeProcess
) -> None:
    client.create_topic("parts", schema=SCHEMA, key=["id"], partitions=2)

    async def write() -> tuple[list[int], list[bool]]:
        async with ringfence.aio.connect(node.address) as twin:
            begun = await twin.scopes.begin("parts")

            async def stage(start: int) -> StagedRows:
                attempt = twin.scopes.attempt(begun, begun.committed + 1)
                halves = (rows(at, 5) for at in (start, start + 5))
                await asyncio.gather(*(attempt.send("parts", half) for half in halves))
                await attempt.flush()
                return await attempt.finish()

            *kept, dropped = await asyncio.gather(*(stage(start) for start in (0, 10, 100)))
            assert dropped.rows == 10
            done = [await twin.scopes.commit(begun, begun.committed + 1, kept) for _ in range(2)]
            later = begun.committed + 2
            await twin.scopes.attempt(begun, later).send("parts", rows(200, 5))
            await twin.scopes.expire(begun, later)
            return sorted(staged.rows for staged in kept), done

    assert asyncio.run(write()) == ([10, 10], [True, True]), "the second call asks for what is committed"
    assert sorted(ids_of(client, "parts")) == [*range(20)]


def test_rows_that_do_not_fit_are_refused_and_end_the_transaction(client: ringfence.Client) -> None:
    client.create_topic("typed", schema=SCHEMA, key=["id"], partitions=2)
    wrong = pa.RecordBatch.from_pydict({"id": ["text"]})
    with (
        contextlib.suppress(ringfence.SchemaError),
        client.transaction("typed", scope="typed") as transaction,
    ):
        transaction.send(rows(0, 10))
        transaction.send(wrong)
        pytest.fail("text is no number")
    assert client.count("typed") == 0
    with pytest.raises(ringfence.NotFoundError):
        client.transaction("missing", scope="typed")
    transaction = client.transaction(scope="typed")
    with pytest.raises(ringfence.NotFoundError):
        transaction.send(rows(0, 10), topic="missing")


def test_cut_connections_lose_and_double_nothing(node: NodeProcess, client: ringfence.Client) -> None:
    client.create_topic("cut", schema=SCHEMA, key=["id"], partitions=4)
    with Proxy(node.address) as proxy, ringfence.connect(proxy.address, timeout_s=30) as cut:
        for number in range(5):
            with cut.transaction("cut", scope="cut", epoch=number + 1) as transaction:
                for start in range(0, 100, 10):
                    transaction.send(rows(number * 100 + start, 10))
                    if start in {30, 60}:
                        proxy.cut() if start == 30 else proxy.cut_answers()
                proxy.cut_answers()
        assert proxy.cuts >= 10
    assert sorted(ids_of(client, "cut")) == list(range(500))


def test_a_commit_whose_answers_are_lost_is_of_unknown_outcome_and_its_scope_tells(
    node: NodeProcess, client: ringfence.Client
) -> None:
    client.create_topic("mute", schema=SCHEMA)
    with Proxy(node.address) as proxy, ringfence.connect(proxy.address, timeout_s=3) as cut:
        transaction = cut.transaction("mute", scope="mute")
        transaction.send(rows(0, 10))
        transaction.flush()
        proxy.mute_for_good()
        with pytest.raises(
            ringfence.UnknownOutcomeError, match="either all of its rows are in the log or none"
        ):
            transaction.commit()
        until(lambda: client.count("mute") == 10, 30)
        proxy.heal()
        transaction.commit()
        assert (transaction.rows, transaction.already) == (10, False), "it was this very commit"
        with pytest.raises(ringfence.ClosedError):
            transaction.commit()
    assert sorted(ids_of(client, "mute")) == list(range(10))


def test_a_commit_of_attempts_that_are_not_its_own_is_refused_and_the_scope_goes_on(
    client: ringfence.Client,
) -> None:
    client.create_topic("own", schema=SCHEMA)
    begun, other = client.scopes.begin("own"), client.scopes.begin("other")

    def staged(begun: Begun, epoch: int, first: int) -> StagedRows:
        attempt = client.scopes.attempt(begun, epoch)
        attempt.send("own", rows(first, 10))
        return attempt.finish()

    good = staged(begun, 2, 0)
    with pytest.raises(ringfence.InvalidArgumentError, match="twice"):
        client.scopes.commit(begun, 2, [good, good])
    with pytest.raises(ringfence.InvalidArgumentError, match="epoch 2"):
        client.scopes.commit(begun, 1, [good])
    with pytest.raises(ringfence.InvalidArgumentError, match=f"scope {other.scope}"):
        client.scopes.commit(begun, 2, [good, staged(other, 2, 90)])
    assert client.scopes.commit(begun, 2, [good])
    assert client.scopes.commit(begun, 3, [staged(begun, 3, 10)])
    assert ids_of(client, "own") == list(range(20))


def test_a_commit_over_several_topics_names_the_one_that_is_gone(client: ringfence.Client) -> None:
    for topic in ("stays", "goes", "is-made-anew", "stays-too"):
        client.create_topic(topic, schema=SCHEMA, key=["id"], partitions=2)
    for gone in ("goes", "is-made-anew"):
        transaction = client.transaction(scope=f"names-{gone}")
        for topic in ("stays", gone, "stays-too"):
            transaction.send(rows(0, 20), topic=topic)
        transaction.flush()
        client.delete_topic(gone)
        if gone == "is-made-anew":
            client.create_topic(gone, schema=SCHEMA, key=["id"], partitions=2)
        with pytest.raises(ringfence.NotFoundError) as caught:
            transaction.commit()
        error = caught.value
        assert error.topic == f"public/default/{gone}"
        assert f"topic public/default/{gone} was deleted" in error.message
        assert "stays" not in error.message
    assert client.count("stays") == client.count("stays-too") == client.count("is-made-anew") == 0


def test_kills_between_stage_commit_and_publish_leave_all_or_nothing(tmp_path: Path) -> None:
    with NodeProcess(tmp_path / "data") as node, ringfence.connect(node.address, timeout_s=30) as client:
        client.create_topic("kills", schema=SCHEMA, key=["id"], partitions=8)
        staged = client.transaction("kills", scope="kept", epoch=1)
        staged.send(rows(0, 400))
        begun = client.scopes.begin("attempts")
        kept, dead = (client.scopes.attempt(begun, 1) for _ in range(2))
        kept.send("kills", rows(1000, 400))
        dead.send("kills", rows(9000, 400))
        finished = kept.finish()
        dead.finish()
        node.kill()
        node.restart()
        assert client.count("kills") == 0
        staged.send(rows(400, 100))  # the same attempt goes on: what is on disk is not sent again
        staged.commit()
        assert sorted(ids_of(client, "kills")) == list(range(500))
        # The node dies while the commit is under way: asked again, it was committed once.
        killer = threading.Timer(0.003, node.kill)
        killer.start()
        committing = threading.Thread(target=lambda: client.scopes.commit(begun, 1, [finished]))
        committing.start()
        killer.join()
        node.restart()
        committing.join(60)
        assert not committing.is_alive()
        expected = [*range(500), *range(1000, 1400)]
        assert sorted(ids_of(client, "kills")) == expected, "the dead attempt's rows never come"
        node.kill()
        node.restart()
        assert sorted(ids_of(client, "kills")) == expected


def test_a_commit_whose_asker_died_is_published_all_the_same(tmp_path: Path) -> None:
    with NodeProcess(tmp_path / "data") as node, ringfence.connect(node.address, timeout_s=30) as client:
        client.create_topic("orphan", schema=SCHEMA, key=["id"], partitions=4)
        begun = client.scopes.begin("orphan")
        attempt = client.scopes.attempt(begun, 1)
        attempt.send("orphan", rows(0, 200))
        staged = attempt.finish()
        with ringfence.connect(node.address, timeout_s=30) as other:

            def ask() -> None:
                with contextlib.suppress(ringfence.RingfenceError):  # nobody hears what becomes of it
                    other.scopes.commit(begun, 1, [staged])

            asking = threading.Thread(target=ask)
            asking.start()
        asking.join(30)
        until(lambda: client.count("orphan") in {0, 200})
        node.kill()
        node.restart()
        if client.count("orphan") == 0:  # the kill came before the entry: the driver would ask again
            client.scopes.commit(begun, 1, [staged])
        assert sorted(ids_of(client, "orphan")) == list(range(200))


def test_a_transaction_outlives_the_owners_of_its_rows(tmp_path: Path) -> None:
    """Rows are staged on two disks at least: whoever takes a partition over has them, and publishes them."""
    three = ThreeNodes(tmp_path).start()
    try:
        addresses = ",".join(node.address for node in three.nodes)
        with ringfence.connect(addresses, timeout_s=60) as client:
            client.create_topic("kept", schema=SCHEMA, key=["id"], partitions=6, replication=3)
            with client.producer("kept", timeout_s=60) as producer:
                producer.send(rows(0, 60)).result(60)
            with client.transaction("kept", scope="kept", epoch=1, timeout_s=60) as transaction:
                for start in range(1000, 2000, 100):
                    transaction.send(rows(start, 100))
                transaction.flush()
                owners = {part.owner for part in client.topic("kept").partitions}
                assert len(owners) > 1
                killed = next(place for place in (1, 2) if three.id(place) in owners)
                three.nodes[killed].kill()
                for start in range(2000, 3000, 100):
                    transaction.send(rows(start, 100))
            assert (transaction.rows, transaction.already) == (2000, False)
            expected = [*range(60), *range(1000, 3000)]
            assert sorted(ids_of(client, "kept")) == expected
            with client.transaction("kept", scope="kept", epoch=1) as again:
                again.send(rows(5000, 10))
            assert again.already
            three.nodes[killed].start()
            until(lambda: three.life(killed, seen_by=0) == "LIVE", timeout_s=60)
            other = 3 - killed
            three.nodes[other].kill()
            assert sorted(ids_of(client, "kept")) == expected
    finally:
        for place in range(3):
            if three.alive(place):
                three.nodes[place].kill()


def miscounted(staged: StagedRows) -> Iterator[StagedRows]:
    """The same with one row more or less in one partition, and with a token that nobody staged under."""
    place = max(staged.parts)
    for rows_there in (staged.parts[place] + 1, staged.parts[place] - 1, 1 << 32):
        yield staged._replace(parts={**staged.parts, place: rows_there})
    yield staged._replace(token=bytes(16))


def refuses_all(client: ringfence.Client, begun: Begun, staged: StagedRows, topic: str) -> None:
    for wrong in miscounted(staged):
        with pytest.raises(ringfence.InvalidArgumentError) as caught:
            client.scopes.commit(begun, 1, [wrong])
        message = str(caught.value)
        if max(wrong.parts.values()) < 1 << 32:
            partition = next(part for _, part in staged.parts if f"in partition {part} of topic" in message)
            assert "epoch 1: " in message, message
            assert f"{topic!r}" in message, message
            named, there = (
                known[next(place for place in staged.parts if place[1] == partition)]
                for known in (wrong.parts, staged.parts)
            )
            there = there if wrong.token == staged.token else 0
            assert f"{named} rows are committed" in message, message
            assert f"{there} are staged there (node " in message, message
            assert "nothing was committed" in message, message


def test_a_commit_of_other_rows_than_are_staged_is_refused_and_changes_nothing(
    client: ringfence.Client,
) -> None:
    client.create_topic("short", schema=SCHEMA, key=["id"], partitions=3)
    begun = client.scopes.begin("miscounts")
    attempt = client.scopes.attempt(begun, 1)
    attempt.send("short", rows(0, 60))
    staged = attempt.finish()
    before = client.status().index
    refuses_all(client, begun, staged, "public/default/short")
    assert client.status().index == before, "nothing was decided"
    assert client.count("short") == 0, "no part of it can be read"
    assert client.scopes.begin("miscounts").committed == 0
    assert client.status().reasons == []
    late = client.scopes.begin("miscounts")
    with pytest.raises(ringfence.InvalidArgumentError, match="begun again since"):
        client.scopes.commit(late, 1, [staged])
    with pytest.raises(ringfence.FencedError):
        client.scopes.commit(begun, 1, [staged])
    again = client.scopes.attempt(late, 1)
    again.send("short", rows(100, 60))
    finished = again.finish()
    assert client.scopes.commit(late, 1, [finished])
    assert sorted(ids_of(client, "short")) == list(range(100, 160))
    *counts, other = miscounted(finished)
    for same in (finished, *counts):
        assert client.scopes.commit(late, 1, [same]), "what is committed is told, and not counted again"
    assert client.scopes.commit(late, 1, [other]) is False, "another attempt was committed"


def test_owners_on_other_nodes_are_asked_before_a_commit_is_decided(tmp_path: Path) -> None:
    three = ThreeNodes(tmp_path).start()
    try:
        with ringfence.connect(three.nodes[0].address, timeout_s=60) as client:
            client.create_topic("spread", schema=SCHEMA, key=["id"], partitions=6)
            assert len({part.owner for part in client.topic("spread").partitions}) == 3
            begun = client.scopes.begin("spread")
            attempt = client.scopes.attempt(begun, 1)
            attempt.send("spread", rows(0, 600))
            staged = attempt.finish()
            assert len(staged.parts) == 6
            for node in three.nodes:
                with ringfence.connect(node.address, timeout_s=60) as other:
                    refuses_all(other, begun, staged, "public/default/spread")
            assert client.count("spread") == 0, "no part of it can be read on any node"
            # An owner that is away is waited for: nothing is refused, and nothing is decided without it.
            three.nodes[2].kill()
            with (
                ringfence.connect(three.nodes[0].address, timeout_s=7) as hasty,
                pytest.raises(ringfence.UnknownOutcomeError),
            ):
                hasty.scopes.commit(begun, 1, [staged])
            three.nodes[2].start()
            client.scopes.commit(begun, 1, [staged])  # or an earlier try that was still asking: either one
            assert sorted(ids_of(client, "spread")) == list(range(600))
    finally:
        three.kill_all()


def test_bytes_of_a_topic_count_what_transactions_committed_and_retention_goes_by_them(
    client: ringfence.Client,
) -> None:
    def size(topic: str) -> int:
        return sum(part.bytes for part in client.topic(topic).partitions)

    batches = [rows(start, 2_000) for start in range(0, 20_000, 2_000)]
    for topic in ("plain", "atomic"):
        client.create_topic(topic, schema=SCHEMA, key=["id"], partitions=2, retention_bytes=64 << 20)
    client.create_topic("bounded", schema=SCHEMA, retention_bytes=1)
    with client.producer("plain") as producer:
        for batch in batches:
            producer.send(batch)
    with contextlib.suppress(RuntimeError), client.transaction("atomic", scope="gone") as failed:
        for batch in batches:
            failed.send(batch)
        raise RuntimeError("the application fails")
    before = size("atomic")
    assert before < size("plain") / 10, "rows that nobody can read do not count"
    with client.transaction("atomic", scope="kept") as transaction:
        for batch in batches:
            transaction.send(batch)
    assert 0.8 < (size("atomic") - before) / size("plain") < 1.2
    ends = 0
    for _ in range(3):
        with client.transaction("bounded", scope="bounded") as transaction:
            for batch in batches:
                transaction.send(batch)
        ends += transaction.rows
        # What was committed last stays as a whole, whatever retention says.
        until(lambda: client.count("bounded") == len(batches) * 2_000)
        [kept] = client.end_offsets("bounded").values()
        assert (kept.start, kept.end) == (ends - 20_000, ends)
        assert size("bounded") > size("plain") / 4
