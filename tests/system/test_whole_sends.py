"""A send that is refused stores nothing, and nothing of a block that holds a part of it is committed."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

import ringfence
from tests.fakes.client_topic import SCHEMA, ids_of, rows
from tests.harness.processes import NodeProcess

ROW_TOO_LARGE = 68_000_000


@pytest.fixture
def client(node: NodeProcess) -> Iterator[ringfence.Client]:
    with ringfence.connect(node.address, timeout_s=30) as made:
        yield made


def with_null_id(start: int) -> pa.Table:
    """Two batches; the second is refused."""
    loose = pa.schema([pa.field("id", pa.int64()), SCHEMA.field("text")])
    bad = pa.record_batch([pa.array([start + 1, None], pa.int64()), pa.array(["a", "b"])], schema=loose)
    return pa.Table.from_batches([rows(start).cast(loose), bad])


def test_a_block_whose_send_was_refused_in_its_midst_commits_nothing(client: ringfence.Client) -> None:
    client.create_topic("midst", schema=SCHEMA, partitions=1)
    transaction = client.transaction("midst", scope="midst")
    transaction.send(rows(50))
    with pytest.raises(ringfence.BatchError, match="1 null,"):
        transaction.send(with_null_id(0))
    spoilt = r"a send failed after part of its rows was staged .*run it again"
    with pytest.raises(ringfence.RefusedError, match=spoilt):
        transaction.send(rows(60))
    with pytest.raises(ringfence.RefusedError, match=spoilt):
        transaction.commit()
    with client.transaction("midst", scope="midst") as again:
        again.send(rows(70))
    assert ids_of(client, "midst") == [70]


def test_a_block_goes_on_after_a_send_of_which_nothing_was_handed_over(client: ringfence.Client) -> None:
    client.create_topic("goes-on", schema=SCHEMA, partitions=1)
    with client.transaction("goes-on", scope="goes-on") as transaction:
        transaction.send(rows(0))
        with pytest.raises(ringfence.BatchError, match="1 null,"):
            transaction.send(with_null_id(10).slice(1))
        transaction.send(rows(1))
    assert ids_of(client, "goes-on") == [0, 1]


@pytest.mark.parametrize("bytes_in_flight_max", [1 << 28, 1 << 24])
def test_a_send_with_one_row_above_the_limit_stores_none(
    client: ringfence.Client, bytes_in_flight_max: int
) -> None:
    """Also where it takes more than the producer may hold at once."""
    topic = f"large-{bytes_in_flight_max}"
    client.create_topic(topic, schema=SCHEMA, partitions=1)
    large = pa.record_batch(
        [pa.array([2, 3], pa.int64()), pa.array(["b", "x" * ROW_TOO_LARGE])], schema=SCHEMA
    )
    with client.producer(topic, bytes_in_flight_max=bytes_in_flight_max) as producer:
        with pytest.raises(ringfence.BatchError, match="above the limit"):
            producer.send(pa.Table.from_batches([rows(0, 2), large]))
        assert producer.send(rows(7)).result(30)
    assert ids_of(client, topic) == [7]


def test_a_send_above_what_may_be_held_is_refused_whole_where_it_may_not_wait(
    client: ringfence.Client,
) -> None:
    client.create_topic("no-wait", schema=SCHEMA, partitions=1)
    table = pa.Table.from_batches([rows(start, 50, "x" * 1000) for start in range(0, 500, 50)])
    hasty = client.producer("no-wait", on_full="raise", bytes_in_flight_max=100_000, batch_bytes=1000)
    with hasty, pytest.raises(ringfence.OverloadedError, match="bytes_in_flight_max"):
        hasty.send(table)
    assert client.count("no-wait") == 0
    with client.producer("no-wait", bytes_in_flight_max=100_000, batch_bytes=1000) as producer:
        assert sum(part.rows for part in producer.send(table).result(30)) == 500
