"""Members of a QUEUE at one real node: shared partitions, leases that end, failures, restarts."""

from __future__ import annotations

import asyncio
import secrets
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

import ringfence
from ringfence import aio
from tests.harness.deliveries import KEYS, publish
from tests.harness.processes import SCHEMA, NodeProcess, read_ids, until
from tests.harness.queue_member import QueueMember, acked_rows, check_queue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

ROWS = 50 * KEYS


@pytest.fixture(scope="module")
def node(module_folder: Path) -> Iterator[NodeProcess]:
    with NodeProcess(module_folder / "data", ("--session-grace-s", "12")) as running:
        yield running


@pytest.fixture
def client(node: NodeProcess) -> Iterator[ringfence.Client]:
    with ringfence.connect(node.address, timeout_s=30) as connected:
        yield connected


@pytest.fixture
def topic(client: ringfence.Client) -> str:
    """A topic of one partition, with 50 records."""
    name = f"t{secrets.token_hex(4)}"
    client.create_topic(name, schema=SCHEMA, key=["producer"], partitions=1)
    publish(client, name, range(50))
    return name


@pytest.fixture
def begun() -> Iterator[Callable[..., QueueMember]]:
    """Starts members; none is left behind."""
    with ExitStack() as running:

        def begin(address: str, topic: str, name: str, **options: Any) -> QueueMember:
            return running.enter_context(QueueMember(address, topic, "q", name, options))

        yield begin


def queue(client: ringfence.Client, topic: str, **options: Any) -> ringfence.Consumer:
    return client.consumer(topic, cohort="q", mode="queue", **options)


def take(consumer: ringfence.Consumer, rows: int, timeout_s: float = 20.0) -> list[tuple[int, int]]:
    """At least so many rows (key, number), or what came in time."""
    got: list[tuple[int, int]] = []
    end = time.monotonic() + timeout_s
    while len(got) < rows and time.monotonic() < end:
        batch = consumer.next(0.2)
        if batch is not None:
            got += zip(batch.column("producer").to_pylist(), batch.column("id").to_pylist(), strict=True)
    return got


def test_each_row_comes_once_and_asking_for_the_next_batch_acknowledges(
    client: ringfence.Client, topic: str
) -> None:
    with queue(client, topic) as consumer:
        assert sorted(take(consumer, ROWS)) == [(key, at) for key in range(KEYS) for at in range(50)]
        assert consumer.next(0.2) is None
        consumer.ack(wait=True)
    with queue(client, topic) as consumer:
        assert take(consumer, 1, 1.5) == []
        publish(client, topic, range(50, 52))
        assert len(take(consumer, 2 * KEYS)) == 2 * KEYS


def test_two_members_share_a_partition_and_what_a_killed_one_had_comes_again(
    node: NodeProcess, client: ringfence.Client, topic: str, begun: Callable[..., QueueMember]
) -> None:
    options = {"rows_max": 2 * KEYS, "work_s": 0.03}
    stay, killed = members = [begun(node.address, topic, name, **options) for name in ("a", "b")]
    until(lambda: all(len(one.acked) > 2 for one in members), what="both have rows of the one partition")
    killed.kill()
    killed_at = time.monotonic()
    publish(client, topic, range(50, 60))
    stored = read_ids(client, topic)
    until(lambda: len(acked_rows(members)) == 60 * KEYS, 30, "each row is acknowledged")
    stay.stop()
    assert stay.errors == stay.refused == []
    acked = {row for one in killed.acked for row in range(one.first, one.end)}
    lost = [one for one in killed.given if one.first not in acked]
    again = [one for one in stay.given if any(one.first <= lost_one.first < one.end for lost_one in lost)]
    assert len(again) >= len(lost) > 0, "what it had comes again"
    assert max(one.at for one in again) - killed_at < 10, "soon: its connection ended"
    check_queue(members, stored)


def test_what_is_acknowledged_stays_so_when_the_owner_restarts(
    tmp_path: Path, begun: Callable[..., QueueMember]
) -> None:
    with NodeProcess(tmp_path / "data") as node, ringfence.connect(node.address, timeout_s=60) as client:
        client.create_topic("t", schema=SCHEMA, key=["producer"], partitions=1)
        publish(client, "t", range(50))
        options = {"rows_max": KEYS, "work_s": 0.02}
        members = [begun(node.address, "t", name, **options) for name in ("a", "b")]
        until(lambda: len(acked_rows(members)) >= 10 * KEYS, what="some rows are acknowledged")
        node.kill()
        node.start()
        until(lambda: len(acked_rows(members)) == ROWS, 60, "each row is acknowledged")
        for member in members:
            member.stop()
            assert member.errors == []
        check_queue(members, read_ids(client, "t"))


