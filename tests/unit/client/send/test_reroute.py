"""What a layout change does to batches on their way: one test for each rule of `reroute.py`."""

from __future__ import annotations

import pytest

from ringfence.common.send_effects import (
    BatchRefused,
    BatchStored,
    BatchUnknown,
    FetchTable,
    Identity,
    JoinBatches,
    OpenEpoch,
    Piece,
    Sealed,
    StageToken,
    Transmit,
)
from ringfence.native.errors import BatchError, DeadlineError, RerouteError, UnknownOutcomeError, refusal
from ringfence.native.wire import Code, RedirectReason
from ringfence.send.inflight import Inflight
from ringfence.send.reroute import Phase
from tests.fakes.routes import routes

HELD = refusal(Code.HELD, "on hold", retry_after_s=0.05)
BEFORE = routes({0: (0, 99), 9: (100, 199)})
AFTER = routes({1: (0, 49), 2: (50, 99), 9: (100, 199)}, {0: (0, 99)}, version=2)


def machine_with(batches: int, *, named: bool = False) -> Inflight:
    """All batches go to partition 0 of a topic with 0 and 9; batch n belongs to send n + 1."""
    machine = Inflight(Identity(1, 1), named=named, routes=BEFORE)
    for key in range(batches):
        machine.submit(key, 0, 100.0, key + 1)
    return machine


def sent(machine: Inflight, partition: int = 0, now: float = 0.0) -> Transmit:
    order = machine.transmit(partition, now)
    assert order is not None
    return order


def word(stored: int | None, version: int = 2) -> Sealed:
    return Sealed(stored, tuple((one, 100 + one) for one in range(stored or 0)), version)


def routed(machine: Inflight, *partitions: int) -> list[object]:
    """Route everything that waits: each batch becomes one of each of these partitions."""
    effects: list[object] = []
    while (key := machine.next_unrouted()) is not None:
        pieces = [Piece(100 * (key + 1) + one, one, one) for one in partitions]
        effects += machine.rerouted(key, pieces)
    return effects


def test_c1_a_sealed_partition_draws_no_sequence() -> None:
    machine = machine_with(2)
    first = sent(machine)
    machine.table_arrived(AFTER)
    assert machine.transmit(0, 0.0) is None
    machine.submit(7, 0, 100.0)  # encoded before the table came
    assert machine.transmit(0, 0.0) is None
    assert machine.done(first.key, first.attempt, 0) == [BatchStored(0, 0)]
    assert machine.next_unrouted() == 1


def test_c2_one_answer_of_the_sealed_partition_settles_the_whole_window() -> None:
    machine = machine_with(5)
    orders = [sent(machine) for _ in range(5)]
    machine.table_arrived(AFTER)
    effects = machine.sealed(orders[3].key, orders[3].attempt, word(2), 5)
    assert effects == [BatchStored(0, 100), BatchStored(1, 101)]
    assert [machine.done(one.key, one.attempt, 7) for one in (orders[2], orders[4])] == [[], []]
    routed(machine, 1)
    assert [sent(machine, 1).sequence for _ in range(3)] == [0, 1, 2], "C4: from 0 on at the child"


def test_c2_what_was_only_told_held_is_not_stored() -> None:
    machine = machine_with(1)
    order = sent(machine)
    machine.refused(order.key, order.attempt, HELD, 0.0)
    machine.table_arrived(AFTER)
    assert machine.next_unrouted() == 0


def test_c2_a_lost_try_is_asked_for_at_the_sealed_partition_whatever_another_try_was_told() -> None:
    machine = machine_with(2)
    first, second = sent(machine), sent(machine)
    machine.lost([(first.key, first.attempt), (second.key, second.attempt)])
    machine.refused(0, sent(machine).attempt, HELD, 0.0)
    machine.table_arrived(AFTER, moved=[0])
    assert machine.next_unrouted() is None
    question = sent(machine, now=1.0)
    assert (question.key, question.sequence) == (0, 0)
    assert machine.transmit(0, 1.0) is None, "one question at a time"
    assert machine.sealed(0, question.attempt, word(0), 5) == []
    assert machine.next_unrouted() == 0


