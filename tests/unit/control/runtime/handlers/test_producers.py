"""Opens of named producers by slot range, while partitions are held, split and merged."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import UNSET

from ringfence.control.model.ids import PartitionId
from ringfence.control.model.ranges import SlotRange
from ringfence.control.model.state import MetadataState
from ringfence.control.model.topics import Topic
from ringfence.control.runtime.handlers import producers
from ringfence.control.runtime.handlers.producers import ProducerRequests
from ringfence.control.runtime.handlers.resume_points import check_client, resume_points
from ringfence.control.runtime.process.errors import RequestRefused
from ringfence.control.runtime.rpc.dispatch import CALLER_FEATURES
from ringfence.control.runtime.rpc.messages import OpenProducer
from ringfence.native.wire import Code, Features
from tests.fakes.layout_log import LayoutLog

ALL = SlotRange(0, 99)


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No open ends by its deadline because the machine is busy; a test of the deadline sets a short one."""
    monkeypatch.setattr(producers, "OPEN_S", 600.0)


def test_points_are_of_slots_that_no_earlier_round_has_covered() -> None:
    points = [(0, 49, 3, None, 7, b"note", 10, 5), (50, 99, 4, 2, 9, None, 20, 6)]
    found = resume_points(8, ALL, {"points": points}, [SlotRange(30, 60), SlotRange(90, 99)])
    assert [(one.lo, one.hi, one.partition, one.send) for one in found] == [
        (30, 49, 3, 7),
        (50, 60, 4, 9),
        (90, 99, 4, 9),
    ]
    (own,) = resume_points(8, ALL, {"sequence": 1, "send": 5, "offset": 3}, [ALL])
    assert (own.lo, own.hi, own.send) == (0, 99, 5)
    assert resume_points(8, ALL, {}, [ALL]) == []


class Proposer:
    """The part of a proposer that opens read."""

    def __init__(self, log: LayoutLog) -> None:
        self._log = log

    @property
    def state(self) -> MetadataState:
        return self._log.state

    @property
    def applied(self) -> SimpleNamespace:
        return SimpleNamespace(index=0)

    async def read_barrier(self) -> None:
        """The log is applied."""

    async def until_applied(self, index: int) -> None:
        """Entries come from the answers of the owners, so there is one at any time."""


class Opens(ProducerRequests):
    """Over a metadata log by hand. `meet(partition)`: what the owner answers; it may change the layout."""

    def __init__(self, log: LayoutLog, meet: Callable[[int], dict[str, Any] | RequestRefused]) -> None:
        self.log, self.meet = log, meet
        self.raised: list[int] = []
        proposer: Any = Proposer(log)
        native: Any = None
        super().__init__(proposer, native, native)

    async def _raise_epoch(self, topic: Topic, partition: PartitionId, call: Any) -> dict[str, Any]:
        del topic, call
        await asyncio.sleep(0)
        told = self.meet(partition)
        if isinstance(told, RequestRefused):
            raise told
        self.raised.append(partition)
        return told

    def run(self) -> list[tuple[Any, ...]]:
        call = OpenProducer(topic=0, partition=0, producer=1, epoch=2, name=b"n", previous=0)
        found = asyncio.run(self._reach_all(self.log.now, "n", call))
        return [(one.partition, one.lo, one.hi, one.send) for one in found]


def own(send: int) -> dict[str, Any]:
    return {"sequence": 0, "send": send, "offset": 0, "rows": 1}


NOT_OPEN = RequestRefused(Code.INTERNAL, "not open")


def test_an_open_of_a_topic_that_never_changed_is_one_round_without_slots() -> None:
    log = LayoutLog(partitions=2)
    one, other = (part.partition for part in log.active)
    opens = Opens(log, lambda partition: own(4 if partition == one else 7))
    assert opens.run() == [(one, UNSET, UNSET, 4), (other, UNSET, UNSET, 7)]
    assert sorted(opens.raised) == [one, other]


def test_a_partition_that_was_raised_covers_its_children_and_a_sealed_one_covers_nothing() -> None:
    log = LayoutLog(partitions=2)
    one, other = log.active
    log.must(log.split(one))
    number = log.number()

    def meet(partition: int) -> dict[str, Any] | RequestRefused:
        if partition == one.partition:
            if number in log.state.transitions and one.partition in log.state.changes:
                log.must(log.hold(number))
                log.must(log.commit(number))
                return NOT_OPEN  # it was fenced: rows of the predecessor may be on their way to its children
            return own(9)
        return own(3)

    opens = Opens(log, meet)
    points = opens.run()
    children = [part.partition for part in log.active if part.partition != other.partition]
    assert sorted(opens.raised) == sorted([other.partition, *children])
    assert [point[0] for point in points if point[0] in children] == children


def test_an_open_waits_for_a_layout_change_that_holds_a_partition() -> None:
    log = LayoutLog(partitions=1)
    (one,) = log.active
    log.must(log.split(one))
    log.must(log.hold())
    rounds: list[int] = []

    def meet(partition: int) -> dict[str, Any] | RequestRefused:
        rounds.append(partition)
        if len(rounds) == 3:
            log.must(log.abort())
            return own(5)
        return NOT_OPEN

    assert Opens(log, meet).run() == [(one.partition, UNSET, UNSET, 5)]
    assert len(rounds) == 3


def test_an_open_goes_on_through_any_number_of_layout_changes() -> None:
    log = LayoutLog(partitions=1)

    def meet(partition: int) -> dict[str, Any] | RequestRefused:
        if log.now.layout.version < 20:
            log.done(log.split(max(log.active, key=lambda part: part.slots.hi - part.slots.lo)))
            return NOT_OPEN
        return own(partition)

    opens = Opens(log, meet)
    opens.run()
    assert log.now.layout.version == 20
    assert sorted(opens.raised) == sorted(part.partition for part in log.active)


def test_a_partition_that_nobody_changes_is_refused_at_once() -> None:
    log = LayoutLog(partitions=2)
    first = log.active[0].partition
    opens = Opens(log, lambda partition: NOT_OPEN if partition == first else own(1))
    with pytest.raises(RequestRefused, match=f"partition {first}: not open"):
        opens.run()


def test_an_open_ends_although_a_layout_change_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producers, "OPEN_S", 0.1)
    log = LayoutLog(partitions=1)
    log.must(log.split(log.active[0]))
    with pytest.raises(RequestRefused, match="not open"):
        Opens(log, lambda _: NOT_OPEN).run()


def refused(log: LayoutLog, features: int, name: str = "n") -> str:
    """What a client with these features is told; empty if it may open the name."""
    token = CALLER_FEATURES.set(features)
    try:
        check_client(log.state, log.now, name)
    except RequestRefused as refusal:
        assert refusal.code is Code.NOT_SUPPORTED
        assert refusal.details == {"producer": name, "features": 1}
        return refusal.message
    else:
        return ""
    finally:
        CALLER_FEATURES.reset(token)


def test_a_client_that_knows_no_ranges_is_refused_where_it_would_leave_rows_out() -> None:
    log = LayoutLog(partitions=1)
    assert refused(log, 0) == ""
    log.done(log.split(log.active[0]))
    assert "layout" in refused(log, int(Features.LINEAGE))
    assert refused(log, int(Features.RESUME_RANGES)) == ""
    merged = LayoutLog(partitions=2)
    before = merged.now
    merged.done(merged.merge(*merged.active))
    assert before.layout.version == 1
    token = CALLER_FEATURES.set(0)
    with pytest.raises(RequestRefused, match="layout"):
        check_client(merged.state, before, "n")  # it changed since the request was looked at
    CALLER_FEATURES.reset(token)