def test_rows_that_fail_come_again_in_halves_until_the_last_one_is_parked(
    client: ringfence.Client, topic: str
) -> None:
    done: list[int] = []
    failures = 0
    with queue(client, topic, limit=2, rows_max=KEYS) as consumer:
        end = time.monotonic() + 30
        while len(done) < ROWS - 1 and time.monotonic() < end:
            batch = consumer.next(0.2)
            delivery = consumer.delivery
            if batch is None or delivery is None:
                continue
            first, rows = delivery.place.first_offset, batch.num_rows
            if first <= 100 < first + rows:
                failures += 1
                delivery.fail(reason="row 100 is bad")
            else:
                done += range(first, first + rows)
        consumer.ack(wait=True)
        assert consumer.next(1) is None
    assert sorted(done) == [row for row in range(ROWS) if row != 100]
    assert 2 <= failures <= 2 + 16


def test_one_row_that_fails_by_name_comes_again_late_and_its_neighbours_do_not(
    client: ringfence.Client, topic: str
) -> None:
    with queue(client, topic, ack="manual") as consumer:
        got, failed_at = 0, 0.0
        while got < ROWS:
            delivery = next(consumer.deliveries())
            got += delivery.batch.num_rows
            if delivery.place.first_offset == 0:
                failed_at = time.monotonic()
                delivery.fail([3, 5], delay_s=2, reason="later")
            delivery.ack()
        again = [next(consumer.deliveries()) for _ in range(2)]
        assert time.monotonic() - failed_at >= 1.9
        assert [(one.place.first_offset, one.batch.num_rows, one.count) for one in again] == [
            (3, 1, 1),
            (5, 1, 1),
        ]
        assert again[0].batch.column("producer").to_pylist() == [3]
        for one in again:
            one.ack()
        consumer.ack(wait=True)
        assert consumer.next(1) is None


def test_an_exception_fails_the_delivery_in_hand_and_releases_the_others(
    client: ringfence.Client, topic: str
) -> None:
    def work() -> None:
        with queue(client, topic, ack="manual") as consumer:
            for delivery in consumer.deliveries():
                given.append(delivery.place)
                if len(given) == 2:
                    raise ZeroDivisionError

    given: list[ringfence.ConsumerPlace] = []
    with pytest.raises(ZeroDivisionError):
        work()
    second = given[1]
    with queue(client, topic) as consumer:
        counts = {}
        rows = 0
        while rows < ROWS:
            delivery = next(consumer.deliveries())
            counts[delivery.place.first_offset] = delivery.count
            rows += delivery.batch.num_rows
    assert {first for first, count in counts.items() if count} <= set(
        range(second.first_offset, second.end_offset)
    )
    assert counts[second.first_offset] == 1
    assert counts[0] == 0


def test_a_lease_is_extended_while_the_application_works_and_ends_when_it_hangs(
    client: ringfence.Client, node: NodeProcess, topic: str, begun: Callable[..., QueueMember]
) -> None:
    with queue(client, topic, lease_s=1, ack="manual") as consumer:
        slow = next(consumer.deliveries())
        other = begun(node.address, topic, "other")
        until(lambda: len(acked_rows([other])) >= ROWS - slow.batch.num_rows, 30, "it has the others")
        time.sleep(2)
        rows = zip(
            slow.batch.column("producer").to_pylist(), slow.batch.column("id").to_pylist(), strict=True
        )
        assert not {*rows} & {*acked_rows([other])}, "its lease goes on"
        consumer.ack(slow.place, wait=True)
        other.stop()
        assert other.errors == other.refused == []


def test_a_seek_gives_all_rows_again(client: ringfence.Client, topic: str) -> None:
    with queue(client, topic) as consumer:
        assert len(take(consumer, ROWS)) == ROWS
        consumer.ack(wait=True)
        consumer.seek("earliest")
        assert len(take(consumer, ROWS)) == ROWS


def test_asyncio(node: NodeProcess, topic: str) -> None:
    async def work() -> list[int]:
        rows: list[int] = []
        async with (
            aio.connect(node.address, timeout_s=30) as client,
            await client.consumer(topic, cohort="q", mode="queue", ack="manual") as consumer,
        ):
            async for delivery in consumer.deliveries():
                rows += range(delivery.place.first_offset, delivery.place.end_offset)
                await consumer.ack(delivery.place, wait=True)
                if len(rows) == ROWS:
                    break
            assert await consumer.next(0.5) is None
        return rows

    assert sorted(asyncio.run(work())) == list(range(ROWS))


def test_calls_that_have_no_meaning_are_refused(client: ringfence.Client, topic: str) -> None:
    with queue(client, topic) as consumer:
        for call in (consumer.lag, lambda: consumer.pause([1]), lambda: consumer.fencing_token(1)):
            with pytest.raises(ringfence.InvalidArgumentError, match="no partitions of their own"):
                call()
    with client.consumer(topic, cohort="s") as stream, pytest.raises(
        ringfence.InvalidArgumentError, match="iterate the consumer itself"
    ):  # fmt: skip
        next(stream.deliveries())
