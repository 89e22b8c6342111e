"""One transition: which orders go out, which entry comes next, and what ends a try."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from ringfence.control.model.ids import Index, NodeId, ScopeId
from ringfence.control.model.layout_commands import (
    AbortLayout,
    CommitLayout,
    ConfirmLayout,
    FinalizeLayout,
    HoldLayout,
)
from ringfence.control.model.node_commands import FailNode
from ringfence.control.model.reassignments import ChangePhase
from ringfence.control.model.scopes import PendingCommit, Scope, StagedPart
from ringfence.control.state_machines.layout import steps
from ringfence.control.state_machines.layout.messages import CreateChild, Inherit, Inherited, LookLayout, Seal
from ringfence.control.state_machines.reassignment.messages import Failed, OrderDone
from tests.fakes.layout_leader import Led
from tests.fakes.layout_log import END


def test_the_way_of_a_split_from_prepare_to_finalize() -> None:
    led = Led()
    places = {place.node for child in led.log.transition.children for place in child.replicas}
    owners = {child.replicas[0].node for child in led.log.transition.children}
    source = led.log.now.assignments[led.log.transition.sources[0]].owner.node
    assert led.orders(CreateChild) == sorted(places)
    led.created()
    assert led.orders(Inherit) == sorted(owners)
    led.inherited()
    assert led.orders(LookLayout) == [source]
    led.quiet()
    led.log.must(led.entry(HoldLayout))
    assert led.orders(Seal) == [source]
    led.sealed()
    [order, *_] = led.step()[0]
    assert isinstance(order, Inherit)
    assert order.ends == ((led.log.transition.sources[0], END),)
    led.inherited()
    commit = led.entry(CommitLayout)
    assert (commit.ends, commit.stopped_us) == (order.ends, 17)
    assert [child for child, _ in commit.created] == led.children
    led.log.must(commit)
    assert led.orders(LookLayout) == sorted(owners)
    assert all(isinstance(order, LookLayout) and order.is_committed for order in led.step()[0])
    led.quiet()
    led.log.must(led.entry(ConfirmLayout))
    assert led.step() == ((), ())  # nobody has adopted
    led.later(30_000)
    finalize = led.entry(FinalizeLayout)
    assert (finalize.timed_out, finalize.waited_ms) == (True, 30_000)
    led.log.must(finalize)
    assert led.step() == ((), ())


def test_open_stages_are_waited_for_a_moment() -> None:
    led = Led()
    led.created()
    led.inherited()
    assert led.orders(LookLayout)
    led.later(4_999)
    assert led.orders(LookLayout)
    led.later(1)
    led.entry(HoldLayout)
    without = Led()
    without.log.must(without.log.config(stage_wait_ms=0))
    without.created()
    without.inherited()
    without.entry(HoldLayout)


def test_all_sources_are_sealed_at_once_and_only_without_pending_rows() -> None:
    led = Led(kind="merge", replication=1)
    led.upto(ChangePhase.HELD)
    owners = {led.log.now.assignments[source].owner.node for source in led.log.transition.sources}
    assert len(owners) == 2
    assert led.orders(Seal) == sorted(owners)
    part = StagedPart(led.log.topic, led.log.transition.sources[0], 3)
    scope = Scope(
        scope=ScopeId(5),
        name="nightly",
        driver=Index(5),
        used=Index(5),
        pending=(PendingCommit(1, (), (part,)),),
    )
    led.log.state = replace(led.log.state, scopes={scope.scope: scope})
    assert led.step() == ((), ())
    led.later(5_000)
    assert "rows of scope 'nightly' wait" in led.entry(AbortLayout).why


@pytest.mark.parametrize("phase", [ChangePhase.PREPARED, ChangePhase.HELD])
def test_a_failed_order_or_a_dead_owner_ends_the_try(phase: ChangePhase) -> None:
    led = Led(replication=1)
    led.upto(phase)
    [order, *_] = led.step()[0]
    led.coordinator.observe_answer(order, Failed(why="the disk is full"))
    assert led.entry(AbortLayout).why == f"node {order.to.node}: the disk is full"
    for place in (led.log.now.assignments[led.log.transition.sources[0]].owner, led.log.transition.owners[1]):
        led = Led(replication=1)
        led.upto(phase)
        node = led.log.state.nodes[NodeId(place.node)]
        led.log.must(FailNode(node=node.node, changed=node.changed))
        assert led.entry(AbortLayout).why == f"node {node.node} is FAILED"


def test_each_phase_before_the_commit_has_a_time_limit_and_names_who_did_not_answer() -> None:
    led = Led()
    led.step()
    led.later(60_000)
    why = led.entry(AbortLayout).why
    assert "`layout_timeout_ms`" in why and "no answer of nodes" in why
    led = Led()
    led.upto(ChangePhase.HELD)
    led.step()
    led.later(5_000)
    source = led.log.now.assignments[led.log.transition.sources[0]].owner.node
    assert led.entry(AbortLayout).why.endswith(f"`hold_timeout_ms`; no answer of nodes {source}")


def test_a_committed_change_waits_for_live_owners_only() -> None:
    led = Led(replication=1)
    led.upto(ChangePhase.COMMITTED)
    first, second = (led.log.now.assignments[child].owner.node for child in led.children)
    node = led.log.state.nodes[first]
    led.later(10_000_000)  # it only goes forward
    assert led.orders(LookLayout) == sorted({first, second})
    led.log.must(FailNode(node=first, changed=node.changed))
    assert led.orders(LookLayout) == [second]
    led.quiet()
    led.entry(ConfirmLayout)


def test_answers_of_other_transitions_and_other_ends_change_nothing() -> None:
    led = Led()
    led.upto(ChangePhase.HELD)
    led.sealed()
    [order, *_] = led.step()[0]
    assert isinstance(order, Inherit)
    late = replace(order, ends=None)
    led.coordinator.observe_answer(late, Inherited(children=led.own(order)))
    led.coordinator.observe_answer(replace(order, change=order.change + 1), Failed(why="late"))
    led.coordinator.observe_answer(order, OrderDone())
    assert order in led.step()[0]


def test_too_many_gates_of_readers_end_the_try_before_the_hold() -> None:
    led = Led()
    led.created()
    source = led.log.transition.sources[0]
    half = steps.READER_BYTES_MAX // 2
    led.answer(
        Inherit, lambda order: Inherited(children=led.own(order), reader_bytes=((source, 2 * half + 1),))
    )
    why = led.entry(AbortLayout).why
    assert f"partitions {source}" in why and str(steps.READER_BYTES_MAX) in why
