"""What members of a STREAM cohort got, checked against the rows of the topic (docs/consumers.md)."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import pyarrow as pa

import ringfence
from tests.harness.member import Acked
from tests.harness.processes import SCHEMA, until

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.harness.member import Given, Member

KEYS = 16
Rows = list[tuple[int, int]]


def round_of(number: int, keys: int = KEYS) -> pa.RecordBatch:
    """One row of each key, with this number."""
    columns = [
        pa.array([number] * keys, pa.int64()),
        pa.array(range(keys), pa.int64()),
        pa.array([f"{key}:{number}" for key in range(keys)]),
    ]
    return pa.record_batch(columns, schema=SCHEMA)


class Feed:
    """A thread that publishes rounds until it is told to stop. The topic's key is `producer`."""

    def __init__(self, addresses: str, topic: str, *, start: int = 0, pause_s: float = 0.01) -> None:
        self._addresses, self._topic, self._pause_s = addresses, topic, pause_s
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.next = start
        self.errors: list[Exception] = []

    def start(self) -> Feed:
        self._thread.start()
        return self

    def finish(self) -> None:
        self._ends.set()
        self._thread.join(60)
        assert not self._thread.is_alive()
        assert self.errors == []

    def _run(self) -> None:
        try:
            with (
                ringfence.connect(self._addresses, timeout_s=60) as client,
                client.producer(self._topic) as producer,
            ):
                while not self._ends.is_set():
                    producer.send(round_of(self.next))
                    self.next += 1
                    time.sleep(self._pause_s)
        except Exception as error:  # noqa: BLE001  # the test looks at it
            self.errors.append(error)


def publish(client: ringfence.Client, topic: str, rounds: range) -> None:
    with client.producer(topic) as producer:
        for number in rounds:
            producer.send(round_of(number))


def all_acked(members: Sequence[Member], stored: Mapping[int, Rows]) -> bool:
    """Whether each row of the topic is acknowledged."""
    through = dict.fromkeys(stored, 0)
    for acked in _acked(members):
        through[acked.partition] = max(through[acked.partition], acked.through)
    return all(through[partition] >= len(rows) for partition, rows in stored.items())


def until_all_acked(members: Sequence[Member], stored: Mapping[int, Rows], timeout_s: float = 60) -> None:
    try:
        until(lambda: all_acked(members, stored), timeout_s, "each row is acknowledged")
    finally:
        print({one.name: (len(one.given), len(one.acked), one.errors) for one in members})


def check_deliveries(members: Sequence[Member], stored: Mapping[int, Rows]) -> None:
    """No acknowledged row comes again, none is left out, holds ascend, and order holds in each partition.

    Partitions are those of a topic whose layout does not change: order in them is order of each key.
    """
    for partition, rows in stored.items():
        given = sorted((one for one in _given(members) if one.partition == partition), key=lambda one: one.at)
        acked = [one for one in _acked(members) if one.partition == partition]
        reached = token = end = 0
        for one in given:
            assert list(one.rows) == rows[one.first : one.end], f"other rows than stored: {one}"
            assert one.token >= token, f"an older hold gave rows after {token}: {one}"
            if one.token == token:
                assert one.first == end, f"not the rows after {end}, of the same hold: {one}"
            settled = max((ack.through for ack in acked if ack.at < one.at), default=0)
            assert one.first >= settled, f"rows before {settled} were acknowledged, and come again: {one}"
            assert one.first <= reached, f"rows {reached} to {one.first} were never given: {one}"
            token, end, reached = one.token, one.end, max(reached, one.end)


def check_keys(members: Sequence[Member], numbers: Sequence[int]) -> None:
    """Over all changes of the layout: rows of each key come in order, none is left out.

    Only what was not acknowledged may come again. `numbers`: the rows of each key, in order.
    """
    place_of = {number: place for place, number in enumerate(numbers)}
    told: list[Given | Acked] = [*_given(members), *_acked(members)]
    reached, settled = dict.fromkeys(range(KEYS), 0), dict.fromkeys(range(KEYS), 0)
    rows: dict[int, dict[int, tuple[int, int]]] = {}
    for one in sorted(told, key=lambda one: one.at):
        of_partition = rows.setdefault(one.partition, {})
        if isinstance(one, Acked):
            for key, place in (row for offset, row in of_partition.items() if offset < one.through):
                settled[key] = max(settled[key], place + 1)
            continue
        for offset, (key, number) in enumerate(one.rows, one.first):
            place = place_of[number]
            assert place >= settled[key], f"key {key}: {number} was acknowledged, and comes again: {one}"
            assert place <= reached[key], f"key {key}: {number} comes before the row at {reached[key]}: {one}"
            reached[key] = max(reached[key], place + 1)
            of_partition[offset] = (key, place)
    assert reached == dict.fromkeys(range(KEYS), len(numbers)), "rows that were never given"
    assert settled == reached, "rows that were never acknowledged"


def all_settled(members: Sequence[Member], numbers: Sequence[int]) -> bool:
    """Whether `check_keys` would find every row acknowledged."""
    last = [(key, numbers[-1]) for key in range(KEYS)]
    for given in _given(members):
        for offset, row in enumerate(given.rows, given.first):
            acked = any(a.partition == given.partition and a.through > offset for a in _acked(members))
            if row in last and acked:
                last.remove(row)
    return not last


def _given(members: Sequence[Member]) -> list[Given]:
    return [given for member in members for given in member.given]


def _acked(members: Sequence[Member]) -> list[Acked]:
    return [acked for member in members for acked in member.acked]
