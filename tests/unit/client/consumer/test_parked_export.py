"""Exports of parked ranges: each is copied once, also if exporters are killed; with planted faults."""

from __future__ import annotations

import pytest

from ringfence.consumer.parked_export import (
    TRIES_MAX,
    BeginScope,
    Call,
    Commit,
    CommitAnswer,
    DiscardRows,
    Ending,
    Event,
    Export,
    Failed,
    Fenced,
    Mark,
    Marked,
    RowsDiscarded,
    RowsStaged,
    ScopeBegun,
    StageRows,
    Take,
    TakeAnswer,
    scope_of,
)
from ringfence.native.wire import SCOPE_EPOCH_MAX
from tests.fakes.parked_world import ParkedWorld, walk, walk_in

NAME = scope_of(3, 7, 1 << 20)
SCOPE = 5
SEEDS = range(400)
STEPS = 6


def run(export: Export, *events: Event) -> list[Call | None]:
    """The calls of an export to which these events come."""
    calls: list[Call | None] = [export.begin()]
    for event in events:
        call = calls[-1]
        assert call is not None, "it goes on"
        calls.append(export.event(call, event))
    return calls


def test_the_owner_knows_of_the_export_before_the_copy_and_hears_of_it_after() -> None:
    export = Export(NAME)
    events = (ScopeBegun(SCOPE, 0, 2), RowsStaged(), TakeAnswer.TAKEN, CommitAnswer.COMMITTED, Marked())
    assert run(export, *events) == [
        BeginScope("parked/3/7/1048576"),
        StageRows(3),
        Take(SCOPE, force=False),
        Commit(3),
        Mark(SCOPE),
        None,
    ]
    assert export.ending is Ending.EXPORTED


def test_a_copy_of_before_is_only_marked() -> None:
    export = Export(NAME, known_scope=4)
    assert run(export, ScopeBegun(SCOPE, 1, 1), Marked())[1:] == [Mark(SCOPE), None]
    assert export.ending is Ending.MARKED


def test_an_export_that_an_operator_has_ended_is_not_begun_again() -> None:
    export = Export(NAME)
    assert run(export, ScopeBegun(SCOPE, 0, SCOPE_EPOCH_MAX))[-1] is None
    assert export.ending is Ending.CLOSED


def test_another_scope_than_the_owner_knows_copies_nothing_unless_again_is_said() -> None:
    export = Export(NAME, known_scope=4)
    assert run(export, ScopeBegun(SCOPE, 0, 0))[-1] is None
    assert export.ending is Ending.NOT_KNOWN
    export = Export(NAME, known_scope=4, again=True)
    assert run(export, ScopeBegun(SCOPE, 0, 0), RowsStaged())[-1] == Take(SCOPE, force=True)


@pytest.mark.parametrize(
    ("answer", "ending"),
    [(TakeAnswer.NOT_PARKED, Ending.NOT_PARKED), (TakeAnswer.NOT_KNOWN, Ending.NOT_KNOWN)],
)
def test_rows_that_the_owner_does_not_let_go_are_discarded(answer: TakeAnswer, ending: Ending) -> None:
    export = Export(NAME)
    calls = run(export, ScopeBegun(SCOPE, 0, 0), RowsStaged(), answer, RowsDiscarded())
    assert calls[3:] == [DiscardRows(1), None]
    assert export.ending is ending


def test_who_is_fenced_leaves_the_range_to_the_other() -> None:
    for events in ((Fenced(),), (RowsStaged(), TakeAnswer.TAKEN, CommitAnswer.FENCED)):
        export = Export(NAME)
        assert run(export, ScopeBegun(SCOPE, 0, 0), *events)[-1] is None
        assert export.ending is Ending.ELSEWHERE


def test_after_a_commit_without_an_answer_the_scope_tells_and_it_is_asked_a_few_times_only() -> None:
    export = Export(NAME)
    events = (ScopeBegun(SCOPE, 0, 0), RowsStaged(), TakeAnswer.TAKEN, CommitAnswer.NOT_KNOWN)
    calls = run(export, *events, ScopeBegun(SCOPE, 1, 1), Marked())
    assert calls[4:] == [BeginScope(NAME), Mark(SCOPE), None]
    export = Export(NAME)
    assert run(export, *(events * TRIES_MAX))[-1] is None
    assert export.ending is Ending.NOT_KNOWN