def test_c2_an_answer_without_offsets_leaves_stored_batches_to_be_asked_for() -> None:
    machine = machine_with(3)
    orders = [sent(machine) for _ in range(3)]
    machine.table_arrived(AFTER)
    machine.lost([(one.key, one.attempt) for one in orders])
    question = sent(machine)
    machine.lost([(question.key, question.attempt)])
    again = sent(machine)
    assert machine.sealed(again.key, again.attempt, Sealed(0, (), 2), 5) == []
    machine = machine_with(2)
    first, second = sent(machine), sent(machine)
    machine.table_arrived(AFTER)
    machine.lost([(first.key, first.attempt)])
    assert machine.sealed(second.key, second.attempt, Sealed(1, (), 2), 5) == []
    question = sent(machine)
    assert machine.done(question.key, question.attempt, 55) == [BatchStored(0, 55)]


@pytest.mark.parametrize("pruned", [False, True], ids=["given back", "pruned"])
def test_c2_where_nobody_can_tell_a_lost_try_is_unknown_and_the_rest_is_routed_again(pruned: bool) -> None:
    machine = machine_with(3)
    first, second = sent(machine), sent(machine)
    machine.lost([(first.key, first.attempt)])
    if pruned:
        machine.refused(second.key, second.attempt, refusal(Code.UNKNOWN_PARTITION, "gone"), 0.0)
        gone = routes(AFTER.active, {}, version=2)
        (unknown, *more) = machine.table_arrived(gone)
    else:
        machine.table_arrived(AFTER)
        (unknown, *more) = machine.sealed(second.key, second.attempt, word(None), 5)
    assert isinstance(unknown, BatchUnknown)
    assert isinstance(unknown.error, UnknownOutcomeError)
    assert more == [OpenEpoch()]
    machine.opened(Identity(2, 2))
    assert routed(machine, 2) == []
    assert [sent(machine, 2).key for _ in range(2)] == [202, 302]


def test_c3_the_owner_may_tell_before_the_table_does() -> None:
    machine = machine_with(2)
    first, _ = sent(machine), sent(machine)
    assert machine.sealed(first.key, first.attempt, word(0), 5) == [FetchTable(5, 2)]
    assert machine.next_unrouted() is None, "the held table names no children"
    waits = [machine.waits_for_table]
    machine.submit(7, 0, 100.0)
    assert machine.transmit(0, 0.0) is None, "nothing more is sent to it"
    machine.table_arrived(AFTER)
    waits.append(machine.waits_for_table)
    assert waits == [True, False]
    assert machine.next_unrouted() == 0


def test_c4_children_wait_for_every_former_partition_with_their_slots() -> None:
    machine = Inflight(Identity(1, 1), routes=routes({0: (0, 49), 1: (50, 99), 9: (100, 199)}))
    machine.submit(0, 0, 100.0)
    machine.submit(1, 1, 100.0)
    first, second = sent(machine, 0), sent(machine, 1)
    merged = routes({2: (0, 99), 9: (100, 199)}, {0: (0, 49), 1: (50, 99)}, version=2)
    machine.table_arrived(merged)
    machine.submit(2, 2, 100.0)
    machine.submit(3, 9, 100.0)
    assert sent(machine, 9).key == 3, "other keys flow"
    assert machine.transmit(2, 0.0) is None
    machine.done(first.key, first.attempt, 0)
    assert machine.transmit(2, 0.0) is None, "the second parent has a batch"
    again = {3: (0, 29), 4: (30, 99), 9: (100, 199)}
    machine.table_arrived(routes(again, {0: (0, 49), 1: (50, 99), 2: (0, 99)}, version=3))
    routed(machine, 3, 4)
    assert sent(machine, 3).key == 303, "no batch of partition 1 has these slots"
    assert machine.transmit(4, 0.0) is None, "a grandchild waits as well"
    machine.done(second.key, second.attempt, 0)
    assert sent(machine, 4).key == 304


def test_c4_what_was_routed_again_goes_before_what_was_sent_later() -> None:
    machine = machine_with(2)
    first, _ = sent(machine), sent(machine)
    machine.table_arrived(AFTER)
    machine.submit(7, 1, 100.0)
    machine.sealed(first.key, first.attempt, word(0), 5)
    routed(machine, 1)
    assert [sent(machine, 1).key for _ in range(3)] == [101, 201, 7]


def test_c4_a_child_begins_while_later_batches_of_its_parent_wait_to_be_routed() -> None:
    machine = machine_with(3)
    machine.table_arrived(AFTER)
    machine.submit(7, 1, 100.0)
    assert machine.transmit(1, 0.0) is None, "three earlier batches wait at the parent"
    machine.rerouted(0, [Piece(100, 1, 1), Piece(200, 2, 50)])
    assert [sent(machine, partition).key for partition in (1, 2)] == [100, 200]
    assert machine.transmit(1, 0.0) is None, "batch 7 is later than what the parent has"
    routed(machine, 1)
    assert [sent(machine, 1).key for _ in range(3)] == [201, 301, 7]


