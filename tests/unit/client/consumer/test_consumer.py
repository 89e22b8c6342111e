"""The iterator on real sockets against one fake node: what it gives, and what the node is told."""

from __future__ import annotations

import datetime as dt
import threading
import time

import pytest

import ringfence
from ringfence.consumer.consumer import Chunk
from ringfence.consumer.settings import IDLE_S
from tests.fakes.client_topic import rows, until
from tests.fakes.cohort_topic import MANY, all_settled, cohort_topic, ids, opened, until_raised


def test_all_rows_are_given_and_acknowledged_when_the_next_ones_are_asked_for() -> None:
    with cohort_topic(4) as (node, client), opened(client) as consumer:
        assert sorted(ids(consumer)) == list(range(MANY))
        assert not all_settled(node)
        assert consumer.next(0.5) is None
        until(lambda: all_settled(node))
        assert sorted(consumer.assignment()) == sorted(node.topic_of("t").logs)
        until(lambda: sum(consumer.lag().values()) == 0)
    assert node.members == {}
    assert all(gate.is_released for gate in node.gates.values())


def test_what_another_process_acknowledged_is_known_when_ack_returns() -> None:
    with cohort_topic() as (node, client), opened(client, ack="manual") as consumer:
        assert len(ids(consumer, 20)) == 20
        place = consumer.place
        assert place is not None
        assert (place.first_offset, place.end_offset) == (10, 20)
        assert place.fencing_token == consumer.fencing_token(place.partition)
        consumer.ack_through(place, 5, wait=True)
        assert node.settled() == {place.partition: 15}
        consumer.ack(wait=True)
        assert node.settled() == {place.partition: 20}
        with pytest.raises(ringfence.InvalidArgumentError, match="rows that were not given"):
            consumer.ack(place._replace(end_offset=30))


def test_iteration_gives_control_back_when_nothing_comes() -> None:
    with cohort_topic(count=20) as (_, client), opened(client, ack="manual", idle_s=0.2) as consumer:
        ids(consumer, 20)
        assert next(iter(consumer)) is None
        assert consumer.idle_s == 0.2


class Measured:
    """A batch that counts how often it is measured."""

    num_rows = 3

    def __init__(self) -> None:
        self.times = 0

    @property
    def nbytes(self) -> int:
        self.times += 1
        return 30


def test_a_chunk_measures_each_batch_once_and_ends_at_its_rows_or_bytes() -> None:
    for most, size, count in ((3_000, 1 << 20, 1_000), (1 << 20, 3_000, 100)):
        chunk, batches = Chunk(most, size), list[Measured]()
        while not chunk.is_full:
            batches.append(Measured())
            chunk.add(batches[-1])
        assert len(batches) == count
        assert {one.times for one in batches} == {1}


def test_a_list_that_an_application_fails_with_comes_again_whole() -> None:
    """Asking for the rest of a list acknowledges none of it."""

    def work(client: ringfence.Client) -> None:
        with opened(client) as consumer:
            assert len(next(consumer.chunks(rows=50, wait_s=10.0))) > 1
            raise ZeroDivisionError

    with cohort_topic() as (node, client):
        with pytest.raises(ZeroDivisionError):
            work(client)
        assert set(node.settled().values()) <= {0}
        with opened(client) as consumer:
            chunks = consumer.chunks(rows=50, wait_s=10.0)
            found = [row for batch in next(chunks) for row in batch.column("id").to_pylist()]
            assert found == list(range(50))
            next(chunks)
            until(lambda: 50 in node.settled().values())


def test_chunks_wait_for_rows_unless_idle_s_is_given() -> None:
    with cohort_topic(count=20) as (_, client):
        with opened(client, ack="manual") as consumer:
            chunks = consumer.chunks(rows=20, wait_s=0.2)
            assert sum(one.num_rows for one in next(chunks)) == 20

            def publish_late() -> None:
                time.sleep(IDLE_S + 0.5)
                with client.producer("t") as producer:
                    producer.send(rows(20, 10))

            late = threading.Thread(target=publish_late)
            late.start()
            assert [one.num_rows for one in next(chunks)] == [10], "no empty list before them"
            late.join()
            consumer.ack(wait=True)
        with opened(client, ack="manual", idle_s=0.2) as consumer:
            assert next(consumer.chunks()) == []


