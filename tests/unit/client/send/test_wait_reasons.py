"""Whoever waits in vain is told for which partition, which node, and why."""

from __future__ import annotations

import copy
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import ringfence
from ringfence.native import wire
from ringfence.native.wire import Code, Opcode
from tests.fakes.client_topic import impatient, node_with_topic, rows, until
from tests.fakes.socket_node import Drop, FakeNode, Fault, Refuse


def planted(fault: Fault, header: wire.RequestHeader) -> Fault:
    return fault if header.opcode == Opcode.PUBLISH else None


@contextmanager
def one_owner_down() -> Iterator[tuple[FakeNode, ringfence.Client, int, str]]:
    """Two partitions; the second one's owner, node 2, does not run."""
    with socket.socket() as taken, node_with_topic(partitions=2) as (node, client):
        taken.bind(("127.0.0.1", 0))  # bound, and nobody listens
        address = f"tcp://127.0.0.1:{taken.getsockname()[1]}"
        down = max(node.topic_of("t").logs)
        node.owners, node.addresses = {down: 2}, {2: [address]}
        yield node, client, down, address


def test_a_wait_names_the_partition_the_node_and_that_it_is_not_connected() -> None:
    with one_owner_down() as (_, client, down, address):
        producer = client.producer("t", timeout_s=60)
        future = producer.send(rows(0, 20))
        until(lambda: len(future.appended) == 1)
        for waiting in (
            lambda: future.result(0.5),
            lambda: future.exception(0.5),
            lambda: producer.flush(0.5),
        ):
            with pytest.raises(ringfence.WaitTimeoutError) as late:
                waiting()
            error = late.value
            assert (error.topic, error.partitions) == ("public/default/t", (down,))
            assert (error.node, error.address, error.reason) == (2, address, "not connected")
            said = f'no outcome yet in topic "public/default/t" (partition {down}: node 2 ({address}) is not'
            assert said in error.message
            assert f"{address} refuses connections" in error.message
            assert error.message.endswith("it continues in the background")
            same = copy.deepcopy(error)
            assert (same.values(), str(same)) == (error.values(), str(error))
        with pytest.raises(ringfence.ClosedError):
            producer.close(timeout_s=0)


def test_a_send_whose_time_is_over_names_the_node_that_did_not_take_it() -> None:
    with one_owner_down() as (_, client, down, address):
        with pytest.raises(ringfence.DeadlineError) as late, client.producer("t", timeout_s=0.5) as producer:
            producer.send(rows(0, 20))
        error = late.value
        assert (error.partition, error.node, error.address) == (down, 2, address)
        assert f"node 2 ({address}) is not connected: {address} refuses connections" in error.message


@pytest.mark.parametrize(
    ("fault", "reason", "words"),
    [
        (Refuse(Code.DISK_FULL, 100), "refused", "is retried: the node answered: a planted refusal"),
        (Drop(served=True), "unanswered", "received it and has not answered yet"),
    ],
)
@pytest.mark.parametrize("linger_ms", [0.0, 1.0])
def test_a_node_that_is_there_is_named_with_what_it_does(
    fault: Fault, reason: str, words: str, linger_ms: float
) -> None:
    with node_with_topic(partitions=1) as (node, client):
        node.hook = lambda header: planted(fault, header)
        producer = client.producer("t", linger_ms=linger_ms)
        future = producer.send(rows(0))
        until(lambda: bool(node.sent(Opcode.PUBLISH)))
        with pytest.raises(ringfence.WaitTimeoutError, match=words) as late:
            future.result(0.3)
        [partition] = node.topic_of("t").logs
        assert (late.value.partitions, late.value.node, late.value.reason) == ((partition,), 1, reason)
        assert late.value.address == node.address
        node.hook = None
        if reason == "refused":
            assert future.result(10)
        else:
            with pytest.raises(ringfence.UnknownOutcomeError):
                producer.close(timeout_s=0)


def test_an_unknown_outcome_names_the_node_that_was_waited_for() -> None:
    with node_with_topic(partitions=1) as (node, client):
        node.hook = lambda header: planted(Drop(served=True), header)
        producer = client.producer("t", timeout_s=0.5)
        impatient(producer)
        with pytest.raises(ringfence.UnknownOutcomeError) as late:
            producer.send(rows(0)).result(10)
        assert re.search(rf"timeout_s passed \(node 1 \({node.address}\) ", late.value.message)
        assert late.value.node == 1
        with pytest.raises(ringfence.UnknownOutcomeError):
            producer.close()


def test_whoever_does_not_wait_hears_at_once() -> None:
    with node_with_topic(partitions=1) as (node, client):
        node.hook = lambda header: planted(Drop(served=False), header)
        producer = client.producer("t")
        with pytest.raises(ringfence.WaitTimeoutError) as late:
            producer.send(rows(0)).result(0)
        assert (late.value.partitions, late.value.reason) == ((), None)
        with pytest.raises(ringfence.RingfenceError):
            producer.close(timeout_s=0)


def test_a_send_that_finds_no_room_names_who_keeps_it() -> None:
    with one_owner_down() as (_, client, down, address):
        producer = client.producer("t", timeout_s=60, bytes_in_flight_max=20_000)
        future = producer.send(rows(0, 5000))
        until(lambda: len(future.appended) == 1)
        producer._options = producer._options._replace(timeout_s=0.3)
        with pytest.raises(ringfence.OverloadedError) as full:
            producer.send(rows(5000, 5000))
        error = full.value
        assert (error.topic, error.partitions) == ("public/default/t", (down,))
        assert (error.node, error.address, error.reason) == (2, address, "not connected")
        assert f"(partition {down}: node 2 ({address}) is not connected: {address} refuses" in error.message
        assert "bytes_in_flight_max" in error.message
        same = copy.deepcopy(error)
        assert (same.values(), str(same)) == (error.values(), str(error))
        with pytest.raises(ringfence.OverloadedError) as at_once:
            producer.try_send(rows(5000, 5000))
        assert at_once.value.topic == "public/default/t"
        with pytest.raises(ringfence.ClosedError):
            producer.close(timeout_s=0)


def test_of_several_nodes_the_one_that_is_worst_off_is_named_first() -> None:
    with one_owner_down() as (node, client, down, address):
        node.hook = lambda header: planted(Drop(served=True), header)
        producer = client.producer("t", timeout_s=60)
        producer.send(rows(0, 20))
        until(lambda: bool(node.sent(Opcode.PUBLISH)))
        with pytest.raises(ringfence.WaitTimeoutError) as late:
            producer.flush(0.5)
        up = min(node.topic_of("t").logs)
        assert up < down
        assert late.value.partitions == (down, up)
        assert (late.value.node, late.value.address, late.value.reason) == (2, address, "not connected")
        with pytest.raises(ringfence.RingfenceError):
            producer.close(timeout_s=0)
