"""An owner by force in the metadata: its epoch is kept, replicas hear of it, a failover counts with it."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from ringfence.control.model.ids import Epoch, NodeId
from ringfence.control.model.reassignment_commands import CommitChange, ForceOwner
from ringfence.control.model.reassignments import LogEnd
from ringfence.control.model.state import EMPTY, canonical_bytes, decode_state
from ringfence.control.state_machines import node_orders
from ringfence.control.state_machines.node_orders import FollowPartition
from ringfence.control.state_machines.reassignment.messages import Ended, Fence
from ringfence.control.state_machines.reassignment.move_phases import (
    ANSWERS_GRACE_MS,
    advance,
    begin_phase,
    observe,
)
from tests.fakes.metadata_log import MetadataLog

OLD = LogEnd(Epoch(1), 7, 70, 99)


def begun(level: int = 1) -> MetadataLog:
    """Nodes 1, 2, 5 have the partition; node 1 owns it."""
    lab = MetadataLog(4, replication=3)
    lab.state = replace(lab.state, level=level)
    return lab


def force(lab: MetadataLog, *replicas: int, failed: int = 1) -> int:
    """Node 2 becomes the owner without a majority; its epoch."""
    lab.must(lab.fail(failed))
    nodes = tuple(NodeId(node) for node in replicas)
    lab.must(ForceOwner(**lab.which, owner=NodeId(2), accepts="rows that others have", replicas=nodes))
    return lab.now.epoch


def follows(lab: MetadataLog, node: int) -> list[int]:
    """The forced epochs that FOLLOW orders name when this node starts."""
    phases = node_orders.between(EMPTY, lab.state, lab.place(node))
    return [order.forced for phase in phases for order in phase if isinstance(order, FollowPartition)]


def test_the_epoch_of_a_forced_owner_is_named_to_replicas_of_it_and_of_later_owners() -> None:
    lab = begun()
    assert follows(lab, 5) == [0]
    before = lab.state
    epoch = force(lab)
    told = [order for phase in node_orders.between(before, lab.state, lab.place(5)) for order in phase]
    assert [order.forced for order in told if isinstance(order, FollowPartition)] == [epoch]
    lab.must(lab.opened())
    lab.must(lab.clean())
    end = LogEnd(Epoch(epoch), 9, 90, 5)
    lab.must(lab.prepare(5, 1, 2))
    lab.must(lab.hold())
    lab.must(lab.commit({5: end, 2: end}, owner=5, end=end))
    assert lab.now.epoch > epoch and follows(lab, 2) == follows(lab, 1) == [epoch]
    assert decode_state(canonical_bytes(lab.state)) == lab.state


def test_at_level_0_no_choice_is_kept_and_none_is_named() -> None:
    lab = begun(level=0)
    force(lab)
    assert follows(lab, 5) == [0]
    assert b"forced" not in canonical_bytes(lab.state)


def failed_over(lab: MetadataLog, ends: dict[int, LogEnd]) -> CommitChange | None:
    """What the leader proposes after these have answered the fence, and others have been waited for."""
    observed = begin_phase(lab.change, 0)
    for order in advance(lab.state, lab.change, observed, 0).orders:
        assert isinstance(order, Fence)
        if order.to.node in ends:
            observed = observe(observed, order, Ended(end=ends[order.to.node]))
    entry = advance(lab.state, lab.change, observed, ANSWERS_GRACE_MS + 1).entry
    assert entry is None or isinstance(entry, CommitChange)
    return entry


@pytest.mark.parametrize("level", [0, 1])
def test_a_failover_after_a_force_waits_for_a_replica_that_has_what_was_chosen(level: int) -> None:
    """The two that are new among the replicas are a majority, and have nothing of what was chosen."""
    lab = begun(level)
    epoch = force(lab, 2, 5, 8)
    lab.must(lab.opened())
    lab.must(lab.clean())
    lab.must(lab.fail(2))
    nothing, chosen = LogEnd(Epoch(0), 0, 0, 0), LogEnd(Epoch(epoch), 9, 90, 5)
    ends = {5: nothing, 8: nothing}
    entry = failed_over(lab, ends)
    if not level:
        assert entry is not None, "as programs of level 0 have it"
        return
    assert entry is None
    lab.refuses(lab.commit(ends, owner=5, end=nothing), "was forced", "all replicas must answer")
    both = failed_over(lab, {5: nothing, 2: chosen})
    assert both is not None and both.owner == 2, "it is failed, and alone has what was chosen"
    all_of_old = failed_over(lab, {5: nothing, 8: nothing, 2: OLD})
    assert all_of_old is not None and all_of_old.owner == 2, "it was killed before it opened"
    entry = failed_over(lab, {5: chosen, 8: nothing})
    assert entry is not None and entry.owner == 5
    lab.must(entry)