@pytest.mark.parametrize("way", ["callback", "closed"])
def test_a_list_that_an_error_interrupts_is_given_before_the_error(way: str) -> None:
    """Its batches were given: the next acknowledgement settles them."""

    def on_revoked(_: list[int]) -> None:
        raise ZeroDivisionError

    with cohort_topic(2) as (node, client):
        kept = min(node.topic_of("t").logs)
        with opened(client, ack="manual", member="m", on_revoked=on_revoked) as consumer:

            def interrupt() -> None:
                until(lambda: consumer.place is not None)
                if way == "closed":
                    consumer.close()
                else:
                    node.spreads = False
                    node.plan(m=[kept])

            other = threading.Thread(target=interrupt)
            chunks = consumer.chunks(rows=10 * MANY, wait_s=10.0)
            other.start()
            batches = next(chunks)
            other.join()
            assert batches
            with pytest.raises(StopIteration if way == "closed" else ZeroDivisionError):
                next(chunks)


def test_a_second_member_gets_what_the_first_one_releases_and_nothing_twice() -> None:
    told: list[tuple[str, list[int]]] = []
    with cohort_topic(2) as (node, client):
        first_part, second_part = sorted(node.topic_of("t").logs)
        one = client.consumer(
            "t", cohort="c", member="one", on_revoked=lambda given: told.append(("revoked", given)),
            on_assigned=lambda given: told.append(("assigned", given)),
        )  # fmt: skip
        got = ids(one, 60)
        node.spreads = False
        with opened(client, member="two") as two:
            until(lambda: "two" in node.members)
            node.plan(one=[first_part], two=[second_part])
            while len(got) < MANY:
                for consumer in (one, two):
                    batch = consumer.next(0.2)
                    got += [] if batch is None else batch.column("id").to_pylist()
            assert sorted(got) == list(range(MANY))
            assert told == [("assigned", [first_part, second_part]), ("revoked", [second_part])]
            assert two.assignment() == [second_part]
        one.close()


def test_a_member_that_is_evicted_loses_its_partitions_and_joins_again() -> None:
    lost: list[list[int]] = []
    with cohort_topic() as (node, client), opened(client, member="m", on_lost=lost.append) as consumer:
        ids(consumer, 20)
        before = node.members["m"].session
        node.evict("m")
        seen: list[int] = []
        while not lost:
            batch = consumer.next(0.5)
            seen += [] if batch is None else batch.column("id").to_pylist()
        assert lost == [list(node.topic_of("t").logs)]
        assert node.members["m"].session != before
        seen += ids(consumer, 1)
        while not all_settled(node):
            consumer.next(0.1)


def test_a_seek_begins_again_for_all() -> None:
    with cohort_topic() as (node, client), opened(client) as consumer:
        assert ids(consumer) == list(range(MANY))
        assert consumer.seek("earliest") == node.incarnation
        assert (node.sought[0].to, node.sought[0].wait) == ("earliest", True)
        assert ids(consumer) == list(range(MANY))
        consumer.skip_all()
        assert node.sought[1].to == "latest"


def test_a_paused_partition_gives_nothing_until_it_is_resumed() -> None:
    with cohort_topic(2) as (node, client), opened(client) as consumer:
        paused, other = sorted(node.topic_of("t").logs)
        until(lambda: len(consumer.assignment()) == 2)
        consumer.pause([paused])
        count = node.topic_of("t").logs[other].end
        assert len(ids(consumer, count)) == count
        assert consumer.next(0.3) is None
        consumer.resume([paused])
        assert len(ids(consumer, MANY - count)) == MANY - count


