"""The client against the program itself: what the fake node says is also what the real one does."""

from __future__ import annotations

import datetime as dt
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import ringfence
from tests.fakes.client_topic import SCHEMA, ids_of, rows, until
from tests.harness.processes import NodeProcess
from tests.harness.proxy import Proxy

# As Parquet readers name and mark the child of a list.
ELEMENTS = pa.list_(pa.field("element", pa.string(), metadata={"PARQUET:field_id": "2"}))


@pytest.fixture(scope="module")
def node(module_folder: Path) -> Iterator[NodeProcess]:
    with NodeProcess(module_folder / "data") as running:
        yield running


@pytest.fixture
def client(node: NodeProcess) -> Iterator[ringfence.Client]:
    with ringfence.connect(node.address, timeout_s=30) as made:
        yield made


def test_connections_that_break_lose_and_double_nothing(node: NodeProcess, client: ringfence.Client) -> None:
    client.create_topic("cuts", schema=SCHEMA, key=["id"], partitions=4)
    with Proxy(node.address) as proxy, ringfence.connect(proxy.address, timeout_s=30) as cut:
        with cut.producer("cuts") as producer:
            for start in range(0, 4000, 10):
                producer.send(rows(start, 10))
                if start % 400 == 200:
                    proxy.cut() if start % 800 == 200 else proxy.cut_answers()
                time.sleep(0.002)
        assert proxy.cuts >= 8
    assert sorted(ids_of(client, "cuts")) == list(range(4000))


def test_a_successor_fences_and_gets_the_note(client: ringfence.Client) -> None:
    client.create_topic("named", schema=SCHEMA, key=["id"], partitions=4)
    first = client.producer("named", name="loader")
    for number in range(10):
        first.send(rows(number * 20, 20), note=b"file %d" % number)
    first.flush(30)
    second = client.producer("named", name="loader")
    assert len(second.resume) == 4
    assert {point.note for point in second.resume.values()} == {b"file 9"}
    assert {point.send for point in second.resume.values()} == {10}
    with pytest.raises(ringfence.FencedError):
        first.send(rows(1000, 20)).result(30)
    with pytest.raises(ringfence.FencedError):
        first.close()
    assert second.send(rows(0, 20), number=10).result(30) == ()
    second.send(rows(200, 20)).result(30)
    second.close()
    assert sorted(ids_of(client, "named")) == list(range(220))


def test_a_refused_batch_is_followed_by_the_others_under_a_new_identity(client: ringfence.Client) -> None:
    client.create_topic("refused", schema=SCHEMA, key=["id"], partitions=2)
    producer = client.producer("refused")
    producer.send(rows(0, 20)).result(30)
    encoder = producer._encoder
    swapped = encoder.layout.index_of_slot
    swapped[:] = 1 - swapped  # rows go to the wrong partition
    wrong = producer.send(rows(20, 20))
    swapped[:] = 1 - swapped
    right = [producer.send(rows(start, 20)) for start in range(40, 400, 20)]
    with pytest.raises(ringfence.BatchError) as caught:
        wrong.result(30)
    assert caught.value.topic == "public/default/refused"
    for future in right:
        future.result(30)
    with pytest.raises(ringfence.BatchError):
        producer.close()
    assert sorted(ids_of(client, "refused")) == [*range(20), *range(40, 400)]


def test_a_new_column_reads_null_in_older_rows(client: ringfence.Client) -> None:
    client.create_topic("grows", schema=SCHEMA, key=["id"], partitions=1)
    wide = SCHEMA.append(pa.field("more", pa.float64()))
    with client.producer("grows") as old:
        old.send(rows(0, 5)).result(30)
        assert client.add_schema("grows", wide) == 1
        with client.producer("grows") as new:
            batch = pa.record_batch(
                [pa.array([5], pa.int64()), pa.array(["x"]), pa.array([2.5])], schema=wide
            )
            new.send(batch).result(30)
        old.send(rows(6, 2)).result(30)
    table = pa.Table.from_batches(list(client.read("grows")))
    assert table.schema.names == ["id", "text", "more"]
    assert table.column("more").to_pylist() == [None] * 5 + [2.5, None, None]


