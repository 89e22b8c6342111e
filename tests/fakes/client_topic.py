"""What the client's tests share: a schema, rows, and a fake node with one topic."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

import ringfence
from tests.fakes.socket_node import FakeNode, Hook

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("text", pa.string())])


def rows(start: int, count: int = 1, text: str = "x") -> pa.RecordBatch:
    ids = range(start, start + count)
    return pa.record_batch([pa.array(ids, pa.int64()), pa.array([f"{text}{i}" for i in ids])], schema=SCHEMA)


@contextmanager
def node_with_topic(
    *,
    partitions: int = 4,
    key: tuple[str, ...] = ("id",),
    hook: Hook | None = None,
    credit_bytes: int = 1 << 25,
) -> Iterator[tuple[FakeNode, ringfence.Client]]:
    """A fake node with topic "t" and a client of it."""
    with FakeNode(credit_bytes=credit_bytes) as node, ringfence.connect(node.address, timeout_s=10) as client:
        client.create_topic("t", schema=SCHEMA, key=key, partitions=partitions)
        node.hook = hook
        yield node, client
        node.hook = None


def ids_of(client: ringfence.Client, topic: str = "t") -> list[int]:
    return [one for batch in client.read(topic) for one in batch.column("id").to_pylist()]


def until(condition: Callable[[], bool], timeout_s: float = 10) -> None:
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.005)


def impatient(producer: ringfence.Producer) -> None:
    """An answer that does not come within a tenth of a second counts as lost."""
    producer._sender.try_s_max, producer._sender.grace_s = 0.05, 0.05


def send_all(producer: ringfence.Producer, sends: int, each: int = 1) -> None:
    """Ids from 0 on, without waiting for outcomes."""
    for number in range(sends):
        producer.send(rows(number * each, each))


class Caught:
    """A call in a thread of its own, and its error."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self._future: Future[Any] = Future()
        self._function = function
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        try:
            self._future.set_result(self._function())
        except BaseException as error:  # noqa: BLE001 - it is raised again where it is waited for
            self._future.set_exception(error)

    def error(self, seconds: float) -> BaseException | None:
        return self._future.exception(seconds)

    def result(self, seconds: float) -> Any:
        return self._future.result(seconds)


def within(seconds: float, function: Callable[[], Any]) -> Any:
    """Its result or its error; TimeoutError where it would hang."""
    return Caught(function).result(seconds)
