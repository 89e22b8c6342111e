"""Batches at a former owner that does not answer go to the new one."""

from __future__ import annotations

import ringfence
from ringfence.common.failure_detector import FORMER_S
from ringfence.common.send_effects import BatchStored, Identity, Transmit
from ringfence.send.inflight import Inflight
from tests.fakes.routes import even_routes


def sent(machine: Inflight, now: float = 0.0) -> Transmit:
    order = machine.transmit(0, now)
    assert order is not None
    return order


def machine_with(batches: int) -> Inflight:
    machine = Inflight(Identity(1, 1))
    for key in range(batches):
        machine.submit(key, 0, 100.0)
    return machine


def test_what_a_former_owner_leaves_unanswered_goes_to_the_new_one_with_its_sequence() -> None:
    machine = machine_with(2)
    first, second = sent(machine), sent(machine)
    machine.table_arrived(even_routes([0]), moved=[0], now=5.0)
    machine.expire(5.0 + FORMER_S - 0.01)
    assert machine.transmit(0, 5.9) is None, "a live one would answer now"
    assert machine.expire(5.0 + FORMER_S) == []
    again = [sent(machine, 6.0), sent(machine, 6.0)]
    assert [(one.key, one.sequence, one.attempt) for one in again] == [(0, 0, 2), (1, 1, 2)]
    assert {one.identity for one in again} == {first.identity}
    assert machine.done(first.key, first.attempt, 7) == [], "an answer to a try that was given up is left"
    assert machine.done(0, 2, 7) == [BatchStored(0, 7)]
    assert machine.refused(second.key, second.attempt, ringfence.RetriableError("late"), 6.0) == []
    assert machine.done(1, 2, 8) == [BatchStored(1, 8)]


def test_a_table_with_the_same_owner_moves_nothing_however_long_it_says_nothing() -> None:
    machine = machine_with(1)
    sent(machine)
    machine.table_arrived(even_routes([0]), now=5.0)
    assert machine.expire(90.0) == []
    assert machine.transmit(0, 90.0) is None


def test_what_was_sent_by_the_newer_table_is_waited_for() -> None:
    machine = machine_with(2)
    first = sent(machine)
    machine.table_arrived(even_routes([0]), moved=[0], now=5.0)
    machine.done(first.key, first.attempt, 0)
    sent(machine, 5.1)
    assert machine.expire(90.0) == []
    assert machine.transmit(0, 90.0) is None
