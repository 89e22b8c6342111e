"""A move that takes too long is given up, and says what held it up."""

from __future__ import annotations

from ringfence.control.model.reassignment_commands import AbortChange
from ringfence.control.state_machines.metadata.config import limit
from ringfence.control.state_machines.reassignment.messages import OrderDone, Receive, Sync, Synced, SyncState
from ringfence.control.state_machines.reassignment.move_phases import (
    SLOW_REASONS_MAX,
    advance,
    begin_phase,
    observe,
)
from tests.fakes.metadata_log import MetadataLog


def given_up(why: str) -> str:
    """The reason of a try whose target said `why` when its time was over."""
    lab = MetadataLog(3)
    lab.must(lab.prepare(lab.nodes[1]))
    observed = begin_phase(lab.change, 0)
    (receive,) = advance(lab.state, lab.change, observed, 0).orders
    assert isinstance(receive, Receive)
    observed = observe(observed, receive, OrderDone())
    _, sync = advance(lab.state, lab.change, observed, 1).orders
    assert isinstance(sync, Sync)
    observed = observe(observed, sync, Synced(state=SyncState.COPYING, gap=7, why=why))
    top = limit(lab.state, "move_timeout_ms")
    assert advance(lab.state, lab.change, observed, top - 1).entry is None
    entry = advance(lab.state, lab.change, observed, top).entry
    assert isinstance(entry, AbortChange)
    return entry.why


def test_a_copy_that_was_held_up_until_its_time_was_over_says_by_what() -> None:
    why = given_up("node 3 says disk_full")
    assert why.startswith("copying for ")
    assert why.endswith("ms, the limit `move_timeout_ms`; to node 2: node 3 says disk_full"), why


def test_one_that_was_only_slow_says_its_limit_alone_and_no_reason_is_endless() -> None:
    assert given_up("").endswith("the limit `move_timeout_ms`")
    assert len(given_up("x" * 10_000)) < SLOW_REASONS_MAX + 100