@pytest.mark.parametrize(
    ("stored", "given"),
    [
        (pa.int64(), pa.int8()),
        (pa.int64(), pa.uint32()),
        (pa.int64(), pa.dictionary(pa.int16(), pa.int32())),
        (pa.float64(), pa.float32()),
        (pa.decimal128(20, 2), pa.decimal128(12, 2)),
        (pa.timestamp("us"), pa.timestamp("s")),
        (pa.string(), pa.large_string()),
        (pa.string(), pa.dictionary(pa.int32(), pa.string_view())),
    ],
    ids=str,
)
def test_keys_of_narrower_types_go_where_the_stored_ones_belong(
    client: ringfence.Client, stored: pa.DataType, given: pa.DataType
) -> None:
    values = given.value_type if pa.types.is_dictionary(given) else given
    numbers = pa.array(range(100), pa.int64())
    narrow = (numbers if pa.types.is_timestamp(values) else numbers.cast(pa.string())).cast(values)
    wide = narrow.cast(stored)
    narrow = narrow.dictionary_encode().cast(given) if values != given else narrow
    topic = f"keys-{abs(hash((str(stored), str(given))))}"
    schema = pa.schema([pa.field("k", stored)])
    client.create_topic(topic, schema=schema, key=["k"], partitions=8)
    with client.producer(topic) as producer:
        one = producer.send(pa.record_batch([narrow], names=["k"])).result(30)
        two = producer.send(pa.record_batch([wide], names=["k"])).result(30)
    assert [(part.partition, part.rows) for part in one] == [(part.partition, part.rows) for part in two]
    assert len(one) == 8
    rows = pa.Table.from_batches(client.read(topic))["k"].to_pylist()
    assert sorted(rows) == sorted(2 * wide.to_pylist())


@pytest.mark.parametrize(
    ("stored", "given"),
    [
        (ELEMENTS, pa.list_(pa.string())),
        (pa.list_(pa.string()), ELEMENTS),
        (pa.struct([("tags", pa.list_(pa.string()))]), pa.struct([("tags", ELEMENTS)])),
    ],
    ids=str,
)
@pytest.mark.parametrize("key", [[], ["id"]], ids=["whole", "gathered"])
def test_lists_whose_children_have_other_names_are_the_same_lists(
    client: ringfence.Client, stored: pa.DataType, given: pa.DataType, key: list[str]
) -> None:
    topic = f"nested-{abs(hash((str(stored), str(given), len(key))))}"
    client.create_topic(topic, schema=pa.schema([("id", pa.int64()), ("v", stored)]), key=key, partitions=4)
    value = {"tags": ["a", "b"]} if pa.types.is_struct(stored) else ["a", "b"]
    sent = [value if number % 3 else None for number in range(20)]
    with client.producer(topic) as producer:
        producer.send(pa.record_batch({"id": pa.array(range(20)), "v": pa.array(sent, given)}))
    found = pa.Table.from_batches(list(client.read(topic)))
    assert found.schema.field("v").type.equals(stored, check_metadata=True)
    assert found.sort_by("id")["v"].to_pylist() == sent


@pytest.mark.parametrize("stored", [pa.string(), pa.large_string(), pa.binary(), pa.string_view()], ids=str)
@pytest.mark.parametrize("given", [pa.string(), pa.large_string(), pa.string_view()], ids=str)
def test_text_beside_a_list_comes_in_any_form(
    client: ringfence.Client, stored: pa.DataType, given: pa.DataType
) -> None:
    topic = f"beside-{abs(hash((str(stored), str(given))))}"
    fields = [("id", pa.int64()), ("text", stored), ("tags", pa.list_(pa.string()))]
    client.create_topic(topic, schema=pa.schema(fields), key=["text"], partitions=3)
    texts = [f"a text of some length, number {number}" for number in range(20)]
    tags = pa.array([["x"]] * 20, pa.large_list(pa.string_view()))
    with client.producer(topic) as producer:
        producer.send(pa.record_batch({"id": range(20), "text": pa.array(texts, given), "tags": tags}))
    found = pa.Table.from_batches(list(client.read(topic)))
    assert found.schema.field("text").type == stored
    assert sorted(found["text"].cast(pa.string()).to_pylist()) == sorted(texts)


def test_pandas_columns_are_matched_like_all_others(client: ringfence.Client) -> None:
    pandas = pytest.importorskip("pandas")
    client.create_topic("pandas", schema=SCHEMA, key=["id"], partitions=2)
    with client.producer("pandas") as producer:
        producer.send(pandas.DataFrame({"id": [1, 2]}))
        with pytest.raises(ringfence.SchemaError, match='column "more" of the DataFrame is not in the topic'):
            producer.send(pandas.DataFrame({"id": [3], "text": ["x"], "more": [1]}))
        with pytest.raises(ringfence.BatchError, match="had 1 null values"):
            producer.send(pandas.DataFrame({"id": [4.0, None]}))
        with pytest.raises(ringfence.SchemaError, match="no column 'id'"):
            producer.send(pandas.DataFrame({"text": ["x"]}))
    assert sorted(ids_of(client, "pandas")) == [1, 2]