def test_c4_of_a_merge_a_child_waits_for_earlier_batches_of_each_parent() -> None:
    machine = Inflight(Identity(1, 1), routes=routes({0: (0, 49), 1: (50, 99)}))
    for key, partition in ((0, 0), (1, 1), (2, 0)):
        machine.submit(key, partition, 100.0)
    asked = sent(machine, 1)
    machine.table_arrived(routes({2: (0, 99)}, {0: (0, 49), 1: (50, 99)}, version=2))
    routed(machine, 2)
    assert sent(machine, 2).key == 102
    assert machine.transmit(2, 0.0) is None, "batch 1 is earlier than batch 2"
    machine.sealed(asked.key, asked.attempt, word(0), 5)
    routed(machine, 2)
    assert [sent(machine, 2).key for _ in range(2)] == [202, 302]


def test_c7_a_child_of_a_named_producer_waits_for_all_batches_of_its_parents() -> None:
    machine = machine_with(2, named=True)
    machine.table_arrived(AFTER)
    machine.rerouted(0, [Piece(100, 1, 1)])
    assert machine.transmit(1, 0.0) is None, "a body of the same send may come from another parent"
    machine.rerouted(1, [Piece(200, 1, 1)])
    assert [sent(machine, 1).key for _ in range(2)] == [100, 200]


