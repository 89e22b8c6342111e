"""When a leader asks for the HOLD of a move: what the target lacks is little, or as little as it ever is."""

from __future__ import annotations

from collections.abc import Iterable

from ringfence.control.model.reassignment_commands import HoldChange
from ringfence.control.state_machines.reassignment.hold_decision import HOLD_GAP, STEADY_ANSWERS
from ringfence.control.state_machines.reassignment.messages import OrderDone, Receive, Sync, Synced, SyncState
from ringfence.control.state_machines.reassignment.move_phases import advance, begin_phase, observe
from tests.fakes.metadata_log import MetadataLog


def looks_until_the_hold(gaps: Iterable[int], state: SyncState = SyncState.CONTIGUOUS) -> int | None:
    """How often a target that lacks so many records is looked at before the HOLD; None if it never comes."""
    lab = MetadataLog(3)
    lab.must(lab.prepare(lab.nodes[1]))
    observed = begin_phase(lab.change, 0)
    (receive,) = advance(lab.state, lab.change, observed, 0).orders
    assert isinstance(receive, Receive)
    observed = observe(observed, receive, OrderDone())
    for count, gap in enumerate(gaps, 1):
        again, sync = advance(lab.state, lab.change, observed, count).orders
        assert again == receive, "a target that came back meanwhile is told once more"
        assert isinstance(sync, Sync)
        observed = observe(observed, sync, Synced(state=state, gap=gap))
        if isinstance(advance(lab.state, lab.change, observed, count).entry, HoldChange):
            return count
    return None


def test_little_is_held_at_once() -> None:
    assert looks_until_the_hold([HOLD_GAP]) == 1


def test_a_lag_that_shrinks_no_more_is_what_the_load_keeps_on_its_way() -> None:
    found = looks_until_the_hold([900, 500, *[300, 420, 350] * STEADY_ANSWERS])
    assert found is not None, "a full load kept this move from ever ending"
    assert found == STEADY_ANSWERS + 3


def test_a_target_that_falls_ever_further_behind_is_not_held_for() -> None:
    assert looks_until_the_hold(range(100, 20_000, 100)) is None


def test_a_copy_is_not_held_for_however_long_it_takes() -> None:
    assert looks_until_the_hold([300] * 50, SyncState.COPYING) is None
