"""The leader's coordinator of layout changes over the product's log and modelled nodes, under faults.

Messages are lost, late and repeated; nodes crash and start; leaders change. Then it is quiet, and each run
must end: see `tests.fakes.layout_world`. Bugs that are planted into the coordinator, into what nodes check
and into what they derive from their logs are found.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from ringfence.control.model.nodes import Life
from ringfence.control.model.reassignments import ChangePhase
from ringfence.control.state_machines import node_orders
from ringfence.control.state_machines.layout import coordinator, messages, steps
from ringfence.control.state_machines.layout.messages import CreateChild, Inherit, LookLayout
from ringfence.control.state_machines.metadata import layout_rules
from ringfence.control.state_machines.reassignment.messages import OrderDone, OrderVerdict
from tests.fakes.layout_world import run

RUNS = 60
# Runs that a planted bug may take; most need fewer than ten.
RUNS_MAX = 150
Patch = pytest.MonkeyPatch


@pytest.mark.parametrize("replication", [1, 3])
def test_every_change_ends_whatever_fails_on_the_way(replication: int) -> None:
    seen = Counter[str]()
    for seed in range(RUNS):
        seen += run(seed, replication=replication).seen
    for command in ("PrepareLayout", "HoldLayout", "CommitLayout", "ConfirmLayout", "FinalizeLayout"):
        assert seen[f"{command} taken"] >= 20, seen
    assert seen["AbortLayout taken"] >= 20, seen
    assert seen["FailNode taken"] >= 5, seen


# ---- planted bugs -------------------------------------------------------------------------------------


def create_unchecked(patch: Patch) -> None:
    """A late order to create a child is carried out, whatever the node's log says."""
    evaluate = messages.evaluate_order

    def planted(state: Any, applied: int, order: Any, here: Any) -> OrderVerdict:
        if isinstance(order, CreateChild):
            return OrderVerdict.EXECUTE
        return evaluate(state, applied, order, here)

    patch.setattr(messages, "evaluate_order", planted)


def look_wants_admits(patch: Patch) -> None:
    """A child that was split again must take rows before its transition is OPENED."""

    def planted(state: Any, order: LookLayout, here: Any, local: Any) -> bool:
        transition = state.transitions.get(order.change)
        if transition is None or transition.may_abort == order.is_committed:
            return False
        assignments = state.topics[transition.topic].assignments
        owned = [child.partition for child in transition.children if child.partition in assignments]
        return transition.may_abort or all(
            local.is_open(number, assignments[number].epoch) or local.is_quarantined(number)
            for number in owned
            if assignments[number].owner == here
        )

    patch.setattr(messages, "is_settled", planted)


def look_waits_for_damaged(patch: Patch) -> None:
    """A child that is quarantined must take rows before its transition is OPENED."""
    settled = messages.is_settled

    class Hidden:
        def __init__(self, local: Any) -> None:
            self.has_stages, self.is_open = local.has_stages, local.is_open

        def is_quarantined(self, _: Any) -> bool:
            return False

    patch.setattr(
        messages, "is_settled", lambda state, order, here, local: settled(state, order, here, Hidden(local))
    )


def look_ignores_the_commit(patch: Patch) -> None:
    """A node that has not applied the COMMIT says that its children take rows."""
    settled = messages.is_settled

    def planted(state: Any, order: LookLayout, here: Any, local: Any) -> bool:
        transition = state.transitions.get(order.change)
        early = transition is not None and transition.may_abort and order.is_committed
        return early or settled(state, order, here, local)

    patch.setattr(messages, "is_settled", planted)


def look_waits_for_dead(patch: Patch) -> None:
    """An owner that is gone is asked for good."""
    decide = steps._decide_committed

    def planted(state: Any, transition: Any, observed: Any) -> Any:
        nodes = {number: replace(node, life=Life.LIVE) for number, node in state.nodes.items()}
        return decide(replace(state, nodes=nodes), transition, observed)

    patch.setattr(steps, "_decide_committed", planted)


def dead_is_waited_for(patch: Patch) -> None:
    """No time-out and no failed owner ends a transition before its COMMIT."""
    patch.setattr(steps, "_abort_reason", lambda *_: "")


def base_counts_as_rest(patch: Patch) -> None:
    """What a child inherited while its sources took rows counts as all of it."""
    observe = steps.observe

    def planted(observed: Any, order: Any, answer: Any) -> Any:
        after = observe(observed, order, answer)
        if isinstance(order, Inherit) and not isinstance(answer, OrderDone) and hasattr(answer, "children"):
            after = replace(after, inherited={**after.inherited, **dict(answer.children)})
        return after

    begin = steps.begin_phase

    def kept(transition: Any, now_ms: int, previous: Any = None) -> Any:
        begun = begin(transition, now_ms, previous)
        same = previous is not None and previous.change == transition.change
        return replace(begun, inherited=previous.inherited) if same else begun

    patch.setattr(coordinator, "observe", planted)
    patch.setattr(coordinator, "begin_phase", kept)


def sealed_is_opened(patch: Patch) -> None:
    """A SEALED partition is opened like any other, by an epoch record."""
    opened = node_orders._open_order

    def planted(topic: Any, *rest: Any) -> Any:
        return opened(replace(topic, seals={}), *rest)

    patch.setattr(node_orders, "_open_order", planted)


def active_only(patch: Patch) -> None:
    """A node that starts derives orders for ACTIVE partitions only."""
    update = node_orders._partitions_to_update
    patch.setattr(
        node_orders,
        "_partitions_to_update",
        lambda old, topic: tuple(part for part in update(old, topic) if part.is_active),
    )


def abort_keeps_epochs(patch: Patch) -> None:
    """An ABORT after a HOLD draws no epoch: nothing ends the fence."""
    abort = layout_rules.abort

    def planted(state: Any, transition: Any, *rest: Any) -> Any:
        return abort(state, replace(transition, phase=ChangePhase.PREPARED), *rest)

    patch.setattr(layout_rules, "abort", planted)
    patch.setattr("ringfence.control.invariants.layouts.check_step", lambda *_: None)


PLANTED: dict[str, Callable[[Patch], None]] = {
    bug.__name__: bug
    for bug in (
        create_unchecked,
        look_wants_admits,
        look_waits_for_damaged,
        look_ignores_the_commit,
        look_waits_for_dead,
        dead_is_waited_for,
        base_counts_as_rest,
        sealed_is_opened,
        active_only,
        abort_keeps_epochs,
    )
}


@pytest.mark.parametrize("bug", PLANTED)
def test_runs_find_each_planted_bug(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    PLANTED[bug](monkeypatch)
    for seed in range(RUNS_MAX):
        try:
            run(seed)
        except AssertionError:
            return
    pytest.fail(f"{bug} was not found in {RUNS_MAX} runs")
