"""What a caller passes by mistake is refused by name, before anything is sent."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import ringfence
from ringfence.native.wire import Opcode
from tests.fakes.client_topic import SCHEMA, ids_of, node_with_topic, rows

WRONG: list[tuple[str, Callable[[ringfence.Client, Any], Any], Any]] = [
    ("name=None", lambda client, given: client.create_topic(given, schema=SCHEMA), None),
    ("partitions='3'", lambda client, given: client.create_topic("n", schema=SCHEMA, partitions=given), "3"),
    (
        "key must contain names of columns",
        lambda client, given: client.create_topic("n", schema=SCHEMA, key=given),
        [5],
    ),
    (
        "key must contain names of columns",
        lambda client, given: client.create_topic("n", schema=SCHEMA, key=given),
        5,
    ),
    ("properties=5", lambda client, given: client.create_topic("n", schema=SCHEMA, properties=given), 5),
    ("properties", lambda client, given: client.create_topic("n", schema=SCHEMA, properties=given), {"a": 1}),
    (
        "retention_ms=1.5",
        lambda client, given: client.create_topic("n", schema=SCHEMA, retention_ms=given),
        1.5,
    ),
    ("name=5", lambda client, given: client.producer("t", name=given), 5),
    ("name=5", lambda client, given: client.count(given), 5),
    ("prefix=5", lambda client, given: client.topics(given), 5),
    (
        "before_offset must be a whole number",
        lambda client, given: client.truncate("t", before_offset=given),
        "9",
    ),
    ("columns must contain names of columns", lambda client, given: client.read("t", columns=given), [0]),
]


@pytest.mark.parametrize(("said", "call", "given"), WRONG)
def test_a_value_of_another_type_is_refused_by_the_name_of_its_argument(
    said: str, call: Callable[[ringfence.Client, Any], Any], given: Any
) -> None:
    with node_with_topic() as (_, client), pytest.raises(ringfence.InvalidArgumentError, match=said):
        call(client, given)


def test_a_text_is_the_name_of_one_column() -> None:
    with node_with_topic(key=()) as (_, client):
        assert client.create_topic("keyed", schema=SCHEMA, key="id").key == ["id"]
        with client.producer("t") as producer:
            producer.send(rows(0, 3))
        batches = list(client.read("t", columns="id"))
        assert [batch.schema.names for batch in batches] == [["id"]]
        with pytest.raises(ringfence.InvalidArgumentError) as caught:
            client.read("t", columns="idtext")
        assert caught.value.columns == ["idtext"]


TIMES: list[tuple[Callable[[ringfence.Client, Any], Any], str]] = [
    (lambda client, given: client.transaction("t", scope="s", timeout_s=given), "timeout_s"),
    (lambda client, given: client.producer("t", timeout_s=given), "timeout_s"),
    (lambda client, given: client.producer("t", bytes_in_flight_max=given), "bytes_in_flight_max"),
    (lambda client, given: client.producer("t", batch_bytes=given), "batch_bytes"),
    (lambda client, given: client.producer("t", linger_ms=given), "linger_ms"),
    (lambda client, given: client.read("t", batch_rows=given or 0), "batch_rows"),
    (lambda client, given: ringfence.connect(client.addresses[0], timeout_s=given), "timeout_s"),
    (lambda client, given: client.offsets_at("t", given), "a start time"),
]


@pytest.mark.parametrize("given", [math.nan, "5", None, -1], ids=str)
@pytest.mark.parametrize(("call", "name"), TIMES)
def test_a_time_or_a_size_that_is_none_is_refused_by_its_name(
    call: Callable[[ringfence.Client, Any], Any], name: str, given: Any
) -> None:
    with node_with_topic(partitions=1) as (node, client):
        with pytest.raises(ringfence.InvalidArgumentError, match=name):
            call(client, given)
        assert node.sent(Opcode.PUBLISH) == []
        assert client.count("t") == 0


def test_an_infinite_time_out_is_a_very_long_one() -> None:
    with (
        node_with_topic(partitions=1) as (node, client),
        ringfence.connect(node.address, timeout_s=math.inf) as patient,
    ):
        with patient.producer("t", timeout_s=math.inf) as producer:
            producer.send(rows(0)).result(10)
        assert [batch.num_rows for batch in patient.read("t", timeout_s=math.inf)] == [1]
        assert ids_of(client) == [0]


WRONG_SCOPES: list[dict[str, Any]] = [
    {"scope": "\udcff"},
    {"scope": 5},
    {"scope": None},
    {"scope": ""},
    {"scope": "s", "epoch": "1"},
    {"scope": "s", "epoch": 1.5},
    {"scope": "s", "epoch": 2**64},
    {"scope": "s", "epoch": 0},
]


@pytest.mark.parametrize("given", WRONG_SCOPES, ids=ascii)
@pytest.mark.parametrize("topic", ["t", None])
def test_a_scope_or_an_epoch_that_is_none_is_refused_before_it_is_sent(
    given: dict[str, Any], topic: str | None
) -> None:
    with node_with_topic(partitions=1) as (node, client):
        with pytest.raises(ringfence.InvalidArgumentError):
            client.transaction(topic, **given)
        assert node.sent(Opcode.BEGIN) == []


def test_numbers_of_numpy_are_numbers() -> None:
    with node_with_topic(partitions=2) as (_, client):
        with client.producer("t") as producer:
            producer.send(rows(0, 10)).result(10)
        one, other = client.end_offsets("t").values()
        number: Any = np.int64(one.partition)
        start: Any = np.int32(one.end)
        positions: Any = [(number, start, np.uint64(0))]
        expected = other.rows
        assert sum(batch.num_rows for batch in client.read("t", start={number: start})) == expected
        assert list(client.read("t", partition=number, start=start)) == []
        assert client.count("t", partition=[number]) == one.rows
        assert list(client.read("t", partition=number, start=positions)) == []


@pytest.mark.parametrize("kind", ["client", "producer", "reader", "scopes", "future", "aio"])
def test_what_stays_in_its_process_says_so_to_pickle(kind: str) -> None:
    with node_with_topic(partitions=1) as (_, client), client.producer("t") as producer:
        things = {
            "client": client,
            "producer": producer,
            "reader": client.read("t"),
            "scopes": client.scopes,
            "future": producer.send(rows(0)),
            "aio": ringfence.aio.Client(client),
        }
        with pytest.raises(TypeError, match=r"call ringfence\.connect\(address\) there"):
            things[kind].__reduce_ex__(2)


def test_no_number_above_the_greatest_is_drawn() -> None:
    with node_with_topic(partitions=1) as (_, client):
        producer = client.producer("t")
        producer.send(rows(0), number=2**63 - 1).result(10)
        for _ in range(2):
            with pytest.raises(ringfence.InvalidArgumentError, match="maximum number"):
                producer.send(rows(1))
        producer.close()
        assert ids_of(client) == [0]


def broken(count: int) -> pa.RecordBatch:
    """`count` texts whose places point behind their bytes."""
    places = np.zeros(count + 1, np.int32)
    texts = pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(places), pa.py_buffer(b"abc")])
    batch = pa.record_batch([pa.array(range(count), pa.int64()), texts], schema=SCHEMA)
    places[1:] = 1_000_000  # pyarrow looks at them when it makes the array
    return batch


@pytest.mark.parametrize("name", [None, "named"])
@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("count", [1, 20])
def test_rows_that_are_not_sound_are_refused_by_name(name: str | None, parts: int, count: int) -> None:
    with node_with_topic() as (_, client), client.producer("t", name=name) as producer:
        with pytest.raises(
            ringfence.BatchError, match=r'the Arrow data of column "text" is invalid: .*1000000'
        ):
            producer.send(broken(count) if parts == 1 else pa.Table.from_batches([broken(count)] * parts))
        assert producer.bytes_in_flight == 0


def test_a_closed_client_says_so_to_threads_that_came_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """The system gives the name of a thread that has ended to the next one, as it likes: here always."""
    with node_with_topic() as (_, client):
        client.topics()
        io_thread = client._io_thread
        assert io_thread._thread is not None
        ended = io_thread._thread.ident
        client.close()
        monkeypatch.setattr("ringfence.network.io_thread.threading.get_ident", lambda: ended)
        with pytest.raises(ringfence.ClosedError):
            client.topics()


@pytest.mark.parametrize("given", [b"secret-bytes", 987654])
def test_a_token_of_another_type_is_refused_without_a_word_of_it(given: Any) -> None:
    with pytest.raises(ringfence.ConfigError, match=r"token must be a str, not a (bytes|int)") as caught:
        ringfence.connect("tcp://127.0.0.1:1", token=given)
    assert "secret" not in str(caught.value)
    assert "987654" not in str(caught.value)