def test_a_refusal_ends_the_export_and_discards_what_is_staged() -> None:
    error = RuntimeError("the disk is full")
    export = Export(NAME)
    calls = run(export, ScopeBegun(SCOPE, 0, 0), Failed(error), RowsDiscarded())
    assert calls[2:] == [DiscardRows(1), None]
    assert (export.ending, export.error) == (Ending.FAILED, error)
    export = Export(NAME)
    assert run(export, Failed(error))[-1] is None
    assert export.error is error


@pytest.mark.parametrize("seed", SEEDS)
def test_each_range_is_copied_once_and_never_delivered_beside_its_copy(seed: int) -> None:
    assert walk(seed) == []


@pytest.mark.parametrize("before_effect", [True, False])
@pytest.mark.parametrize("killed_at", range(STEPS))
def test_an_exporter_that_is_killed_at_a_step_is_followed_by_one_that_ends_it(
    killed_at: int, before_effect: bool
) -> None:
    world = ParkedWorld(0)
    world.start()
    first = world.exporters[0]
    for _ in range(killed_at):
        if first.call is not None:
            world.carry_out(0)
            first.hear()
    if first.call is not None and not before_effect:
        world.carry_out(0)
    first.is_alive = False
    world.sent.clear()
    world.at_the_end()
    assert world.faults == []
    assert (world.state, world.copies) == ("exported", 1)


@pytest.mark.parametrize("seed", range(50))
def test_two_exporters_at_once_make_one_copy(seed: int) -> None:
    world = ParkedWorld(seed)
    world.start()
    world.start()
    while world.step():
        pass
    world.at_the_end()
    assert world.faults == []
    assert (world.state, world.copies) == ("exported", 1)


# ---- planted faults -----------------------------------------------------------------------------------


class MarksBeforeCommit(Export):
    """It tells the owner that the range is exported, then copies."""

    def _taken(self, answer: TakeAnswer) -> Call | None:
        call = super()._taken(answer)
        return Mark(self.scope) if isinstance(call, Commit) else call

    def event(self, call: Call, event: Event) -> Call | None:
        if isinstance(call, Mark) and isinstance(event, Marked) and self.is_staged:
            return Commit(self.epoch)
        if isinstance(call, Commit) and event is CommitAnswer.COMMITTED:
            return self._end(Ending.EXPORTED)
        return super().event(call, event)


class CommitsBeforeTheOwnerKnows(Export):
    """It copies, then tells the owner that the export begins."""

    def event(self, call: Call, event: Event) -> Call | None:
        if isinstance(call, StageRows) and isinstance(event, RowsStaged):
            return Commit(self.epoch)
        if isinstance(call, Commit) and event is CommitAnswer.COMMITTED:
            return Take(self.scope, force=self.again)
        if isinstance(call, Take) and event is TakeAnswer.TAKEN:
            return Mark(self.scope)
        return super().event(call, event)


class ScopeOfItsOwn(ParkedWorld):
    """Each exporter has a scope; the last one says `again`, as it is told to."""

    def name_of(self, exporter: int) -> str:
        return f"{super().name_of(exporter)}/{exporter}"


def test_a_mark_before_the_commit_is_found() -> None:
    found = [fault for seed in SEEDS for fault in walk(seed, MarksBeforeCommit, checks_commit=False)]
    assert any("exported, with 0 copies" in fault for fault in found), found[:5]
    assert any(walk(seed, MarksBeforeCommit) for seed in SEEDS), "where owners check it, nothing is exported"


def test_a_commit_before_the_owner_knows_is_found() -> None:
    found = [fault for seed in SEEDS for fault in walk(seed, CommitsBeforeTheOwnerKnows)]
    assert any("its copy is out" in fault or "their copy is out" in fault for fault in found), found[:5]


def test_a_scope_for_each_exporter_is_found() -> None:
    found = [fault for seed in SEEDS for fault in walk_in(ScopeOfItsOwn(seed))]
    assert any("stays exporting" in fault for fault in found), found[:5]
