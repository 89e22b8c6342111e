"""A partition's owner changes while a producer has batches on the way: what ends a pause, what does not."""

from __future__ import annotations

import pytest

from ringfence.common.send_effects import BatchStored, BatchUnknown, FetchTable, Identity, OpenEpoch, Transmit
from ringfence.native.errors import RerouteError, RetriableError, refusal
from ringfence.native.wire import RETRIABLE, Code, RedirectReason
from ringfence.send.inflight import EARLY_MAX, EARLY_PARTITIONS_MAX, Inflight
from tests.fakes.routes import even_routes

HELD = refusal(Code.HELD, "on hold", retry_after_s=0.05)
NOT_OWNER = RerouteError("node 2", reason=RedirectReason.NOT_OWNER, partition=0)
CLOSED = RetriableError("the partition is not open", retry_after_s=0.02, partition=0)


def machine_with(batches: int, partitions: int = 1) -> Inflight:
    machine = Inflight(Identity(1, 1))
    for key in range(batches * partitions):
        machine.submit(key, key % partitions, 100.0)
    return machine


def sent(machine: Inflight, partition: int = 0, now: float = 0.0) -> Transmit:
    order = machine.transmit(partition, now)
    assert order is not None
    return order


def test_a_table_with_another_owner_ends_the_pause_that_the_former_one_asked_for() -> None:
    machine = machine_with(1)
    machine.refused(0, sent(machine).attempt, HELD, 0.0)
    assert machine.transmit(0, 0.01) is None, "the owner on hold asked for 50 ms"
    machine.table_arrived(even_routes([0]))
    assert machine.transmit(0, 0.01) is None, "a table with the same owner says nothing about the hold"
    machine.table_arrived(even_routes([0]), moved=[0])
    assert sent(machine, now=0.01).attempt == 2


def test_what_the_former_owner_says_after_that_table_holds_nobody_back() -> None:
    machine = machine_with(2)
    first, second = sent(machine), sent(machine)
    machine.table_arrived(even_routes([0]), moved=[0])
    assert machine.refused(first.key, first.attempt, HELD, 0.0) == []
    assert machine.redirected(second.key, second.attempt, NOT_OWNER, 7, 0.0) == [], "no table is asked for"
    assert [sent(machine).key, sent(machine).key] == [0, 1]


def test_the_new_owner_is_waited_for_as_any_other() -> None:
    machine = machine_with(1)
    order = sent(machine)
    machine.table_arrived(even_routes([0]), moved=[0])
    machine.refused(0, order.attempt, HELD, 0.0)
    machine.refused(0, sent(machine).attempt, HELD, 0.0)
    assert machine.transmit(0, 0.049) is None, "this is the word of the owner that the table names"
    assert sent(machine, now=0.06).attempt == 3


def test_an_owner_that_is_about_to_open_is_asked_soon_and_with_one_batch() -> None:
    machine = machine_with(3)
    orders = [sent(machine) for _ in range(3)]
    for order in orders:
        machine.refused(order.key, order.attempt, CLOSED, 0.0, early=True)
    assert 0.0 < machine.paused_until(0) <= 0.002, "three batches that came too early are one try"
    assert sent(machine, now=0.002).key == 0
    assert machine.transmit(0, 0.002) is None, "the window waits until the owner has taken one batch"
    machine.done(0, 2, 0)
    assert [sent(machine, now=0.002).key, sent(machine, now=0.002).key] == [1, 2]


def test_an_owner_that_never_opens_is_asked_ever_less() -> None:
    machine, now, pauses = machine_with(1), 0.0, []
    for _ in range(EARLY_MAX + 4):
        machine.refused(0, sent(machine, now=now).attempt, CLOSED, now, early=True)
        pauses.append(machine.paused_until(0) - now)
        now = machine.paused_until(0)
    assert max(pauses[:EARLY_MAX]) <= 0.008
    assert pauses[EARLY_MAX:] == sorted(pauses[EARLY_MAX:])
    assert pauses[EARLY_MAX] >= 0.02, "from here on the pause that the node asks for holds"


def test_a_node_that_stays_behind_is_not_believed_for_ever() -> None:
    machine, now = machine_with(1), 0.0
    for _ in range(EARLY_MAX):
        assert machine.redirected(0, sent(machine, now=now).attempt, NOT_OWNER, 3, now, early=True) == []
        now = machine.paused_until(0)
    effects = machine.redirected(0, sent(machine, now=now).attempt, NOT_OWNER, 3, now, early=True)
    assert effects == [FetchTable(3)], "the table itself may be the one that is wrong"


def test_only_a_few_partitions_at_once_ask_for_their_owners_so_often() -> None:
    machine = machine_with(1, partitions=EARLY_PARTITIONS_MAX + 1)
    for partition in range(EARLY_PARTITIONS_MAX + 1):
        machine.refused(partition, sent(machine, partition).attempt, CLOSED, 0.0, early=True)
    assert machine.paused_until(0) <= 0.002
    assert machine.paused_until(EARLY_PARTITIONS_MAX) >= 0.02


def test_a_node_whose_disk_failed_is_asked_again_for_another_owner_may_have_the_batch() -> None:
    machine = machine_with(2)
    first, second = sent(machine), sent(machine)
    unknown = refusal(Code.UNKNOWN_OUTCOME, "the disk failed before it was known durable")
    failed = refusal(Code.STORAGE_FAILED, "shard 0 takes nothing more")
    assert machine.refused(first.key, first.attempt, unknown, 0.0) == []
    assert machine.refused(second.key, second.attempt, failed, 0.0) == []
    again = sent(machine, now=1.0)
    assert (again.key, again.sequence, again.attempt) == (0, 0, 2), "the same sequence: it is stored once"
    assert machine.refused(0, again.attempt, failed, 1.0) == []
    machine.table_arrived(even_routes([0]), moved=[0])
    assert machine.done(0, sent(machine, now=1.0).attempt, 7) == [BatchStored(0, 7)]
    assert sent(machine, now=1.0).key == 1


def test_a_batch_that_only_a_failed_disk_was_asked_for_ends_unknown_at_its_deadline() -> None:
    machine = machine_with(1)
    order = sent(machine)
    failed = refusal(Code.STORAGE_FAILED, "shard 0 takes nothing more")
    assert machine.refused(0, order.attempt, failed, 0.0) == []
    (ended,) = (effect for effect in machine.expire(100.0) if not isinstance(effect, OpenEpoch))
    assert isinstance(ended, BatchUnknown)


@pytest.mark.parametrize("code", sorted({*Code} - {Code.SEQUENCE_GAP}), ids=lambda code: code.name)
def test_a_batch_is_sent_again_exactly_when_the_wire_says_that_it_may_succeed(code: Code) -> None:
    """SEQUENCE_GAP has its own way: it names where to go on."""
    machine = machine_with(1)
    order = sent(machine)
    ended = machine.refused(order.key, order.attempt, refusal(code, "no"), 0.0)
    assert (ended == []) == (code in RETRIABLE), ended
