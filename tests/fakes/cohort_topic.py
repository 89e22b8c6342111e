"""What tests of consumers share: a node with topic "t" and rows in it, and members of one cohort."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import ringfence
from tests.fakes.client_topic import SCHEMA, rows
from tests.fakes.cohort_node import CohortNode

MANY = 100


@contextmanager
def cohort_topic(
    partitions: int = 1, count: int = MANY, each: int = 10, **options: Any
) -> Iterator[tuple[CohortNode, ringfence.Client]]:
    """A node with topic "t" of `count` rows."""
    with CohortNode(**options) as node, ringfence.connect(node.address, timeout_s=10) as client:
        client.create_topic("t", schema=SCHEMA, key=("id",), partitions=partitions)
        with client.producer("t") as producer:
            for first in range(0, count, each):
                producer.send(rows(first, each))
        yield node, client
        node.hook = None


def opened(client: ringfence.Client, **options: Any) -> ringfence.Consumer:
    """A member of the cohort."""
    return client.consumer("t", cohort="c", **options)


def until_raised(consumer: ringfence.Consumer) -> None:
    """Ask for batches until that raises."""
    for _ in range(100):
        consumer.next(0.5)


def ids(consumer: ringfence.Consumer, count: int = MANY) -> list[int]:
    """The next ids, at least `count`."""
    found: list[int] = []
    deadline = time.monotonic() + 20
    while len(found) < count:
        batch = consumer.next(1.0)
        assert time.monotonic() < deadline, f"{len(found)} of {count} rows came"
        if batch is not None:
            found += batch.column("id").to_pylist()
    return found


def all_settled(node: CohortNode, count: int = MANY) -> bool:
    return sum(node.settled().values()) == count
