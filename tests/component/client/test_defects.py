"""What goes wrong for one caller reaches that caller, soon, and nobody else: the link's thread serves all."""

from __future__ import annotations

import gc
import math
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pyarrow as pa
import pytest
import zmq

import ringfence
from ringfence.arrow.decode import Decoder
from ringfence.arrow.encode import Body, TopicEncoder
from ringfence.native import wire
from ringfence.native.errors import ProtocolError, RetriableError
from ringfence.native.wire import Code, Opcode
from tests.fakes.client_topic import SCHEMA, Caught, node_with_topic, rows, until, within
from tests.fakes.socket_node import Fault, Refuse

INVALID = ringfence.InvalidArgumentError


@pytest.mark.parametrize("linger_ms", [0.0, 1.0])
@pytest.mark.parametrize("note", ["text", 5, b"x" * 4097])
def test_a_note_that_is_none_is_refused_to_its_sender_alone(note: Any, linger_ms: float) -> None:
    with node_with_topic() as (_, client):
        producer = client.producer("t", linger_ms=linger_ms)
        with pytest.raises(INVALID, match=r"a note must be bytes|a note is above"):
            within(5, lambda: producer.send(rows(0), note).result(3))
        anything: Any = memoryview(b"abc")
        producer.send(rows(1), anything).result(5)
        within(5, client.close)


@pytest.mark.parametrize("number", [2**63, 2**64, 2**70, 1.5, "7"])
def test_a_number_beyond_its_range_is_refused_to_its_sender_alone(number: Any) -> None:
    with node_with_topic() as (_, client):
        producer = client.producer("t")
        with pytest.raises(INVALID, match="number"):
            within(5, lambda: producer.send(rows(0), number=number).result(3))
        producer.send(rows(1), number=2**63 - 1).result(5)
        within(5, client.close)


@pytest.mark.parametrize("start", [-1, 2**63, 2**70, {-7: -1}, [(1, 2, 2**70)], [(1,)], {1: 1.5}])
def test_a_start_beyond_its_range_is_refused_to_its_reader_alone(start: Any) -> None:
    with node_with_topic(partitions=1) as (_, client):
        with pytest.raises(INVALID, match=r"0 \.\. |a position must be|a whole number"):
            within(5, lambda: list(client.read("t", start=start)))
        assert within(5, lambda: client.count("t")) == 0


@pytest.mark.parametrize("timeout_s", [math.nan, 0.0, -1.0])
def test_a_time_that_is_none_is_refused(timeout_s: float) -> None:
    with node_with_topic(partitions=1) as (_, client):
        with pytest.raises(INVALID, match="timeout_s"):
            within(5, lambda: list(client.read("t", timeout_s=timeout_s)))
        assert within(5, lambda: client.count("t")) == 0


def test_numbers_beyond_64_bits_are_refused() -> None:
    with node_with_topic() as (_, client), pytest.raises(INVALID, match="64 bits"):
        client.create_topic("other", schema=SCHEMA, partitions=2**70)


