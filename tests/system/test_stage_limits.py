"""A partition has room for so many staged batches: who finds none hears why, and gets what others give up."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import ringfence
from tests.fakes.client_topic import SCHEMA, ids_of, rows
from tests.harness.processes import NodeProcess

BATCHES_MAX = 65_536
"""Staged at one partition, of all scopes (`core/node/src/transactions/staged_batches.rs`)."""


@pytest.fixture
def client(node: NodeProcess) -> Iterator[ringfence.Client]:
    with ringfence.connect(node.address, timeout_s=60) as made:
        yield made


def test_a_transaction_that_finds_a_partition_full_of_stages_comes_whole_once_they_are_given_up(
    client: ringfence.Client,
) -> None:
    for topic in ("full", "free"):
        client.create_topic(topic, schema=SCHEMA)
    hog = client.transaction("full", scope="hog")
    one = rows(0)
    for _ in range(BATCHES_MAX):
        hog.send(one)
    hog.flush()
    told = ""
    for timeout_s in (2, 10, 50):  # in a slow machine's two seconds it has no answer that it could tell
        late = client.transaction(scope="late", timeout_s=timeout_s)
        late.send(rows(200, 5), topic="free")
        late.send(rows(100, 5), topic="full")
        with pytest.raises(ringfence.RingfenceError) as caught:
            late.commit()
        assert isinstance(caught.value, ringfence.DeadlineError | ringfence.OverloadedError)
        told = str(caught.value)
        if f"{BATCHES_MAX} batches" in told:
            break
    assert f"{BATCHES_MAX} batches" in told
    assert "are staged here and not committed; commit or expire some" in told
    assert [ids_of(client, topic) for topic in ("full", "free")] == [[], []], "no half of it"
    with client.producer("full") as producer:
        producer.send(rows(1))
    assert ids_of(client, "full") == [1], "stages take no room from rows"
    hog.abort()
    with client.transaction(scope="late") as late:
        late.send(rows(200, 5), topic="free")
        late.send(rows(100, 5), topic="full")
    assert sorted(ids_of(client, "full")) == [1, *range(100, 105)]
    assert sorted(ids_of(client, "free")) == list(range(200, 205))