def test_an_unknown_outcome_is_settled_by_the_named_producer_and_says_so(tmp_path: Path) -> None:
    with NodeProcess(tmp_path / "data") as node, ringfence.connect(node.address, timeout_s=30) as client:
        client.create_topic("asked", schema=SCHEMA, key=["id"], partitions=3)
        first = client.producer("asked", name="loader", timeout_s=2)
        first.send(rows(0, 5), number=1).result(30)
        node.freeze()  # the rows wait in the socket and are stored afterwards
        try:
            with pytest.raises(ringfence.UnknownOutcomeError, match="same number") as caught:
                first.send(rows(100, 50), number=2).result(30)
        finally:
            node.wake()
        assert "may be sent again" not in str(caught.value)
        with client.producer("asked", name="loader") as second:
            second.send(rows(100, 50), number=2)
        with pytest.raises(ringfence.UnknownOutcomeError):
            first.close()
        assert sorted(ids_of(client, "asked")) == [*range(5), *range(100, 150)]


def test_a_missing_key_column_is_named_with_those_that_are_there(client: ringfence.Client) -> None:
    client.create_topic("keyless-rows", schema=SCHEMA, key=["id"], partitions=2)
    producer = client.producer("keyless-rows")
    with pytest.raises(ringfence.SchemaError, match=r"no column 'id'; it has \['text'\]"):
        producer.send(pa.record_batch({"text": ["x"]}))


def test_a_start_that_the_log_has_not_reached_is_refused(client: ringfence.Client) -> None:
    client.create_topic("reached", schema=pa.schema([pa.field("id", pa.int64())]))
    with client.producer("reached") as producer:
        producer.send(pa.record_batch({"id": [1, 2, 3]}))
    assert list(client.read("reached", start=3)) == []
    (partition,) = client.end_offsets("reached")
    starts: list[Any] = [4, {partition: 4}, [(partition, 4, 0)]]
    for start in starts:
        with pytest.raises(ringfence.InvalidArgumentError, match="the log ends at 3") as refused:
            client.read("reached", start=start)
        assert refused.value.details["offset"] == 4


def test_truncated_rows_are_named(client: ringfence.Client) -> None:
    client.create_topic("short", schema=SCHEMA, partitions=1)
    with client.producer("short") as producer:
        for start in range(0, 100, 10):
            producer.send(rows(start, 10))
    (partition,) = client.topic("short").partitions
    client.truncate("short", before_offset=50)
    until(lambda: client.end_offsets("short")[partition.partition].start == 50)
    with pytest.raises(ringfence.TruncatedError) as caught:
        list(client.read("short", start=20))
    assert caught.value.details["rows_lost"] == 30
    assert ids_of(client, "short") == list(range(50, 100))


def test_following_and_times(client: ringfence.Client) -> None:
    client.create_topic("follow", schema=SCHEMA, partitions=1)
    with client.producer("follow") as producer:
        producer.send(rows(0, 10)).result(30)
        time.sleep(0.05)
        later = dt.datetime.now(dt.UTC)
        time.sleep(0.05)
        got: list[int] = []

        def take() -> None:
            for batch in client.read("follow", follow=True):
                got.extend(batch.column("id").to_pylist())
                if len(got) >= 20:
                    return

        thread = threading.Thread(target=take)
        thread.start()
        until(lambda: len(got) == 10)
        began = time.monotonic()
        producer.send(rows(10, 10)).result(30)
        thread.join(20)
        assert got == list(range(20))
        assert time.monotonic() - began < 3, "a long poll ends when rows come"
    found = [one for batch in client.read("follow", start=later) for one in batch.column("id").to_pylist()]
    assert found == list(range(10, 20))


def test_topics_from_creation_to_deletion(client: ringfence.Client) -> None:
    made = client.create_topic("life", schema=SCHEMA, key=["id"], partitions=3, properties={"team": "a"})
    assert (made.created, made.key, len(made.partitions), made.properties) == (True, ["id"], 3, {"team": "a"})
    assert not client.create_topic("life", schema=SCHEMA, key=["id"], partitions=3, exist_ok=True).created
    with pytest.raises(ringfence.AlreadyExistsError):
        client.create_topic("life", schema=SCHEMA, key=["id"], partitions=3)
    assert "public/default/life" in [topic.name for topic in client.topics("public/")]
    client.delete_topic("life")
    with pytest.raises(ringfence.NotFoundError):
        client.topic("life")
    with pytest.raises(ringfence.NotFoundError):
        client.delete_topic("life")
    client.delete_topic("life", missing_ok=True)
    assert client.status().state == "serving"