def test_rows_that_cannot_linger_together_harm_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error of any kind where company is made one batch: the sends at fault hear of it, others go on."""
    real = TopicEncoder.bodies

    def bodies(self: TopicEncoder, batch: pa.RecordBatch, *rest: Any, **more: Any) -> list[Body]:
        if 13 in batch.column("id").to_pylist():
            raise MemoryError("planted")
        return real(self, batch, *rest, **more)

    monkeypatch.setattr(TopicEncoder, "bodies", bodies)
    with node_with_topic() as (_, client):
        producer = client.producer("t", linger_ms=20)
        sent = [producer.send(rows(number)) for number in range(20)]
        with pytest.raises(ringfence.BatchError, match="planted"):
            within(5, lambda: sent[13].result(5))
        assert [future.result(5)[0].rows for number, future in enumerate(sent) if number != 13] == [1] * 19
        with pytest.raises(ringfence.BatchError, match="planted"):
            within(5, client.close)


@pytest.mark.parametrize("key", [(), ("id",)])
def test_a_lingering_body_in_two_halves_tells_each_send_of_its_own_rows(
    key: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = TopicEncoder.bodies

    def bodies(self: TopicEncoder, *arguments: Any, **more: Any) -> list[Body]:
        return real(self, *arguments, **{**more, "bytes_max": 4000})

    monkeypatch.setattr(TopicEncoder, "bodies", bodies)
    with node_with_topic(partitions=2, key=key) as (_, client):
        with client.producer("t", linger_ms=50) as producer:
            sent = [producer.send(rows(100 * number, 30 + number, "long" * 10)) for number in range(6)]
        for number, future in enumerate(sent):
            parts = future.result(5)
            assert sum(part.rows for part in parts) == 30 + number
        stored = {
            partition: [
                one for batch in client.read("t", partition=partition) for one in batch["id"].to_pylist()
            ]
            for partition in client.end_offsets("t")
        }
        for number, future in enumerate(sent):
            told = sorted(
                one
                for part in future.result(5)
                for one in stored[part.partition][part.first_offset : part.first_offset + part.rows]
            )
            assert told == list(range(100 * number, 100 * number + 30 + number))


def test_a_close_in_the_middle_of_a_large_send_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The part that went out has an outcome, the rest was refused, and `close` does not wait for ever."""
    between, go_on = threading.Event(), threading.Event()
    real, encoded = TopicEncoder.bodies, 0

    def chunks(batch: pa.RecordBatch, *, split: bool) -> list[tuple[pa.RecordBatch, int]]:
        assert split
        return [(batch.slice(start, 10), 1000) for start in range(0, batch.num_rows, 10)]

    def bodies(self: TopicEncoder, batch: pa.RecordBatch, *rest: Any, **more: Any) -> list[Body]:
        nonlocal encoded
        encoded += 1
        if encoded == 4:  # first both to be refused, then each to be sent
            between.set()
            assert go_on.wait(5)
        return real(self, batch, *rest, **more)

    monkeypatch.setattr("ringfence.producer.in_chunks", chunks)
    monkeypatch.setattr(TopicEncoder, "bodies", bodies)
    with node_with_topic(partitions=1) as (_, client):
        producer = client.producer("t", bytes_in_flight_max=4000)
        sent: list[ringfence.SendFuture] = []
        sender = threading.Thread(target=lambda: sent.append(producer.send(rows(0, 20))), daemon=True)
        sender.start()
        assert between.wait(5)
        closing = Caught(producer.close)
        until(lambda: producer._closed)
        go_on.set()
        assert isinstance(closing.error(5), ringfence.ClosedError)
        sender.join(5)
        with pytest.raises(ringfence.ClosedError):
            sent[0].result(1)
        assert [part.rows for part in sent[0].appended] == [10]
        assert sent[0].exception(0).rows_handed_over == 10  # type: ignore[union-attr]


def test_a_partition_whose_fetch_was_refused_is_fetched_again() -> None:
    refusing = True

    def hook(header: wire.RequestHeader) -> Fault:
        refused = refusing and header.opcode == Opcode.FETCH and header.partition == first
        return Refuse(Code.STOPPING) if refused else None

    with node_with_topic(partitions=2) as (node, client):
        first = min(node.topic_of("t").logs)
        with client.producer("t") as producer:
            producer.send(rows(0, 100))
        node.hook = hook
        reader = client.read("t", timeout_s=0.3)
        seen: list[int] = []

        def take() -> None:
            for batch in reader:
                seen.extend(batch.column("id").to_pylist())

        with pytest.raises(RetriableError):
            take()
        refusing = False
        take()
        assert sorted(seen) == list(range(100))


