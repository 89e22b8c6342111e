"""All layout changes of one leader: what is repeated, and what another leader begins again."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from ringfence.control.model.ids import Index
from ringfence.control.model.layout_commands import FinalizeLayout, HoldLayout
from ringfence.control.model.reassignments import ChangePhase
from ringfence.control.state_machines.layout.coordinator import REPROPOSE_MS, LayoutCoordinator
from ringfence.control.state_machines.metadata import drained
from tests.fakes.layout_leader import Led
from tests.fakes.layout_log import LayoutLog


class Reader(NamedTuple):
    """A registered reader that has read nothing, older than all changes."""

    name: str
    created: Index = Index(0)

    def has_read(self, *_: object) -> bool:
        return False


def test_an_order_is_repeated_until_it_is_answered_and_an_entry_only_after_a_second() -> None:
    led = Led()
    assert led.step() == led.step()
    led.created()
    led.inherited()
    led.quiet()
    entry = led.entry(HoldLayout)
    assert led.step() == ((), ())
    led.later(REPROPOSE_MS)
    assert led.entry(HoldLayout) == entry
    led.coordinator.note_refusal(entry)
    assert led.entry(HoldLayout) == entry


def test_the_time_to_adopt_begins_when_the_sources_are_drained(monkeypatch: pytest.MonkeyPatch) -> None:
    led = Led()
    led.upto(ChangePhase.OPENED)
    waiting = [Reader("group")]
    monkeypatch.setattr(drained, "registered_readers", lambda *_: tuple(waiting))
    led.later(100_000)
    assert led.step() == ((), ())
    waiting.clear()
    led.later(1)
    assert led.step() == ((), ())
    led.later(29_999)
    assert led.step() == ((), ())
    led.coordinator.begin()  # another leader begins again
    assert led.step() == ((), ())
    led.later(30_000)
    led.entry(FinalizeLayout)


def test_several_changes_go_on_side_by_side() -> None:
    log, coordinator = LayoutLog(4), LayoutCoordinator()
    log.must(log.split(log.active[0]))
    log.must(log.split(log.active[2]))
    orders, entries = coordinator.step(log.state, 0)
    assert {order.change for order in orders} == {*log.state.transitions}
    assert entries == ()
    first, second = sorted(log.state.transitions)
    log.must(log.abort(first))
    orders, _ = coordinator.step(log.state, 0)
    assert {order.change for order in orders} == {second}
    assert coordinator.progress(first) is None
    assert coordinator.progress(second) is not None


def test_the_age_of_a_seal_is_judged_by_the_leaders_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    led = Led()
    led.upto(ChangePhase.OPENED)
    monkeypatch.setattr(drained, "registered_readers", lambda *_: (Reader("gone"),))
    led.coordinator.step(led.log.state, led.now_ms, led.log.time_ms)
    assert led.coordinator.step(led.log.state, led.now_ms + 40_000, led.log.time_ms) == ((), ())
    late_ms = led.log.time_ms + 86_400_000
    assert led.coordinator.step(led.log.state, led.now_ms, late_ms) == ((), ())
    _, entries = led.coordinator.step(led.log.state, led.now_ms + 30_000, late_ms)
    assert [type(entry) for entry in entries] == [FinalizeLayout]
