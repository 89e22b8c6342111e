"""When a node executes an order of a layout change, by its own log."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from ringfence.control.model.ids import Epoch, Index, PartitionId, ScopeId
from ringfence.control.model.reassignments import ChangeId
from ringfence.control.model.scopes import PendingCommit, Scope, StagedPart
from ringfence.control.model.topics import Replica
from ringfence.control.state_machines.layout.messages import (
    CreateChild,
    Inherit,
    LookLayout,
    Seal,
    evaluate_order,
    is_settled,
)
from ringfence.control.state_machines.reassignment.messages import OrderVerdict
from tests.fakes.layout_log import END, LayoutLog

EXECUTE, LATER, NEVER = OrderVerdict.EXECUTE, OrderVerdict.LATER, OrderVerdict.NEVER


def prepared(upto: str = "prepare") -> LayoutLog:
    log = LayoutLog(4)
    log.done(log.split(log.active[0]), upto=upto)
    return log


def order(log: LayoutLog, kind: Any, to: Replica, **more: Any) -> Any:
    return kind(to=to, topic=log.topic, change=log.number(), **more)


def verdict(log: LayoutLog, one: Any, *, applied: int | None = None) -> OrderVerdict:
    return evaluate_order(log.state, log.at if applied is None else applied, one, one.to)


def roles(log: LayoutLog) -> tuple[Replica, Replica, Replica]:
    """The owner of the source, the owner of a child, and a node without a part in it."""
    source = log.now.assignments[log.transition.sources[0]].owner
    child = log.transition.owners[1]
    stranger = next(
        log.place(int(node))
        for node in log.nodes
        if node not in {source.node, *(o.node for o in log.transition.owners)}
    )
    return source, child, stranger


@pytest.mark.parametrize(
    ("upto", "verdicts"),
    [
        ("prepare", (EXECUTE, EXECUTE, LATER, LATER)),
        ("hold", (EXECUTE, EXECUTE, EXECUTE, EXECUTE)),
        ("commit", (NEVER, NEVER, NEVER, NEVER)),
        ("opened", (NEVER, NEVER, NEVER, NEVER)),
    ],
)
def test_an_order_is_executed_in_its_phase_only(upto: str, verdicts: tuple[OrderVerdict, ...]) -> None:
    source, child, stranger = roles(prepared())
    log = prepared(upto)
    ends = ((log.transition.sources[0], END),)
    orders = [
        order(log, CreateChild, child),
        order(log, Inherit, child),
        order(log, Inherit, child, ends=ends),
        order(log, Seal, source),
    ]
    assert tuple(verdict(log, one) for one in orders) == verdicts
    assert {verdict(log, replace(one, to=stranger)) for one in orders} == {NEVER}
    assert {evaluate_order(log.state, log.at, one, stranger) for one in orders} == {NEVER}


def test_an_order_is_late_for_good_or_early_by_the_nodes_own_log() -> None:
    log = prepared()
    _, child, _ = roles(log)
    one, before = order(log, CreateChild, child), log.number() - 1
    log.must(log.abort())
    assert verdict(log, one) is NEVER, "an abort was applied"
    assert verdict(log, one, applied=before) is LATER, "the PREPARE was not applied yet"
    log.must(log.split(log.active[0]))
    assert verdict(log, one) is NEVER, "another try has another number"


def test_a_source_is_sealed_only_when_its_decided_rows_are_published() -> None:
    log = prepared("hold")
    source, *_ = roles(log)
    part = StagedPart(log.topic, log.transition.sources[0], 3)
    pending = (PendingCommit(1, (), (part,)),)
    scope = Scope(scope=ScopeId(5), name="s", driver=Index(5), used=Index(5), pending=pending)
    waiting = replace(log.state, scopes={scope.scope: scope})
    one = order(log, Seal, source)
    assert evaluate_order(waiting, log.at, one, source) is LATER
    assert verdict(log, one) is EXECUTE


class Local:
    def __init__(self, *, staged: bool = False, opened: bool = False, damaged: bool = False) -> None:
        self.staged, self.opened, self.damaged = staged, opened, damaged

    def has_stages(self, _: PartitionId) -> bool:
        return self.staged

    def is_open(self, _: PartitionId, epoch: Epoch) -> bool:
        return self.opened and epoch > 0

    def is_quarantined(self, _: PartitionId) -> bool:
        return self.damaged


def test_a_node_settles_for_open_children_and_for_those_that_never_will_be() -> None:
    log = prepared()
    source, child, stranger = roles(log)
    look, after = order(log, LookLayout, source), order(log, LookLayout, child, is_committed=True)
    assert is_settled(log.state, look, source, Local())
    assert not is_settled(log.state, look, source, Local(staged=True))
    assert is_settled(log.state, replace(look, to=stranger), stranger, Local(staged=True))
    assert not is_settled(log.state, after, child, Local(opened=True)), "the COMMIT is not applied here"
    number = log.number()
    log.must(log.hold())
    log.must(log.commit())
    assert not is_settled(log.state, look, source, Local()), "a question of before the COMMIT"
    assert not is_settled(log.state, after, child, Local())
    assert is_settled(log.state, after, child, Local(opened=True))
    assert is_settled(log.state, after, child, Local(damaged=True))
    assert is_settled(log.state, replace(after, to=stranger), stranger, Local())
    later = replace(after, change=ChangeId(number + 1))
    assert not is_settled(log.state, later, child, Local(opened=True))
    for part in log.active[:2]:
        log.done(log.split(part), upto="commit")
    assert is_settled(log.state, after, child, Local()), "its children were split again"
