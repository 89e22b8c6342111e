"""The pure machines of the producer against nodes that lose, repeat, delay, refuse and redirect."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringfence.common.send_effects import (
    BatchRefused,
    BatchStored,
    BatchUnknown,
    Identity,
    OpenEpoch,
    Transmit,
)
from ringfence.native.errors import (
    BatchError,
    ClosedError,
    DeadlineError,
    FencedError,
    ForgottenError,
    RerouteError,
    RetriableError,
    UnknownOutcomeError,
    refusal,
)
from ringfence.native.wire import Code, RedirectReason
from ringfence.send.inflight import Inflight
from ringfence.send.reroute import Phase
from tests.fakes.inflight_nodes import InflightWorld
from tests.fakes.routes import even_routes

STEPS = 250
FAULTS = ["overloaded", "deadline", "redirect", "early", "answer lost", "unknown", "forgotten"]
WEIGHTS = {
    "submit": 4,
    "transmit": 8,
    "serve": 9,
    "deliver": 8,
    "cut": 0.5,
    "serve late": 1,
    "advance": 1,
    "table": 2,
    "epoch": 2,
}
SEED = st.integers(0, 2**32)


def play(world: InflightWorld, seed: int, *, life_s: float, steps: int = STEPS, partitions: int = 2) -> None:
    """A walk through the model; each has its own mix of faults, so that rare ones also come often."""
    dice = random.Random(seed)
    fault_share, faults = dice.choice([0.0, 0.1, 0.4]), dice.sample(FAULTS, dice.randint(1, 3))
    bad_share = dice.choice([0.0, 0.05, 0.2])
    names, weights = list(WEIGHTS), [weight * dice.choice([0.3, 1, 3]) for weight in WEIGHTS.values()]
    for name in dice.choices(names, weights, k=steps):
        match name:
            case "submit":
                world.submit(
                    dice.randrange(partitions), bad=dice.random() < bad_share, deadline=world.now + life_s
                )
            case "transmit":
                world.transmit(dice.randrange(partitions))
            case "serve" if world.wire.requests:
                world.serve(world.wire, dice.choice(faults) if dice.random() < fault_share else "")
            case "serve late" if world.old and (late := dice.choice(world.old)).requests:
                world.serve(late)
            case "deliver" if world.wire.answers:
                world.deliver()
            case "cut":
                world.cut()
            case "advance":
                world.advance(dice.choice([0.001, 0.02, 0.3]))
            case "table":
                world.table([partition for partition in world.logs if dice.random() < 0.2])
            case "epoch":
                world.epoch()


@given(SEED, st.booleans())
@settings(max_examples=1500, deadline=None)
def test_every_batch_ends_in_exactly_one_true_outcome(seed: int, named: bool) -> None:
    world = InflightWorld(named=named)
    play(world, seed, life_s=1e6)
    world.settle()
    world.check()


@given(SEED, st.booleans())
@settings(max_examples=1500, deadline=None)
def test_outcomes_stay_true_when_deadlines_end_batches(seed: int, named: bool) -> None:
    world = InflightWorld(named=named)
    play(world, seed, life_s=0.3)
    world.settle()
    world.check()


@given(SEED)
@settings(max_examples=1000, deadline=None)
def test_a_fenced_producer_ends_everything_and_stores_nothing_more(seed: int) -> None:
    world = InflightWorld(named=True)
    play(world, seed, life_s=1e6, steps=100)
    world.fenced = True
    stored = {partition: list(log.keys) for partition, log in world.logs.items()}
    play(world, seed + 1, life_s=1e6, steps=60)
    world.settle()
    world.check()
    assert all(log.keys == stored.get(partition, []) for partition, log in world.logs.items())


def test_the_model_finds_a_machine_that_uses_a_sequence_twice() -> None:
    """The checker is shown a planted fault: restart without a new identity."""
    world = InflightWorld()
    first = world.submit(0, bad=True)
    world.submit(0)
    world.transmit(0)
    world.serve(world.wire)
    world.deliver()
    assert isinstance(world.outcomes[first], BatchRefused)
    world.run(world.machine.opened(world.machine.identity))
    with pytest.raises(AssertionError, match="used again"):
        world.transmit(0)


def test_the_model_finds_a_machine_that_sends_a_lost_batch_under_a_new_identity() -> None:
    world = InflightWorld()
    world.submit(0)
    world.transmit(0)
    world.serve(world.wire)  # stored; its answer is never delivered
    entry = world.machine._entries[0]
    world.machine._queues[0].answered(entry)
    world.machine._make_hole(world.machine._queues[0])
    world.machine._requeue(world.machine._queues[0], [entry])
    world.run(world.machine._drained())
    world.epoch()
    world.settle()
    with pytest.raises(AssertionError, match="I6"):
        world.check()


# ---- single rules
# ---------------------------------------------------------------------------------------------


def sent(machine: Inflight, partition: int = 0, now: float = 0.0) -> Transmit:
    order = machine.transmit(partition, now)
    assert order is not None
    return order


def test_a_retry_after_a_lost_answer_keeps_identity_and_sequence() -> None:
    machine = Inflight(Identity(7, 9))
    machine.submit(0, 0, 100.0)
    first = sent(machine)
    machine.lost([(first.key, first.attempt)])
    again = sent(machine)
    assert (again.identity, again.sequence, again.key) == (first.identity, first.sequence, first.key)
    assert again.attempt == first.attempt + 1
    assert machine.done(0, first.attempt, 5) == [], "an answer to the try before is not taken"
    assert machine.done(0, again.attempt, 5) == [BatchStored(0, 5)]


def test_at_most_a_window_is_in_flight() -> None:
    machine = Inflight(Identity(1, 1))
    for key in range(100):
        machine.submit(key, 0, 100.0)
    orders = [order for _ in range(100) if (order := machine.transmit(0, 0.0)) is not None]
    assert [order.sequence for order in orders] == list(range(64))
    machine.done(0, orders[0].attempt, 0)
    assert sent(machine).sequence == 64


def test_nothing_is_sent_behind_a_failed_try_until_it_went_again() -> None:
    machine = Inflight(Identity(1, 1))
    for key in range(3):
        machine.submit(key, 0, 100.0)
    orders = [sent(machine), sent(machine)]
    machine.refused(0, orders[0].attempt, refusal(Code.OVERLOADED, "full", retry_after_s=0.5), 0.0)
    assert machine.transmit(0, 0.1) is None, "the second try has no answer yet"
    machine.refused(1, orders[1].attempt, refusal(Code.SEQUENCE_GAP, "gap", expected=0), 0.1)
    assert machine.transmit(0, 0.2) is None, "the node asked for half a second"
    machine.expire(0.6)
    assert [sent(machine, now=0.6).sequence for _ in range(3)] == [0, 1, 2]


def test_after_a_final_refusal_the_rest_goes_on_under_a_new_identity() -> None:
    machine = Inflight(Identity(1, 1))
    for key in range(3):
        machine.submit(key, 0, 100.0)
    orders = [sent(machine) for _ in range(3)]
    error = refusal(Code.WRONG_SLOT, "slot", partition=0)
    assert machine.refused(0, orders[0].attempt, error, 0.0) == [BatchRefused(0, error), OpenEpoch()]
    assert isinstance(error, BatchError)
    assert machine.transmit(0, 0.0) is None
    machine.opened(Identity(2, 5))
    assert [(order.key, order.identity, order.sequence) for order in (sent(machine), sent(machine))] == [
        (1, Identity(2, 5), 0),
        (2, Identity(2, 5), 1),
    ]


def test_redirects_are_capped_and_end_in_a_typed_error() -> None:
    machine = Inflight(Identity(1, 1), redirects_max=16)
    machine.submit(0, 0, 1e9)
    error = RerouteError("there", reason=RedirectReason.NOT_OWNER, partition=0)
    now, count = 0.0, 0
    while True:
        order = sent(machine, now=now)
        effects = machine.redirected(0, order.attempt, error, 1, now)
        count += 1
        machine.table_arrived(even_routes([0]))
        now += 10
        machine.expire(now)
        if any(isinstance(effect, BatchRefused) for effect in effects):
            break
    assert (count, effects[0]) == (17, BatchRefused(0, error))


def test_an_owner_that_is_not_there_yet_is_waited_for_until_the_deadline() -> None:
    machine = Inflight(Identity(1, 1), redirects_max=2)
    machine.submit(0, 0, 1_000.0)
    error = RetriableError("the partition is not open", partition=0)  # what the sender makes of CLOSED
    outcomes = []
    for now in range(0, 1_100, 50):
        outcomes += [one for one in machine.expire(float(now)) if isinstance(one, BatchRefused)]
        if outcomes:
            break
        machine.refused(0, sent(machine, now=float(now)).attempt, error, float(now))
    assert now == 1_000
    assert len(outcomes) == 1


def test_a_deadline_before_any_try_is_a_refusal_and_after_a_lost_one_unknown() -> None:
    machine = Inflight(Identity(1, 1))
    machine.submit(0, 0, 1.0)
    machine.submit(1, 1, 1.0)
    sent(machine, 0)
    first, second = sorted(
        (effect for effect in machine.expire(2.0) if isinstance(effect, BatchRefused | BatchUnknown)),
        key=lambda e: e.key,
    )
    assert isinstance(first, BatchUnknown)
    assert isinstance(first.error, UnknownOutcomeError)
    assert isinstance(second, BatchRefused)
    assert isinstance(second.error, DeadlineError)


def test_a_deadline_tells_why_the_node_took_nothing_until_it_takes_something() -> None:
    machine = Inflight(Identity(1, 1))
    for key in range(3):
        machine.submit(key, 0, (2.0, 4.0, 4.0)[key])
    order = sent(machine)
    machine.refused(order.key, order.attempt, refusal(Code.DISK_FULL, "the disk is full"), 0.0)
    (full,) = (effect for effect in machine.expire(3.0) if isinstance(effect, BatchRefused))
    assert isinstance(full.error, DeadlineError)
    assert "the disk is full" in full.error.message
    assert full.error.__cause__ is not None
    machine.opened(Identity(1, 2))
    order = sent(machine, now=3.5)
    machine.done(order.key, order.attempt, 0)
    (silent,) = (effect for effect in machine.expire(5.0) if isinstance(effect, BatchRefused))
    assert "full" not in str(silent.error)


def test_fencing_ends_the_producer() -> None:
    machine = Inflight(Identity(1, 1), named=True)
    machine.submit(0, 0, 100.0)
    machine.submit(1, 1, 100.0)
    order = sent(machine)
    effects = machine.refused(0, order.attempt, refusal(Code.FENCED_PRODUCER, "newer"), 0.0)
    assert [type(effect) for effect in effects] == [BatchRefused, BatchRefused]
    assert machine.phase is Phase.DEAD
    (later,) = machine.submit(2, 0, 100.0)
    assert isinstance(later, BatchRefused)
    assert isinstance(later.error, FencedError)


@pytest.mark.parametrize("named", [False, True])
def test_a_forgotten_unnamed_producer_goes_on_and_a_named_one_says_so(named: bool) -> None:
    machine = Inflight(Identity(1, 1), named=named)
    machine.submit(0, 0, 100.0)
    order = sent(machine)
    effects = machine.refused(0, order.attempt, refusal(Code.FORGOTTEN, "expired"), 0.0)
    if named:
        assert isinstance(effects[0], BatchRefused)
        assert isinstance(effects[0].error, ForgottenError)
    else:
        assert effects == [OpenEpoch()]
        machine.opened(Identity(2, 2))
        assert sent(machine).identity == Identity(2, 2)


def test_a_named_producer_goes_on_in_the_partitions_without_a_hole_under_its_identity() -> None:
    """An OPEN would need every partition, so that one that is quarantined stopped all of them."""
    machine = Inflight(Identity(1, 1), named=True)
    for key, partition in enumerate([0, 0, 1, 1]):
        machine.submit(key, partition, 100.0)
    bad, behind, first = sent(machine, 0), sent(machine, 0), sent(machine, 1)
    effects = machine.refused(bad.key, bad.attempt, refusal(Code.QUARANTINED, "damaged"), 0.0)
    effects += machine.refused(behind.key, behind.attempt, refusal(Code.QUARANTINED, "damaged"), 0.0)
    assert [type(effect) for effect in effects] == [BatchRefused, BatchRefused]
    assert machine.phase is Phase.OPEN
    assert isinstance(machine.done(first.key, first.attempt, 0)[0], BatchStored)
    assert sent(machine, 1).sequence == 1
    (later,) = machine.submit(4, 0, 100.0)
    assert isinstance(later, BatchRefused)
    assert isinstance(later.error, ClosedError)


def test_a_node_that_lost_acknowledged_rows_is_not_asked_for_ever() -> None:
    machine = Inflight(Identity(1, 1))
    machine.submit(0, 0, 100.0)
    order = sent(machine)
    machine.done(0, order.attempt, 0)
    machine.submit(1, 0, 100.0)
    order = sent(machine)
    effects = machine.refused(1, order.attempt, refusal(Code.SEQUENCE_GAP, "gap", expected=0), 0.0)
    assert isinstance(effects[0], BatchRefused)


def test_batches_that_come_back_one_by_one_keep_their_order() -> None:
    """Seed 74555 of the walk.

    A gap requeued the second batch, then a forgotten producer the third one, in front of it.
    """
    machine = Inflight(Identity(1, 1))
    for key in range(3):
        machine.submit(key, 0, 100.0)
    first = sent(machine)
    machine.lost([(0, first.attempt)])
    orders = [sent(machine) for _ in range(3)]
    machine.refused(0, orders[0].attempt, refusal(Code.FORGOTTEN, "expired"), 0.0)  # unknown: a try was lost
    machine.refused(1, orders[1].attempt, refusal(Code.SEQUENCE_GAP, "gap", expected=0), 0.0)
    assert machine.refused(2, orders[2].attempt, refusal(Code.FORGOTTEN, "expired"), 0.0) == [OpenEpoch()]
    machine.opened(Identity(2, 2))
    assert [sent(machine).key for _ in range(2)] == [1, 2]


def test_a_batch_that_comes_back_after_the_fence_is_refused() -> None:
    machine = Inflight(Identity(1, 1), named=True)
    for key, partition in enumerate([0, 1, 1]):
        machine.submit(key, partition, 100.0)
    fenced, bad, _ = sent(machine, 0), sent(machine, 1), sent(machine, 1)
    machine.refused(0, fenced.attempt, refusal(Code.FENCED_PRODUCER, "newer"), 0.0)
    effects = machine.refused(1, bad.attempt, refusal(Code.BAD_BODY, "bytes"), 0.0)
    assert {(effect.key, type(effect.error)) for effect in effects if isinstance(effect, BatchRefused)} == {
        (1, BatchError),
        (2, FencedError),
    }
    assert len(machine) == 0
