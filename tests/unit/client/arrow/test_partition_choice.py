"""A topic without key: partitions that would keep a batch waiting are left out, and come back."""

from __future__ import annotations

import threading
from collections import Counter

import pytest

import ringfence
from ringfence.common.failure_detector import SILENT_S, DetectorStep, FailureDetector
from ringfence.common.routing import WeightedRoundRobin, layout_of
from ringfence.common.send_effects import Identity
from ringfence.native import wire
from ringfence.native.wire import Code, Opcode
from ringfence.send.inflight import Inflight
from ringfence.send.partition_queue import UNANSWERED_S
from tests.fakes.client_topic import node_with_topic, rows, until
from tests.fakes.routing_tables import table
from tests.fakes.socket_node import Drop, Fault, Refuse


def chosen(chooser: WeightedRoundRobin, unavailable: frozenset[int], turns: int = 60) -> Counter[int]:
    return Counter(chooser.choose(unavailable) for _ in range(turns))


def test_what_is_away_is_never_chosen_and_the_others_keep_their_shares() -> None:
    even = WeightedRoundRobin(layout_of(table([1000, 2000, 3000])))
    assert chosen(even, frozenset()) == {100: 15, 101: 15, 102: 15, 103: 15}
    assert chosen(even, frozenset({101, 103})) == {100: 30, 102: 30}
    assert chosen(even, frozenset()) == {100: 15, 101: 15, 102: 15, 103: 15}
    loaded = WeightedRoundRobin(layout_of(table([1000, 2000, 3000], loads=[900, 100, 100, 100])))
    found = chosen(loaded, frozenset({101}))
    assert set(found) == {100, 102, 103}
    assert min(found[102], found[103]) > 3 * found[100] > 0
    assert abs(found[102] - found[103]) <= 1


def test_if_all_are_away_each_is_as_good_as_the_others() -> None:
    chooser = WeightedRoundRobin(layout_of(table([1000])))
    assert chosen(chooser, frozenset({100, 101})) == {100: 30, 101: 30}


def test_a_silent_node_is_asked_on_though_nobody_waits_for_it_and_is_silent_until_it_answers() -> None:
    watched = FailureDetector()
    for look in range(int(SILENT_S / 0.25) + 1):
        watched.look(100.0 + look * 0.25, waits=True, heard=False)
    found = [watched.silent]
    end = 100.0 + SILENT_S
    later = [watched.look(end + look * 0.25, waits=False, heard=False) for look in range(1, 25)]
    assert later.count(DetectorStep.PROBE) == 2
    assert set(later) == {DetectorStep.PROBE, DetectorStep.NOTHING}
    found.append(watched.silent)
    watched.look(end + 6.25, waits=False, heard=True)
    assert [*found, watched.silent] == [True, True, False]
    quiet = [watched.look(end + 6.25 + look * 0.25, waits=False, heard=False) for look in range(1, 25)]
    assert set(quiet) == {DetectorStep.NOTHING}


def test_a_partition_is_held_while_its_owner_does_not_take_what_it_was_sent() -> None:
    machine = Inflight(Identity(1, 1))
    assert list(machine.held(0.0)) == []
    machine.submit(0, 7, 100.0)
    order = machine.transmit(7, 0.0)
    assert order is not None
    assert list(machine.held(0.0)) == []
    assert list(machine.held(UNANSWERED_S - 0.1)) == []
    assert list(machine.held(UNANSWERED_S)) == [7], "the owner answers others, but not this"
    machine.refused(0, order.attempt, ringfence.RetriableError("full"), UNANSWERED_S)
    order = machine.transmit(7, 50.0)
    assert order is not None
    assert list(machine.held(50.0)) == [7], "it was refused, and is asked again"
    machine.done(0, order.attempt, 0)
    assert list(machine.held(50.0)) == []


def test_sends_go_round_a_partition_whose_owner_refuses_until_it_takes_what_waits_there() -> None:
    full = threading.Event()
    full.set()

    def hook(header: wire.RequestHeader) -> Fault:
        refused = header.opcode == Opcode.PUBLISH and header.partition == first and full.is_set()
        return Refuse(Code.DISK_FULL, 50) if refused else None

    with node_with_topic(key=(), partitions=3) as (node, client), client.producer("t") as producer:
        first = min(node.topic_of("t").logs)
        node.hook = hook
        begun = [producer.send(rows(number)) for number in range(3)]
        until(lambda: first in producer._choice.unavailable)  # type: ignore[union-attr]
        sent = Counter(producer.send(rows(number)).result(10)[0].partition for number in range(3, 33))
        assert len(sent) == 2
        assert first not in sent
        full.clear()
        # The refusal may come before the others are sent: these need not be at both other partitions.
        assert {first} <= {future.result(10)[0].partition for future in begun} <= {first, *sent}
        until(lambda: producer.send(rows(99)).result(10)[0].partition == first)
        assert max(Counter((h.producer_id, h.partition, h.sequence) for h in node.stored("t")).values()) == 1


def test_a_node_that_answers_nothing_any_more_takes_no_share_of_what_is_sent() -> None:
    with node_with_topic(key=(), partitions=2) as (node, client):
        producer = client.producer("t")
        first = min(node.topic_of("t").logs)
        node.hook = lambda header: (
            Drop(served=True) if (header.opcode, header.partition) == (Opcode.PUBLISH, first) else None
        )
        futures = [producer.send(rows(number)) for number in range(2)]
        until(lambda: first in producer._choice.unavailable, UNANSWERED_S + 10)  # type: ignore[union-attr]
        assert all(producer.send(rows(number)).result(10)[0].partition != first for number in range(2, 12))
        assert [future.done() for future in futures].count(True) == 1, "what may be stored stays there"
        with pytest.raises(ringfence.UnknownOutcomeError):
            producer.close(timeout_s=0.1)