def test_a_batch_that_could_not_be_decoded_is_neither_skipped_nor_read_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real, failing = Decoder.batch, iter([False, True, False, True, True])

    def batch(self: Decoder, record: wire.RecordHeader, message: memoryview, offset: int) -> pa.RecordBatch:
        if next(failing, False):
            raise ProtocolError("planted")
        return real(self, record, message, offset)

    monkeypatch.setattr(Decoder, "batch", batch)
    with node_with_topic(partitions=2) as (_, client):
        with client.producer("t") as producer:
            for number in range(10):
                producer.send(rows(number * 10, 10)).result(5)
        reader, seen, errors = client.read("t"), list[int](), 0
        while True:
            try:
                found = within(5, lambda: next(reader, None))
            except ProtocolError:
                errors += 1
                continue
            if found is None:
                break
            seen += found.column("id").to_pylist()
        assert errors == 3
        assert sorted(seen) == list(range(100))


def test_a_request_that_waits_for_its_next_try_ends_with_the_client() -> None:
    def hook(header: wire.RequestHeader) -> Fault:
        return Refuse(Code.OVERLOADED, 5000) if header.opcode == Opcode.TOPIC_LIST else None

    with node_with_topic(hook=hook) as (node, client):
        asking = Caught(client.topics)
        until(lambda: bool(node.sent(Opcode.TOPIC_LIST)))
        until(lambda: bool(client._io_thread._timers))
        client.close()
        assert isinstance(asking.error(5), ringfence.ClosedError)


def test_a_callback_that_would_wait_for_its_own_thread_is_told() -> None:
    added = threading.Event()

    def hook(header: wire.RequestHeader) -> Fault:
        # A callback that comes after the answer runs on its caller's thread, which may wait.
        assert header.opcode != Opcode.PUBLISH or added.wait(5)
        return None

    with node_with_topic(hook=hook) as (_, client):
        producer = client.producer("t", bytes_in_flight_max=2000)
        told: list[BaseException] = []
        ended = threading.Event()

        def callback(_: Future[Any]) -> None:
            for wait in (
                client.topics,
                producer.flush,
                producer.close,
                client.close,
                lambda: client.count("t"),
            ):
                try:
                    wait()
                except ringfence.RingfenceError as error:
                    told.append(error)
            try:
                for number in range(100):
                    producer.send(rows(number, 10))
            except ringfence.RingfenceError as error:
                told.append(error)
            ended.set()

        producer.send(rows(0)).add_done_callback(callback)
        added.set()
        assert ended.wait(5), "it waits for itself"
        assert [type(error) for error in told] == [INVALID] * 5 + [ringfence.OverloadedError]
        within(5, client.close)
        assert len(told) == 6


def test_calls_at_the_very_end_run_or_are_refused() -> None:
    """What is handed to the link while it ends is never forgotten."""
    for _ in range(30):
        with node_with_topic() as (_, client):
            io_thread = client._io_thread
            ran: list[int] = []
            accepted: list[int] = []

            def call(
                io_thread: Any = io_thread, ran: list[int] = ran, accepted: list[int] = accepted
            ) -> None:
                for number in range(20_000):
                    try:
                        io_thread.call(lambda number=number: ran.append(number))
                    except ringfence.ClosedError:
                        return
                    accepted.append(number)

            caller = threading.Thread(target=call, daemon=True)
            caller.start()
            client.close()
            caller.join(10)
            assert set(accepted) <= set(ran)


def test_a_result_that_a_callback_waits_for_is_refused_not_waited_for() -> None:
    with node_with_topic(partitions=1) as (_, client), client.producer("t", linger_ms=1_000) as producer:
        caught: Future[BaseException | None] = Future()

        def waits(_: Future[Any]) -> None:
            try:
                producer.send(rows(1, 1)).result(30)
            except BaseException as error:  # noqa: BLE001 - it is looked at below
                caught.set_result(error)
            else:
                caught.set_result(None)

        # It lingers: an outcome before the callback is there would be told on this very thread.
        producer.send(rows(0, 1)).add_done_callback(waits)
        error = caught.result(30)
        assert isinstance(error, INVALID)
        assert "would block the client's I/O thread" in str(error)
        producer.flush(30)


