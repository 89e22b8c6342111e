"""What the application's sides of all modes share: refusals after the end, and closing."""

from __future__ import annotations

import pytest

import ringfence
from tests.fakes.cohort_topic import cohort_topic, opened
from tests.fakes.queue_node import member, queue_topic


def test_a_closed_consumer_says_so_and_has_left() -> None:
    with queue_topic() as (node, client):
        consumer = member(client)
        assert consumer.next(5.0) is not None
        consumer.close()
        consumer.close()
        assert node.members == {}
        with pytest.raises(ringfence.ClosedError, match="create another one"):
            consumer.next(1.0)
        assert list(consumer) == []


def test_a_stream_is_a_member_when_it_has_partitions_and_a_queue_when_it_is_attached() -> None:
    with cohort_topic() as (_, client), opened(client) as stream:
        assert stream.next(5.0) is not None
        assert stream.core.is_member
    with queue_topic(count=0) as (_, client), member(client) as queue:
        assert queue.next(0.5) is None
        assert queue.core.is_member