def test_a_cluster_of_an_old_level_says_what_to_run() -> None:
    with cohort_topic() as (node, client):
        node.level = 2
        with opened(client) as consumer, pytest.raises(ringfence.ConflictError, match="cluster finalize"):
            consumer.next(5.0)


def test_a_name_that_is_taken_is_refused_and_can_be_taken_over() -> None:
    with cohort_topic() as (node, client), opened(client, member="m") as older:
        ids(older, 10)
        taken = pytest.raises(ringfence.MemberExistsError, match="takeover=True")
        with opened(client, member="m") as newer, taken:
            newer.next(5.0)
        with opened(client, member="m", takeover=True) as newer:
            until(lambda: node.members["m"].replaced != [])
            with pytest.raises(ringfence.FencedError, match="a newer process has this name"):
                until_raised(older)
            older.close()
            assert min(ids(newer, 1)) <= 10


def test_rows_that_retention_removed_are_told_or_skipped() -> None:
    with cohort_topic() as (node, client):
        log = next(iter(node.topic_of("t").logs.values()))
        log.start = 40
        with opened(client) as consumer:
            with pytest.raises(ringfence.TruncatedError, match="on_truncated='skip'") as told:
                consumer.next(5.0)
            assert told.value.details["start_offset"] == 40
        with opened(client, on_truncated="skip") as consumer:
            assert ids(consumer, 60) == list(range(40, MANY))


def test_a_reader_with_a_store_of_its_own_begins_where_that_is_and_reports() -> None:
    store: dict[int, str | None] = {}
    with cohort_topic(2) as (node, client):
        got: list[int] = []
        while len(got) < MANY:  # each life ends in the middle
            with opened(client, mode="checkpoint", positions=store.get) as consumer:
                for _ in range(3):
                    batch = consumer.next(0.3)
                    if batch is not None and consumer.place is not None:
                        got += batch.column("id").to_pylist()
                        store[consumer.place.partition] = consumer.place.token()
        assert sorted(got) == list(range(MANY))
        settled = node.settled()
        assert 0 < sum(settled.values()) <= MANY


def test_a_store_that_fails_ends_the_consumer() -> None:
    def broken(partition: int) -> str:
        raise OSError(f"no database for {partition}")

    with cohort_topic() as (_, client), opened(client, mode="checkpoint", positions=broken) as consumer:
        for _ in range(2):
            with pytest.raises(OSError, match="no database for"):
                consumer.next(5.0)


def test_a_store_whose_answer_is_interrupted_is_asked_again() -> None:
    asked: list[int] = []

    def positions(partition: int) -> None:
        asked.append(partition)
        if len(asked) == 1:
            raise KeyboardInterrupt

    with cohort_topic() as (_, client), opened(client, mode="checkpoint", positions=positions) as consumer:
        with pytest.raises(KeyboardInterrupt):
            consumer.next(5.0)
        assert ids(consumer) == list(range(MANY))
        assert len(asked) == 2


def test_the_next_member_begins_in_the_middle_of_a_batch() -> None:
    with cohort_topic() as (_, client):
        with opened(client, ack="manual") as consumer:
            ids(consumer, 10)
            assert consumer.place is not None
            consumer.ack_through(consumer.place, 4, wait=True)
        with opened(client) as consumer:
            assert ids(consumer, 96) == list(range(4, MANY))


def test_a_time_is_resolved_at_each_partition_before_the_cohort_begins_there() -> None:
    with cohort_topic(2) as (node, client), opened(client) as consumer:
        ids(consumer)
        consumer.seek(dt.datetime(2026, 1, 2, tzinfo=dt.UTC))
        halves = [(one, log.end // 2, log.epoch) for one, log in sorted(node.topic_of("t").logs.items())]
        assert (node.sought[0].to, node.sought[0].rest) == ("positions", "latest")
        assert node.sought[0].positions == halves
        with pytest.raises(ringfence.InvalidArgumentError, match="time zone"):
            consumer.seek(dt.datetime(2026, 1, 2))  # noqa: DTZ001