def failing(times: int, real: Callable[..., Any], error: Exception) -> Callable[..., Any]:
    """`real`, which fails the first times."""
    left = [error] * times

    def call(*arguments: Any, **more: Any) -> Any:
        if left:
            raise left.pop()
        return real(*arguments, **more)

    return call


@pytest.mark.parametrize("error", [OSError(24, "Too many open files"), zmq.ZMQError(24)])
def test_a_system_without_descriptors_is_tried_again(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    with node_with_topic(partitions=1) as (node, _), ringfence.connect(node.address, timeout_s=10) as client:
        made = zmq.Context.socket
        monkeypatch.setattr(zmq.Context, "socket", failing(3, made, error))
        assert within(10, lambda: client.count("t")) == 0


def test_a_poll_that_fails_for_a_while_ends_nothing() -> None:
    with node_with_topic(partitions=1) as (_, client):
        client.topics()
        io_thread = client._io_thread
        io_thread._poller.poll = failing(3, io_thread._poller.poll, zmq.ZMQError(12))  # type: ignore[method-assign]
        assert within(10, lambda: client.count("t")) == 0


def test_a_defect_in_one_request_ends_that_request_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it is sent, and where its answer is taken."""
    with node_with_topic(partitions=1) as (_, client), client.producer("t") as producer:
        producer.send(rows(0)).result(10)
        for place in (
            "ringfence.network.request.deadline_ms",
            "ringfence.network.request.PendingRequest.answered",
        ):
            with monkeypatch.context() as planted:
                planted.setattr(place, failing(1, lambda *_, **__: 1, ZeroDivisionError("planted")))
                with pytest.raises(ZeroDivisionError):
                    within(5, client.topics)
            assert within(5, client.topics)
        producer.send(rows(1)).result(10)


@pytest.mark.parametrize("step", ["submit", "transmit", "done", "expire"])
def test_a_defect_in_one_producer_ends_that_producer_alone(
    step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with node_with_topic(partitions=1) as (_, client), client.producer("t") as other:
        other.send(rows(0)).result(10)
        producer = client.producer("t")
        machine = producer._sender._inflight
        monkeypatch.setattr(machine, step, failing(1, getattr(machine, step), ZeroDivisionError("planted")))
        with pytest.raises(ringfence.RingfenceError) as caught:
            within(5, lambda: producer.send(rows(1)).result(5))
        assert "defect" in str(caught.value)
        with pytest.raises(ringfence.ClosedError):
            within(5, lambda: producer.send(rows(2)).result(5))
        other.send(rows(3)).result(10)
        with pytest.raises(ringfence.RingfenceError):
            within(5, producer.close)


def test_a_timer_that_fails_ends_nothing() -> None:
    with node_with_topic(partitions=1) as (_, client):
        client.topics()
        io_thread = client._io_thread
        io_thread.call(lambda: io_thread.at(io_thread.now, failing(1, print, ZeroDivisionError("planted"))))
        io_thread.call(failing(1, print, ZeroDivisionError("planted")))
        assert within(5, lambda: client.count("t")) == 0


def test_a_client_that_nothing_refers_to_ends() -> None:
    with node_with_topic(partitions=1) as (node, _):
        before = threading.active_count()
        for _ in range(5):
            ringfence.connect(node.address).topics()
        gc.collect()
        until(lambda: threading.active_count() <= before)


def test_what_a_dropped_client_gave_goes_on() -> None:
    with node_with_topic(partitions=1) as (node, _):
        with ringfence.connect(node.address).producer("t") as producer:
            gc.collect()
            producer.send(rows(0, 3)).result(10)
        reader = ringfence.connect(node.address).read("t")
        scopes = ringfence.connect(node.address).scopes
        gc.collect()
        assert sum(batch.num_rows for batch in reader) == 3
        assert not scopes._io_thread._closing
