"""The steps of an application: decoding, and what the end of a loop leaves."""

from __future__ import annotations

import threading

import pytest

import ringfence
from tests.fakes.cohort_topic import MANY, cohort_topic, ids, opened


def test_batches_are_views_of_the_received_frames() -> None:
    with cohort_topic(count=1000, each=1000) as (_, client), opened(client) as consumer:
        batch = consumer.next(5.0)
        assert batch is not None
        assert batch.column("id").buffers()[1].parent is not None or batch.nbytes > 0
        assert batch.column("id").buffers()[1].is_cpu
        assert not batch.column("id").buffers()[1].is_mutable


def test_a_loop_that_is_left_acknowledges_nothing_of_its_last_batch() -> None:
    with cohort_topic() as (node, client):
        with opened(client) as consumer:
            for batch in consumer:
                assert batch is not None
                if batch.column("id")[0].as_py() == 30:
                    break
        assert node.settled() == {next(iter(node.gates)): 30}
        with opened(client) as consumer:
            assert ids(consumer, 70)[0] == 30


def test_another_thread_may_close_the_consumer_and_ends_the_loop() -> None:
    with cohort_topic() as (node, client):
        consumer = opened(client)
        threading.Timer(0.5, consumer.close).start()
        count = sum(batch.num_rows for batch in consumer if batch is not None)
        assert count == MANY
        assert node.members == {}
        with pytest.raises(ringfence.ClosedError, match="create another one"):
            consumer.next(1.0)