def test_c7_two_parts_of_a_send_are_joined_before_a_sequence_is_drawn() -> None:
    machine = Inflight(Identity(1, 1), named=True, routes=routes({0: (0, 49), 1: (50, 99)}))
    for key, partition in ((0, 0), (1, 1), (2, 0), (3, 1)):
        machine.submit(key, partition, 100.0, 1 + key // 2)
    machine.table_arrived(routes({2: (0, 99)}, {0: (0, 49), 1: (50, 99)}, version=2))
    effects = routed(machine, 2)
    assert effects == [JoinBatches(102, 202), JoinBatches(302, 402)]
    assert machine.joined(102, 202, 500) == []
    assert machine.joined(302, 402, 600) == []
    assert [sent(machine, 2).key for _ in range(2)] == [500, 600]


def test_c7_parts_that_are_too_large_together_are_a_hole() -> None:
    machine = Inflight(Identity(1, 1), named=True, routes=routes({0: (0, 49), 1: (50, 99)}))
    for key, partition in ((0, 0), (1, 1), (2, 0)):
        machine.submit(key, partition, 100.0, 1 + key // 2)
    machine.table_arrived(routes({2: (0, 99)}, {0: (0, 49), 1: (50, 99)}, version=2))
    routed(machine, 2)
    error = BatchError("above the limit")
    effects = machine.not_joined(102, 202, error)
    assert effects[:2] == [BatchRefused(102, error), BatchRefused(202, error)]
    assert [type(one) for one in effects[2:]] == [BatchRefused], "send 2 was sent after it"
    assert isinstance(machine.submit(9, 2, 100.0, 3)[0], BatchRefused)


def test_c8_a_hole_is_one_of_the_children_and_refuses_what_waits_there() -> None:
    machine = machine_with(2, named=True)
    order = sent(machine)
    machine.lost([(order.key, order.attempt)])
    machine.table_arrived(AFTER)
    machine.submit(7, 1, 200.0, 3)
    effects = machine.expire(150.0)
    assert [(one.key, type(one)) for one in effects] == [  # type: ignore[union-attr]
        (0, BatchUnknown),
        (1, BatchRefused),
        (7, BatchRefused),
    ]
    assert isinstance(machine.submit(8, 2, 200.0, 4)[0], BatchRefused)
    assert machine.submit(9, 9, 200.0, 4) == [], "other slots go on"
    machine.table_arrived(
        routes({1: (0, 49), 3: (50, 199)}, {0: (0, 99), 2: (50, 99), 9: (100, 199)}, version=3)
    )
    assert isinstance(machine.submit(10, 3, 200.0, 5)[0], BatchRefused), "and of what they become"


def test_c9_deadlines_go_on_at_the_children() -> None:
    machine = machine_with(1)
    machine.table_arrived(AFTER)
    routed(machine, 1, 2)
    effects = machine.expire(100.0)
    assert [type(one.error) for one in effects if isinstance(one, BatchRefused)] == [DeadlineError] * 2
    assert len(machine) == 0


def test_c11_a_producer_without_identity_starts_at_0_in_the_newest_partitions() -> None:
    machine = machine_with(3)
    order = sent(machine)
    machine.refused(order.key, order.attempt, refusal(Code.BAD_BODY, "bytes"), 0.0)
    assert machine.phase is Phase.OPENING
    machine.table_arrived(AFTER)
    routed(machine, 2)
    assert machine.transmit(2, 0.0) is None
    machine.opened(Identity(5, 5))
    assert [(one.identity, one.sequence) for one in (sent(machine, 2), sent(machine, 2))] == [
        (Identity(5, 5), 0),
        (Identity(5, 5), 1),
    ]


def test_c12_a_sealed_partition_without_batches_is_forgotten() -> None:
    machine = machine_with(1)
    order = sent(machine)
    machine.done(order.key, order.attempt, 0)
    assert machine.partitions == 1
    machine.table_arrived(AFTER)
    assert machine.partitions == 0


def test_a_sealed_partition_without_batches_is_kept_until_the_table_names_its_children() -> None:
    """Sequence 0 was used there for other rows."""
    machine = machine_with(2)
    machine.done(0, sent(machine).attempt, 0)
    machine.sealed(1, sent(machine).attempt, word(1), 5)
    machine.expire(200.0)
    assert (len(machine), machine.partitions) == (0, 1)
    machine.submit(7, 0, 900.0)
    assert machine.transmit(0, 300.0) is None


def test_a_try_that_is_older_than_the_held_table_is_sent_again_at_once_and_counts_as_no_redirect() -> None:
    stale = RerouteError("newer", reason=RedirectReason.STALE_VERSION, layout_version=2)
    machine = Inflight(Identity(1, 1), redirects_max=1, routes=BEFORE)
    machine.submit(0, 9, 100.0)
    order = sent(machine, 9)
    machine.table_arrived(AFTER)
    assert machine.redirected(order.key, order.attempt, stale, 5, 0.0) == []
    again = sent(machine, 9)
    assert machine.redirected(again.key, again.attempt, stale, 5, 0.0) == [FetchTable(5, 2)], "nodes disagree"
    machine.table_arrived(AFTER)
    third = sent(machine, 9, now=1.0)
    assert isinstance(machine.redirected(third.key, third.attempt, stale, 5, 1.0)[0], BatchRefused)


def test_a_producer_that_ends_routes_nothing_again() -> None:
    machine = machine_with(2, named=True)
    order = sent(machine)
    machine.table_arrived(AFTER)
    effects = machine.refused(order.key, order.attempt, refusal(Code.FENCED_PRODUCER, "newer"), 0.0)
    assert [type(one) for one in effects] == [BatchRefused, BatchRefused]
    assert machine.next_unrouted() is None
    machine = machine_with(2)
    machine.table_arrived(AFTER)
    assert len(machine.end_all(DeadlineError("closed"))) == 2
    assert machine.next_unrouted() is None


def test_ten_thousand_batches_are_routed_in_well_under_a_second() -> None:
    machine = Inflight(Identity(1, 1), routes=routes({0: (0, 49), 1: (50, 99)}))
    for key in range(10_000):
        machine.submit(key, key % 2, 100.0, key)
    machine.table_arrived(routes({2: (0, 99)}, {0: (0, 49), 1: (50, 99)}, version=2))
    while (unrouted := machine.next_unrouted()) is not None:
        machine.rerouted(unrouted, [Piece(10_000 + unrouted, 2, 0)])
    keys = []
    while (order := machine.transmit(2, 0.0)) is not None:
        keys.append(order.key)
        machine.done(order.key, order.attempt, 0)
    assert keys == [10_000 + key for key in range(10_000)]


def test_batches_of_an_attempt_are_never_joined() -> None:
    """Each has its own origin."""
    before = routes({0: (0, 49), 1: (50, 99)})
    machine = Inflight(StageToken(b"t" * 16), named=True, routes=before)
    for key, partition in ((0, 0), (1, 1)):
        machine.submit(key, partition, 100.0)
    machine.table_arrived(routes({2: (0, 99)}, {0: (0, 49), 1: (50, 99)}, version=2))
    assert routed(machine, 2) == []
    assert [sent(machine, 2).identity for _ in range(2)] == [StageToken(b"t" * 16)] * 2