@pytest.mark.parametrize("name", [None, "loader"])
@pytest.mark.parametrize("anew", [False, True])
def test_a_producer_of_a_topic_that_was_deleted_says_so(
    client: ringfence.Client, name: str | None, *, anew: bool
) -> None:
    topic = f"gone-{anew}-{name}"
    old = client.create_topic(topic, schema=SCHEMA, key=["id"], partitions=4)
    producer = client.producer(topic, name=name)
    producer.send(rows(0, 10)).result(30)
    client.delete_topic(topic)
    if anew:
        client.create_topic(topic, schema=SCHEMA, key=["id"], partitions=4)
    for start in (10, 20):
        with pytest.raises(ringfence.NotFoundError) as caught:
            producer.send(rows(start, 10)).result(30)
        assert f"deleted and created again: the topic with id {old.topic} no longer exists" in str(
            caught.value
        )
        assert "Open a new producer" in str(caught.value)
        assert caught.value.topic == f"public/default/{topic}"
    with pytest.raises(ringfence.NotFoundError, match="Open a new producer"):
        producer.close()
    if anew:
        with client.producer(topic, name=name) as newer:
            newer.send(rows(0, 3)).result(30)
        assert sorted(ids_of(client, topic)) == [0, 1, 2]


def test_a_unix_socket_does_the_same(tmp_path: Path) -> None:
    path = f"ipc://{tmp_path}/node"
    node = NodeProcess(tmp_path / "data", options=("--listen", path))
    with node, ringfence.connect(path, timeout_s=30) as client:
        client.create_topic("t", schema=SCHEMA, key=["id"], partitions=4)
        with client.producer("t") as producer:
            producer.send(rows(0, 1000)).result(30)
        assert sorted(ids_of(client)) == list(range(1000))


@pytest.mark.parametrize(
    "kind",
    [
        *(pa.uint8(), pa.uint64(), pa.float16(), pa.decimal256(50, 2), pa.timestamp("ns"), pa.time64("us")),
        *(pa.duration("us"), pa.date64(), pa.map_(pa.string(), pa.int32()), pa.list_(pa.uint16())),
        *(pa.struct([]), pa.struct([("a", pa.timestamp("s"))]), pa.month_day_nano_interval()),
    ],
    ids=str,
)
def test_a_key_without_a_slot_is_refused_and_makes_nothing(
    client: ringfence.Client, kind: pa.DataType
) -> None:
    name = "no-slot"
    with pytest.raises(ringfence.RefusedError, match=r"slot|stored") as caught:
        client.create_topic(name, schema=pa.schema([("c", kind)]), key=["c"])
    assert not isinstance(caught.value, ringfence.AlreadyExistsError)
    assert name not in [topic.name for topic in client.topics()]
    assert client.status().state == "serving"


@pytest.mark.parametrize(
    "kind",
    [
        *(pa.int8(), pa.float64(), pa.decimal128(38, 2), pa.timestamp("us", "UTC"), pa.bool_(), pa.date32()),
        *(pa.large_string(), pa.binary(16), pa.dictionary(pa.int32(), pa.string())),
        *(pa.list_(pa.int32()), pa.struct([("a", pa.string())])),
    ],
    ids=str,
)
def test_a_key_that_spark_hashes_takes_rows(client: ringfence.Client, kind: pa.DataType) -> None:
    name = "slot-" + "".join(letter if letter.isalnum() else "-" for letter in str(kind))
    schema = pa.schema([("c", kind)])
    client.create_topic(name, schema=schema, key=["c"], partitions=2)
    with client.producer(name) as producer:
        producer.send(pa.RecordBatch.from_pylist([{"c": None}], schema=schema)).result(30)
    assert client.count(name) == 1


def test_a_start_in_a_partition_that_the_topic_does_not_have_is_refused(client: ringfence.Client) -> None:
    client.create_topic("starts", schema=SCHEMA, partitions=1)
    starts: tuple[Any, ...] = ({1: 1}, [(987_654_321, 0, 0)])
    for wrong in starts:
        with pytest.raises(ringfence.NotFoundError, match="no such partition"):
            client.read("starts", start=wrong)
    texts: Any = {"1": 1}
    with pytest.raises(ringfence.InvalidArgumentError, match=r"convert the text: int\('1'\)"):
        client.read("starts", start=texts)


def test_no_name_that_is_no_text_ends_the_link(client: ringfence.Client) -> None:
    for call in (
        lambda: client.producer("starts", name="\udcff"),
        lambda: client.topic("\udcff"),
        lambda: client.create_topic("\udcff", schema=SCHEMA),
    ):
        with pytest.raises(ringfence.InvalidArgumentError):
            call()
    assert client.status().state == "serving"
