"""Consume, transform, publish exactly once at one real node: processes that are killed in the middle."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pytest

import ringfence
from ringfence.consumer.taking import Taking
from tests.harness.deliveries import KEYS, Feed, publish
from tests.harness.processes import SCHEMA, NodeProcess, until
from tests.harness.transformer import SOURCE, TARGET, Transformer, check_output, count_rows

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pyarrow as pa

GRACE_S = 12.0  # the least that a node takes
ROUNDS = 40
PARTITIONS = 3


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeProcess]:
    with NodeProcess(tmp_path / "data", ("--session-grace-s", str(GRACE_S))) as running:
        yield running


@pytest.fixture
def client(node: NodeProcess) -> Iterator[ringfence.Client]:
    with ringfence.connect(node.address, timeout_s=60) as connected:
        for topic, partitions in ((SOURCE, PARTITIONS), (TARGET, 2)):
            connected.create_topic(topic, schema=SCHEMA, key=["producer"], partitions=partitions)
        publish(connected, SOURCE, range(ROUNDS))
        yield connected


def until_copied(client: ringfence.Client, timeout_s: float = 60) -> None:
    """All rows of the source are in the target, each once and in order."""
    until(lambda: count_rows(client, TARGET) >= count_rows(client, SOURCE), timeout_s, "all rows are copied")
    check_output(client)


def test_rows_and_positions_take_effect_together(client: ringfence.Client) -> None:
    rows = 0
    with client.consumer(SOURCE, cohort="c", ack="manual", idle_s=1) as consumer:
        for batches in consumer.chunks(rows=100, wait_s=0.2):
            if not batches:
                break
            with client.transaction(TARGET, consumed=consumer) as t:
                for batch in batches:
                    t.send(batch)
            rows += t.rows
            assert count_rows(client, TARGET) == rows
            assert sum(consumer.lag().values()) == ROUNDS * KEYS - rows
    assert check_output(client) == ROUNDS * KEYS
    with client.consumer(SOURCE, cohort="c", ack="manual", idle_s=0.5) as consumer:
        assert next(consumer) is None, "all was settled"


def test_asyncio_copies_each_row_once_though_steps_end_before_their_rows(
    client: ringfence.Client, node: NodeProcess
) -> None:
    async def run() -> None:
        async with (
            ringfence.aio.connect(node.address) as connected,
            connected.consumer(SOURCE, cohort="c", ack="manual") as consumer,
        ):
            rows, tries = 0, 0
            while rows < ROUNDS * KEYS:
                tries += 1
                async with connected.transaction(TARGET, consumed=consumer) as t:
                    # Such a short time ends most steps before their rows come: they are the next one's.
                    for wait_s in (0.2, 0.001, 0.0):
                        if (batch := await consumer.next(wait_s)) is not None:
                            await t.send(batch)
                    if tries % 3 == 0:
                        await t.abort()
                rows += t.rows

    asyncio.run(run())
    assert check_output(client) == ROUNDS * KEYS


def test_a_transaction_may_begin_before_the_consumer_has_joined(client: ringfence.Client) -> None:
    with client.consumer(SOURCE, cohort="c", ack="manual") as consumer:
        with client.transaction(TARGET, consumed=consumer) as t:
            batch = consumer.next(30)
            assert batch is not None
            t.send(batch)
        assert t.rows == batch.num_rows


def fail_in_a_transaction(
    client: ringfence.Client, consumer: ringfence.Consumer, batches: list[pa.RecordBatch]
) -> None:
    with client.transaction(TARGET, consumed=consumer) as t:
        for batch in batches:
            t.send(batch)
        raise ZeroDivisionError


def test_an_exception_in_the_block_gives_the_same_rows_again(client: ringfence.Client) -> None:
    with client.consumer(SOURCE, cohort="c", ack="manual", idle_s=1) as consumer:
        chunks = consumer.chunks(rows=100, wait_s=0.2)
        first = next(chunks)
        with pytest.raises(ZeroDivisionError):
            fail_in_a_transaction(client, consumer, first)
        while batches := next(chunks):
            with client.transaction(TARGET, consumed=consumer) as t:
                for batch in batches:
                    t.send(batch)
    assert check_output(client) == ROUNDS * KEYS


def test_a_transaction_that_sends_nothing_settles_what_was_given(client: ringfence.Client) -> None:
    with client.consumer(SOURCE, cohort="c", ack="manual", idle_s=1) as consumer:
        for batches in consumer.chunks(rows=1_000, wait_s=0.5):
            if not batches:
                break
            with client.transaction(TARGET, consumed=consumer):
                pass
    assert count_rows(client, TARGET) == 0
    with client.consumer(SOURCE, cohort="c", ack="manual", idle_s=0.5) as consumer:
        assert next(consumer) is None


def test_what_does_not_go_together_is_refused(client: ringfence.Client) -> None:
    def refused(consumer: object, said: str, **values: object) -> None:
        with pytest.raises(ringfence.InvalidArgumentError, match=said):
            client.transaction(TARGET, consumed=consumer, **values)  # type: ignore[arg-type]

    refused(client, "takes a consumer")
    with client.consumer(SOURCE, cohort="auto") as consumer:
        refused(consumer, "ack='manual'")
    with client.consumer(SOURCE, cohort="own", mode="checkpoint", positions=lambda _: None) as consumer:
        refused(consumer, "CHECKPOINT cohort takes no part")
    with client.consumer(SOURCE, cohort="c", ack="manual") as consumer:
        refused(consumer, "scope= is refused", scope="s")
        refused(consumer, "epoch= is refused", epoch=3)
        assert consumer.next(20) is not None
        with client.transaction(TARGET, consumed=consumer) as t:
            refused(consumer, "another transaction is open")
            with pytest.raises(ringfence.InvalidArgumentError, match="a transaction is open"):
                consumer.ack()
            t.abort()
        consumer.ack(wait=True)
    with pytest.raises(ringfence.InvalidArgumentError, match="scope= is missing"):
        client.transaction(TARGET)


def test_a_claim_for_a_scope_of_another_cohort_locks_nothing_and_ends_no_epoch(
    client: ringfence.Client,
) -> None:
    with (
        client.consumer(SOURCE, cohort="c", ack="manual", member="m") as consumer,
        client.consumer(SOURCE, cohort="d", ack="manual", member="m") as other,
    ):
        assert consumer.next(20) is not None
        assert other.next(20) is not None
        with client.transaction(TARGET, consumed=other) as theirs:
            taking = Taking(consumer, timeout_s=20)
            taking.take()
            with pytest.raises(ringfence.InvalidArgumentError, match=r"a member claims for a scope consume/"):
                taking.claim(theirs._begun, theirs.epoch, b"x" * 16)
            taking.aborted()
        assert consumer.next(20) is not None, "its rows come again"
        with client.transaction(TARGET, consumed=consumer):
            pass


@pytest.mark.timeout(180)
@pytest.mark.parametrize("place", ["staged", "claimed", "sent"])
def test_a_process_that_is_killed_in_the_middle_and_started_again(
    node: NodeProcess, client: ringfence.Client, place: str
) -> None:
    with Transformer(node.address, "m", stands_at=place) as killed:
        until(lambda: killed.place == place, what="it stands in the middle of its first transaction")
        killed.kill()
    began_at = time.monotonic()
    with Transformer(node.address, "m") as again:
        until_copied(client)
        took_s = time.monotonic() - began_at
        again.stop()
    assert again.errors == []
    assert took_s < GRACE_S + 10, "its name makes it the successor of the killed one"


@pytest.mark.timeout(180)
@pytest.mark.parametrize("place", ["claimed", "sent"])
def test_another_member_goes_on_after_a_killed_one(
    node: NodeProcess, client: ringfence.Client, place: str
) -> None:
    with Transformer(node.address, "a", stands_at=place) as killed:
        until(lambda: killed.place == place, what="it stands in the middle of its first transaction")
        with Transformer(node.address, "b") as other:
            killed.kill()
            until_copied(client, GRACE_S + 60)
            other.stop()
    assert other.errors == []


@pytest.mark.timeout(240)
def test_processes_that_are_killed_again_and_again_under_load(
    node: NodeProcess, client: ringfence.Client
) -> None:
    feed = Feed(node.address, SOURCE, start=ROUNDS, pause_s=0.02).start()
    for pause_s in (1.5, 2.0, 1.7, 2.3, 1.6):
        with Transformer(node.address, "m", rows=20) as transformer:
            time.sleep(pause_s)
            transformer.kill()
    feed.finish()
    with Transformer(node.address, "m", rows=500) as last:
        until_copied(client, 90)
        last.stop()
    assert last.errors == []


@pytest.mark.timeout(180)
def test_a_node_that_restarts_keeps_both_or_neither(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with NodeProcess(data, ("--session-grace-s", str(GRACE_S))) as node:
        address = node.address
        with ringfence.connect(address, timeout_s=60) as client:
            for topic in (SOURCE, TARGET):
                client.create_topic(topic, schema=SCHEMA, key=["producer"], partitions=2)
            publish(client, SOURCE, range(ROUNDS))
        transformer = Transformer(address, "m", rows=20).start()
        until(lambda: transformer.committed > 0, what="something was committed")
        node.kill()
        node.start()
        with ringfence.connect(address, timeout_s=60) as client:
            publish(client, SOURCE, range(ROUNDS, 2 * ROUNDS))
            until_copied(client, 90)
        transformer.stop()
    assert transformer.errors == []
