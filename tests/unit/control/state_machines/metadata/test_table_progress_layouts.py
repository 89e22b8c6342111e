"""A topic's table while its layout changes: who is waited for, and what is shown apart."""

from __future__ import annotations

from ringfence.control.model.ids import Index
from ringfence.control.state_machines.metadata.table_progress import (
    PartitionState,
    Progress,
    TableState,
    view,
)
from tests.fakes.layout_log import LayoutLog


def test_planned_children_and_sealed_partitions_are_shown_and_not_waited_for() -> None:
    log = LayoutLog(3)
    source = log.active[0].partition
    log.must(log.split(log.active[0]))
    everywhere = Progress({node: Index(log.at) for node in log.nodes}, moving=log.state.changes.keys())
    table = view(log.state, log.now, everywhere)
    assert [part.partition for part in table.planned] == [
        child.partition for child in log.transition.children
    ]
    assert {part.state for part in table.planned} == {PartitionState.PLANNED}
    assert {int(part.epoch) for part in table.planned} == {int(log.number())}
    assert (table.state, table.partitions[0].state) == (TableState.ASSIGNED, PartitionState.MOVING)
    log.must(log.hold())
    log.must(log.commit())
    table = view(log.state, log.now, Progress({}))
    assert table.planned == ()
    assert [(part.partition, part.state) for part in table.sealed] == [(source, PartitionState.ASSIGNED)]
    assert source not in {order.partition for order in table.pending}
    assert len(table.pending) == 5, "the children are waited for"
    table = view(log.state, log.now, everywhere)
    assert [order.partition for order in table.pending] == [part.partition for part in log.active[:2]], (
        "children are open once their owners have applied the COMMIT, not only the PREPARE"
    )
    applied = Progress({node: Index(log.at) for node in log.nodes})
    assert view(log.state, log.now, applied).state is TableState.ASSIGNED
