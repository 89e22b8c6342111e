"""Reading rows that transactions staged: what it costs, and that scopes side by side mix nothing up."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pyarrow as pa
import pytest

import ringfence
from tests.fakes.client_topic import SCHEMA, rows
from tests.harness.processes import NodeProcess


@pytest.fixture
def client(node: NodeProcess) -> Iterator[ringfence.Client]:
    with ringfence.connect(node.address, timeout_s=30) as made:
        yield made


def of_bytes(start: int, count: int, size: int) -> pa.RecordBatch:
    ids = pa.array(range(start, start + count), pa.int64())
    return pa.record_batch([ids, pa.array([os.urandom(size // 2).hex() for _ in ids])], schema=SCHEMA)


def test_many_small_epochs_cost_about_what_their_rows_cost(client: ringfence.Client) -> None:
    client.create_topic("small", schema=SCHEMA, partitions=1)
    begun = client.scopes.begin("small")
    for epoch in range(1, 61):
        attempt = client.scopes.attempt(begun, epoch)
        attempt.send("small", of_bytes(epoch, 1, 100_000))
        client.scopes.commit(begun, epoch, [attempt.finish()])
    before = client.status().counters
    assert [one for batch in client.read("small") for one in batch["id"].to_pylist()] == list(range(1, 61))
    after = client.status().counters
    assert after["bytes_read"] - before["bytes_read"] < 2 * 60 * 100_000
    assert after["fetches"] - before["fetches"] < 15


def test_scopes_that_stage_side_by_side_are_read_in_the_order_of_their_commits(
    client: ringfence.Client,
) -> None:
    """With runs far shorter than an epoch, and attempts between that are never committed."""
    client.create_topic("mixed", schema=SCHEMA, partitions=1)
    wanted: list[int] = []
    begun = [client.scopes.begin(f"mixed-{number}") for number in range(3)]
    with client.producer("mixed") as producer:
        for epoch in range(1, 5):
            attempts = [client.scopes.attempt(scope, epoch) for scope in begun]
            lost = client.scopes.attempt(begun[0], epoch)
            ids: list[list[int]] = [[], [], []]
            for step in range(8):
                for number, attempt in enumerate(attempts):
                    first = epoch * 1000 + step * 100 + number * 10
                    attempt.send("mixed", of_bytes(first, 3, 70_000 if step == 5 else 4000))
                    attempt.flush()
                    ids[number] += range(first, first + 3)
                lost.send("mixed", of_bytes(-1, 3, 4000))
                lost.flush()
            producer.send(rows(epoch * 1000 + 900, 2)).result(30)
            wanted += range(epoch * 1000 + 900, epoch * 1000 + 902)
            for number in (1, 2, 0) if epoch % 2 else (2, 0, 1):
                if (epoch, number) == (3, 2):
                    client.scopes.expire(begun[number], epoch)
                    continue
                client.scopes.commit(begun[number], epoch, [attempts[number].finish()])
                wanted += ids[number]
    for prefetch in (1, 1 << 26):
        reader = client.read("mixed", prefetch_bytes=prefetch)
        assert [one for batch in reader for one in batch["id"].to_pylist()] == wanted
        for start in (1, 30, 75, len(wanted) - 1):
            part = client.read("mixed", start=start, batch_rows=2, prefetch_bytes=prefetch)
            assert [one for batch in part for one in batch["id"].to_pylist()] == wanted[start:]
