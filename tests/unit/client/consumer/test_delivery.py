"""What an application says of rows: by their numbers in the batch."""

from __future__ import annotations

from typing import Any

import pytest

import ringfence
from ringfence.consumer.queue_calls import What
from tests.fakes.client_topic import until
from tests.fakes.queue_node import member, queue_topic


def test_each_word_goes_to_the_owner_with_the_rows_it_names() -> None:
    with queue_topic(count=10) as (node, client), member(client, ack="manual") as consumer:
        delivery = next(consumer.deliveries())
        assert (delivery.partition, delivery.count) == (delivery.place.partition, 0)
        assert "rows 0 to 9, 0 failures" in repr(delivery)
        delivery.fail([3, 1, 1], delay_s=30, reason="bad")
        delivery.park(range(4, 6), reason="worse")
        delivery.release([9])
        delivery.ack()
        until(lambda: len(node.ranges(What.DONE)) == 3, 10)
        assert node.ranges(What.FAILED) == [(1, 2), (3, 4)]
        assert node.ranges(What.PARKED) == [(4, 6)]
        assert node.ranges(What.RELEASED) == [(9, 10)]
        assert node.ranges(What.DONE) == [(0, 1), (2, 3), (6, 9)]
        failed = [one for one in node.said if one.what is What.FAILED]
        assert {(one.delay_ms, one.reason) for one in failed} == {(30_000, b"bad")}


@pytest.mark.parametrize("rows", [[10], [-1], ["1"], "12", [1.5]])
def test_rows_that_are_none_of_the_batch_are_refused(rows: Any) -> None:
    with queue_topic(count=10) as (_, client), member(client, ack="manual") as consumer:
        delivery = next(consumer.deliveries())
        with pytest.raises(ringfence.InvalidArgumentError, match="rows must be"):
            delivery.ack(rows)
        with pytest.raises(ringfence.InvalidArgumentError, match="delay_s must be"):
            delivery.fail(delay_s=-1)


def test_only_a_queue_has_deliveries() -> None:
    with (
        queue_topic() as (_, client),
        client.consumer("t", cohort="c") as consumer,
        pytest.raises(ringfence.InvalidArgumentError, match="iterate the consumer itself"),
    ):
        next(consumer.deliveries())
