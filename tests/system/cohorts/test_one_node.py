"""Members of a cohort at one real node: positions that last, partitions that change hands, refusals."""

from __future__ import annotations

import secrets
import time
from typing import TYPE_CHECKING

import pytest

import ringfence
from ringfence.consumer.settings import Settings
from tests.harness.deliveries import KEYS, Feed, check_deliveries, publish, until_all_acked
from tests.harness.processes import SCHEMA, NodeProcess, read_ids, until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.harness.member import Begun

PARTITIONS = 4
GRACE_S = 12.0  # the least that a node takes


@pytest.fixture(scope="module")
def node(module_folder: Path) -> Iterator[NodeProcess]:
    with NodeProcess(module_folder / "data", ("--session-grace-s", str(GRACE_S))) as running:
        yield running


@pytest.fixture
def client(node: NodeProcess) -> Iterator[ringfence.Client]:
    with ringfence.connect(node.address, timeout_s=30) as connected:
        yield connected


@pytest.fixture
def topic(client: ringfence.Client) -> str:
    """A topic of the test's own, with 50 rounds."""
    name = f"t{secrets.token_hex(4)}"
    client.create_topic(name, schema=SCHEMA, key=["producer"], partitions=PARTITIONS)
    publish(client, name, range(50))
    return name


def take(consumer: ringfence.Consumer, rows: int, timeout_s: float = 20.0) -> list[tuple[int, int]]:
    """At least so many rows (key, number), or what came in time."""
    got: list[tuple[int, int]] = []
    end = time.monotonic() + timeout_s
    while len(got) < rows and time.monotonic() < end:
        batch = consumer.next(0.2)
        if batch is not None:
            got += zip(batch.column("producer").to_pylist(), batch.column("id").to_pylist(), strict=True)
    return got


def test_a_consumer_goes_on_after_what_was_acknowledged(client: ringfence.Client, topic: str) -> None:
    with client.consumer(topic, cohort="c") as consumer:
        assert sorted(take(consumer, 50 * KEYS)) == [(key, at) for key in range(KEYS) for at in range(50)]
        consumer.ack(wait=True)
        assert set(consumer.lag().values()) == {0}
    publish(client, topic, range(50, 60))
    with client.consumer(topic, cohort="c") as consumer:
        again = take(consumer, 10 * KEYS)
        assert sorted(again) == [(key, at) for key in range(KEYS) for at in range(50, 60)]
    # The last batch was not acknowledged: it comes again, and nothing before it.
    with client.consumer(topic, cohort="c") as consumer:
        rest = take(consumer, 1)
        assert rest
        assert set(rest) < set(again)


def test_two_members_share_and_one_takes_over_from_the_other(
    node: NodeProcess, client: ringfence.Client, topic: str, begun: Begun
) -> None:
    stay, go = members = [begun(node.address, topic, "c", name) for name in ("a", "b")]
    feed = Feed(node.address, topic, start=50).start()
    until(lambda: all(len(one.partitions) for one in members), what="both have partitions")
    feed.finish()
    until_all_acked(members, read_ids(client, topic))
    left_at = time.monotonic()
    go.stop()
    publish(client, topic, range(feed.next, feed.next + 10))
    until_all_acked(members, read_ids(client, topic))
    assert time.monotonic() - left_at < 5, "it released its partitions"
    stay.stop()
    assert stay.errors == go.errors == []
    assert stay.partitions == set(read_ids(client, topic))
    check_deliveries(members, read_ids(client, topic))


@pytest.mark.timeout(120)
def test_partitions_of_a_killed_member_are_read_again_within_its_grace(
    node: NodeProcess, client: ringfence.Client, topic: str, begun: Begun
) -> None:
    stay, killed = members = [begun(node.address, topic, "c", name, work_s=0.02) for name in ("a", "b")]
    feed = Feed(node.address, topic, start=50).start()
    until(lambda: all(len(one.acked) for one in members), what="both have acknowledged rows")
    time.sleep(1)  # rows that the first of them got while it was alone
    feed.finish()
    held = {one.partition for one in killed.given[-8:]}
    killed.kill()
    killed_at = time.monotonic()
    publish(client, topic, range(feed.next, feed.next + 10))
    stored = read_ids(client, topic)
    until_all_acked(members, stored, GRACE_S + 30)
    for partition in held:
        back = [one.at for one in stay.given if one.partition == partition and one.at > killed_at]
        assert min(back) - killed_at <= GRACE_S + 1
    stay.stop()
    assert stay.errors == []
    check_deliveries(members, stored)


