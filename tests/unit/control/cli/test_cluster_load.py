"""The demo's proof notices each kind of wrong row: lost, doubled, out of order, altered, never sent."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pytest

from ringfence.arrow.decode import Place
from ringfence.control.cli import cluster_load
from ringfence.control.cli.cluster_load import ProofError, Writer, topic_schema, verify_rows
from ringfence.native.errors import DeadlineError
from ringfence.native.slots import slots
from tests.harness.processes import until

SOURCE = pa.record_batch(
    {"l_orderkey": pa.array(np.arange(40) * 7), "l_comment": [f"c{row}" for row in range(40)]}
)
SENT = {0: 100, 1: 60}
Read = list[tuple[Place | None, pa.RecordBatch]]


def rows(producer: int, numbers: list[int]) -> pa.RecordBatch:
    taken = SOURCE.take(pa.array(np.array(numbers) % SOURCE.num_rows))
    identity = [pa.array([producer] * len(numbers), pa.int32()), pa.array(numbers, pa.int64())]
    return pa.RecordBatch.from_arrays([*taken.columns, *identity], schema=topic_schema(SOURCE.schema))


def at(partition: int) -> Place:
    return Place(partition, 0, 1, 1, 0)


def sound() -> Read:
    """Two partitions: even numbers and odd ones, of both producers."""
    return [
        (at(part), rows(producer, list(range(part + start, min(start + 20, count), 2))))
        for producer, count in SENT.items()
        for start in range(0, count, 20)
        for part in (0, 1)
    ]


def replaced(read: Read, place: int, batch: pa.RecordBatch) -> Read:
    return [*read[:place], (read[place][0], batch), *read[place + 1 :]]


def altered(batch: pa.RecordBatch) -> pa.RecordBatch:
    keys = batch.column(0).to_numpy().copy()
    keys[3] += 1
    return pa.RecordBatch.from_arrays([pa.array(keys), *batch.columns[1:]], schema=batch.schema)


def test_sound_rows_are_counted() -> None:
    assert verify_rows(sound(), SOURCE, SENT) == sum(SENT.values())


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (lambda read: replaced(read, 4, read[4][1].slice(1)), "lost"),
        (lambda read: [*read, read[4]], "repeated"),
        (lambda read: [*read, (at(2), read[4][1])], "doubled"),
        (lambda read: [read[2], read[1], read[0], *read[3:]], "out of order"),
        (lambda read: replaced(read, 4, altered(read[4][1])), "differ"),
        (lambda read: [*read, (at(0), rows(0, [100]))], "never sent"),
        (lambda read: [*read, (at(0), rows(7, [0]))], "never sent"),
    ],
)
def test_each_harm_is_noticed(harm: Callable[[Read], Read], said: str) -> None:
    with pytest.raises(ProofError, match=said):
        verify_rows(harm(sound()), SOURCE, SENT)


def divided() -> Read:
    """One partition whose slots two others take: what is sent from number 30 on, by the slot of its key."""
    halves: Read = [(at(0), rows(0, list(range(30))))]
    sides = slots(rows(0, list(range(30, 70))), ["l_orderkey"]) < 1 << 15
    for part, is_there in ((1, sides), (2, ~sides)):
        halves.append((at(part), rows(0, [30 + number for number in np.flatnonzero(is_there).tolist()])))
    return halves


def test_by_key_a_slot_goes_on_in_the_partition_that_takes_it_over() -> None:
    read, sent = divided(), {0: 70}
    assert verify_rows(read, SOURCE, sent, "l_orderkey") == 70
    assert verify_rows([read[0], read[2], read[1]], SOURCE, sent, "l_orderkey") == 70, "children in any order"
    with pytest.raises(ProofError, match="out of order"):
        verify_rows([read[1], read[0], read[2]], SOURCE, sent, "l_orderkey")
    with pytest.raises(ProofError, match="repeated"):
        verify_rows([*read, (at(3), read[1][1])], SOURCE, sent, "l_orderkey")
    with pytest.raises(ProofError, match="lost"):
        verify_rows(read[:2], SOURCE, sent, "l_orderkey")


class FailingClient:
    """Refuses every third send, and lets a later one raise at once if `raises_at` says so."""

    def __init__(self, raises_at: int = 0) -> None:
        self.sends, self._raises_at = 0, raises_at

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def producer(self, _: str, *, timeout_s: float) -> Self:
        assert timeout_s > 0
        return self

    def send(self, batch: pa.RecordBatch) -> Future[Any]:
        self.sends += 1
        if self.sends == self._raises_at:
            raise TimeoutError("this one raises")
        outcome: Future[Any] = Future()
        if self.sends % 3 == 0:
            outcome.set_exception(DeadlineError(f"send {self.sends} is late"))
        else:
            outcome.set_result([SimpleNamespace(rows=batch.num_rows)])
        return outcome


@pytest.mark.parametrize("raises_at", [0, 100])
def test_a_writer_counts_every_send_that_failed(monkeypatch: pytest.MonkeyPatch, raises_at: int) -> None:
    """It once ended with the first one, and one that no library error ended was none."""
    client = FailingClient(raises_at)
    monkeypatch.setattr(cluster_load, "open_client", lambda _: client)
    writer = Writer("tcp://nowhere", "t", 0, SOURCE, 1e9)
    writer.start()
    until(lambda: client.sends >= 100, what="a hundred sends")
    writer.finish()
    assert (writer.sends, writer.errors) == (client.sends, client.sends // 3 + bool(raises_at))
    assert writer.error.endswith("send 3 is late")
    assert bool(writer.failure) == bool(raises_at)
