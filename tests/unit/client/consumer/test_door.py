"""`client.consumer(...)`: its arguments, and the end of the client."""

from __future__ import annotations

from typing import Any

import pytest

import ringfence
from tests.fakes.cohort_topic import cohort_topic, ids


def test_a_client_that_closes_takes_its_consumers_with_it() -> None:
    with cohort_topic() as (node, _):
        other = ringfence.connect(node.address)
        consumer = other.consumer("t", cohort="c")
        ids(consumer, 10)
        other.close()
        assert node.members == {}
        assert "closed" in repr(consumer)


@pytest.mark.parametrize(("options", "text"), [
    ({"mode": "table"}, "mode must be one of"), ({"ack": "none"}, "ack must be one of"),
    ({"cohort": "a b"}, "cohort must have 1 to 64"), ({"member": ""}, "member must have 1 to 64"),
    ({"mode": "checkpoint"}, "positions is required"), ({"positions": {}}, "positions is required"),
    ({"bytes_in_flight_max": 5}, "bytes_in_flight_max must be"), ({"idle_s": -1}, "idle_s must be above 0"),
])  # fmt: skip
def test_arguments_are_checked_before_anything_is_sent(options: dict[str, Any], text: str) -> None:
    with cohort_topic() as (node, client):
        with pytest.raises(ringfence.InvalidArgumentError, match=text):
            client.consumer("t", **{"cohort": "c", **options})
        assert node.joins == []