def test_a_store_of_positions_gets_each_row_once(client: ringfence.Client, topic: str) -> None:
    store: dict[int, str] = {}
    rows: list[tuple[int, int]] = []
    for end in (50, 60, 70):
        publish(client, topic, range(max(50, end - 10), end))
        with client.consumer(topic, cohort="k", mode="checkpoint", positions=store.get) as consumer:
            until_s = time.monotonic() + 20
            while len(rows) < end * KEYS and time.monotonic() < until_s:
                batch = consumer.next(0.2)
                if batch is None:
                    continue
                rows += zip(batch.column("producer").to_pylist(), batch.column("id").to_pylist(), strict=True)
                assert consumer.place is not None
                store[consumer.place.partition] = consumer.place.token()
        assert sorted(rows) == [(key, at) for key in range(KEYS) for at in range(end)]


def test_a_store_that_is_behind_the_cohort_is_told_so(client: ringfence.Client, topic: str) -> None:
    store: dict[int, str] = {}
    with client.consumer(topic, cohort="k", mode="checkpoint", positions=store.get) as consumer:
        take(consumer, 50 * KEYS)
        consumer.ack(wait=True)
    with (
        client.consumer(topic, cohort="k", mode="checkpoint", positions=store.get) as consumer,
        pytest.raises(ringfence.PositionError, match="restore the store, or seek"),
    ):
        take(consumer, 1)


def test_a_store_that_the_reader_before_fills_after_the_next_one_has_asked_it_is_not_behind(
    client: ringfence.Client, topic: str
) -> None:
    store: dict[int, str] = {}
    asked, begun = list[int](), dict[int, ringfence.ConsumerPlace]()

    def position(partition: int) -> str | None:
        asked.append(partition)
        return store.get(partition)

    def open_consumer(name: str) -> ringfence.Consumer:
        return client.consumer(
            topic, cohort="k", mode="checkpoint", member=name, positions=position, report=False
        )

    def read() -> bool:
        """The second reader has a row of each partition that it was given."""
        if second.next(0.1) is not None:
            assert second.place is not None
            begun.setdefault(second.place.partition, second.place)
        return set(second.assignment()) == moved == begun.keys()

    with open_consumer("first") as first:
        in_hand = dict[int, ringfence.ConsumerPlace]()
        while len(in_hand) < PARTITIONS:
            assert first.next(10) is not None
            assert first.place is not None
            in_hand[first.place.partition] = first.place
        asked.clear()
        with open_consumer("second") as second:
            until(
                lambda: second.next(0.1) is None and len(asked) == PARTITIONS // 2, what="it asks its store"
            )
            moved = set(asked)
            for place in in_hand.values():
                store[place.partition] = place.token()
                first.report(place, wait=True)
            until(lambda: (first.next(0.05), not moved & set(first.assignment()))[1], what="it lets go")
            publish(client, topic, range(50, 60))
            until(read, what="rows of the partitions that went over")
            assert {one: place.first_offset for one, place in begun.items()} == {
                one: in_hand[one].end_offset for one in moved
            }


def test_a_seek_gives_all_rows_again(client: ringfence.Client, topic: str) -> None:
    with client.consumer(topic, cohort="c") as consumer:
        take(consumer, 50 * KEYS)
        consumer.ack(wait=True)
        consumer.seek("earliest")
        assert len(take(consumer, 50 * KEYS)) == 50 * KEYS
        consumer.skip_all()
        publish(client, topic, range(50, 52))
        assert {number for _, number in take(consumer, 2 * KEYS)} == {50, 51}


def test_a_cohort_at_the_latest_rows_gets_what_is_published_later(
    client: ringfence.Client, topic: str
) -> None:
    with client.consumer(topic, cohort="late", start="latest") as consumer:
        assert consumer.next(1) is None
        until(consumer.assignment, what="it has joined")
        publish(client, topic, range(50, 52))
        assert {number for _, number in take(consumer, 2 * KEYS)} == {50, 51}


def test_of_two_copies_of_a_member_the_older_one_ends(
    client: ringfence.Client, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = Settings(topic=topic, cohort="c", member="m").options()
    monkeypatch.setattr(Settings, "options", lambda _: options)
    with client.consumer(topic, cohort="c", member="m", ack="manual") as older:
        assert take(older, 1)
        with client.consumer(topic, cohort="c", member="m", ack="manual") as newer:
            with pytest.raises(ringfence.MemberError, match="attached later"):
                take(older, 100 * KEYS)
            before = client.status().index
            time.sleep(1)
            with pytest.raises(ringfence.MemberError):
                older.next(0.1)
            assert client.status().index == before
            assert take(newer, 1)
            assert client.status().index == before
