"""The search against all orders of small histories, on textbook cases, and with faults planted in it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, permutations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.checker import search
from tests.checker.history import UNKNOWN, HistoryError, Operation, Recorder
from tests.checker.models import Append, CompareAndSet, Get, Put, Read, RegisterModel, StringsModel, Write
from tests.checker.search import Verdict, check
from tests.conftest import public_data

REGISTER = RegisterModel()


def linearizable(operations: Sequence[Operation]) -> bool:
    """The definition, word by word: some order of all that returned and of some that did not."""
    lost = [operation for operation in operations if operation.returned is None]
    heard = [operation for operation in operations if operation.returned is not None]
    return any(
        allowed(order)
        for count in range(len(lost) + 1)
        for some in combinations(lost, count)
        for order in permutations([*heard, *some])
    )


def allowed(order: Sequence[Operation]) -> bool:
    for place, operation in enumerate(order):
        for later in order[place + 1 :]:
            if later.returned is not None and later.returned < operation.invoked:
                return False
    states: tuple[Any, ...] = (None,)
    for operation in order:
        states = tuple(
            after for state in states for after in REGISTER.after(state, operation.call, operation.result)
        )
    return bool(states)


@st.composite
def small_histories(draw: st.DrawFn) -> list[Operation]:
    calls = st.one_of(
        st.just(Read()),
        st.builds(Write, st.integers(0, 1), key=st.none()),
        st.builds(CompareAndSet, st.integers(0, 1), st.integers(0, 2), key=st.none()),
    )
    operations = []
    for process in range(draw(st.integers(1, 6))):
        call, invoked = draw(calls), draw(st.integers(0, 9))
        returned = draw(st.one_of(st.none(), st.integers(invoked, 10)))
        results: st.SearchStrategy[Any] = (
            st.sampled_from([None, 0, 1, 2]) if isinstance(call, Read) else st.booleans()
        )
        result = UNKNOWN if returned is None else draw(st.one_of(results, st.just(UNKNOWN)))
        operations.append(Operation(process, call, result, invoked, returned))
    return operations


@settings(max_examples=500, deadline=None)
@given(small_histories(), st.sampled_from([1, 3, 1_000]))
def test_the_search_says_what_the_definition_says(history: list[Operation], memory_max: int) -> None:
    expected = Verdict.OK if linearizable(history) else Verdict.VIOLATION
    outcome = check(REGISTER, history, memory_max=memory_max)
    assert outcome.verdict is expected
    assert bool(outcome.why) == (expected is Verdict.VIOLATION)


def op(call: Any, result: Any, invoked: float, returned: float | None) -> Operation:
    return Operation(0, call, result, invoked, returned)


# What systems get wrong, smallest form of each: (what, history).
WRONG = [
    ("a stale read", [op(Write(1), None, 0, 1), op(Read(), None, 2, 3)]),
    ("a read of what nobody wrote", [op(Write(1), None, 0, 1), op(Read(), 2, 2, 3)]),
    (
        "two that swapped the same",
        [op(Write(1), None, 0, 1), op(CompareAndSet(1, 2), True, 2, 9), op(CompareAndSet(1, 3), True, 2, 9)],
    ),
    ("a read that goes back", [op(Write(1), None, 0, 9), op(Read(), 1, 1, 2), op(Read(), None, 3, 4)]),
    (
        "two readers that see two orders",
        [
            op(Write(1), None, 0, 1),
            op(Write(2), None, 0, 1),
            op(Read(), 1, 2, 3),
            op(Read(), 2, 4, 5),
            op(Read(), 1, 6, 7),
        ],
    ),
    ("a lost write that works before it was sent", [op(Read(), 1, 0, 1), op(Write(1), UNKNOWN, 2, None)]),
    (
        "a lost swap that works twice",
        [
            op(CompareAndSet(None, 1), UNKNOWN, 0, None),
            op(Read(), 1, 1, 2),
            op(Write(None), None, 3, 4),
            op(Read(), 1, 5, 6),
        ],
    ),
]
RIGHT = [
    ("nothing happened", []),
    (
        "concurrent writes in either order",
        [op(Write(1), None, 0, 9), op(Write(2), None, 0, 9), op(Read(), 1, 10, 11)],
    ),
    (
        "a lost write that worked late",
        [op(Write(1), UNKNOWN, 0, None), op(Read(), None, 1, 2), op(Read(), 1, 3, 4)],
    ),
    ("a lost write that never worked", [op(Write(1), UNKNOWN, 0, None), op(Read(), None, 1, 2)]),
    ("touching intervals are concurrent", [op(Write(1), None, 0, 5), op(Read(), None, 5, 6)]),
    ("an answer that was lost", [op(CompareAndSet(None, 1), UNKNOWN, 0, 1), op(Read(), 1, 2, 3)]),
]


@pytest.mark.parametrize(("what", "history"), WRONG)
def test_what_a_system_gets_wrong_is_a_violation(what: str, history: list[Operation]) -> None:
    assert check(REGISTER, history).verdict is Verdict.VIOLATION, what


@pytest.mark.parametrize(("what", "history"), RIGHT)
def test_what_a_system_may_do_is_ok(what: str, history: list[Operation]) -> None:
    assert check(REGISTER, history).verdict is Verdict.OK, what


def test_lost_calls_of_two_kinds_stand_each_for_itself() -> None:
    """A put and an append with the same fields are equal as tuples, and not the same call."""
    lost = [op(Append("k", "x"), UNKNOWN, 0, None), op(Put("k", "x"), UNKNOWN, 0, None)]
    seen = [op(Append("k", "a"), None, 1, 2), op(Get("k"), "ax", 3, 4), op(Get("k"), "x", 5, 6)]
    for first in (lost, lost[::-1]):
        assert check(StringsModel(), [*first, *seen]).verdict is Verdict.OK


def test_a_violation_names_the_operation_that_fits_nowhere() -> None:
    outcome = check(REGISTER, [op(Write(1), None, 0, 1), op(Read(), 7, 2, 3)])
    assert "1 of 2 operations" in outcome.why
    assert "Read(key=None), result=7" in outcome.why


def test_parts_are_checked_each_on_its_own() -> None:
    mixed = [
        op(Write(1, key="a"), None, 0, 1),
        op(Write(2, key="b"), None, 2, 3),
        op(Read(key="a"), 1, 4, 5),
        op(Read(key="b"), 2, 4, 5),
    ]
    assert check(REGISTER, mixed).verdict is Verdict.OK
    assert check(REGISTER, [*mixed, op(Read(key="b"), 1, 6, 7)]).verdict is Verdict.VIOLATION


def test_texts_join_as_strings_do() -> None:
    model, state = StringsModel(), StringsModel.initial
    for call in (Put("k", "ä1"), Append("k", ""), Append("k", "b"), Append("k", "ccc")):
        (state,) = model.after(state, call, None)
    assert model.after(state, Get("k"), "ä1bccc") == (state,)
    for other in ("ä1bcc", "ä1cccb", "ä1bcccc", "", "a1bccc"):
        assert model.after(state, Get("k"), other) == ()


def test_a_recorder_keeps_what_became_of_each_call() -> None:
    recorder = Recorder()
    first, second, third, fourth = (recorder.invoke(n, Write(n), at=n) for n in range(4))
    recorder.returned(second, result=None, at=8)
    recorder.unknown(first)
    recorder.without_effect(third)
    assert recorder.operations() == [
        Operation(0, Write(0), UNKNOWN, 0, None),
        Operation(1, Write(1), None, 1, 8),
        Operation(3, Write(3), UNKNOWN, 3, None),
    ]
    with pytest.raises(HistoryError):
        recorder.returned(fourth, result=None, at=2)


def long_history(count: int, width: int) -> list[Operation]:
    """`width` processes at a time; each operation overlaps its neighbours and works at its invocation."""
    operations, value = [], None
    for number in range(count):
        call = Write(number % 7) if number % 3 else Read()
        operations.append(Operation(number % width, call, value, number, number + width - 0.5))
        value = call.value if isinstance(call, Write) else value
    return operations


def test_a_long_history_needs_neither_a_deep_stack_nor_many_steps() -> None:
    history = long_history(20_000, width=4)
    outcome = check(REGISTER, history)
    assert outcome.verdict is Verdict.OK
    assert outcome.steps < 400_000
    wrong = [*history, op(Read(), 99, 30_000, 30_001)]
    assert check(REGISTER, wrong).verdict is Verdict.VIOLATION


def test_too_many_steps_are_undecided_and_nothing_else() -> None:
    outcome = check(REGISTER, long_history(500, width=3), steps_max=100)
    assert outcome.verdict is Verdict.UNDECIDED
    assert "100 steps" in outcome.why


def beyond_returns(self: Any, state: Any) -> Iterator[tuple[int, Any]]:
    node = self._next[0]
    while node:
        is_return, number = self._event[node]
        if not is_return:
            operation = self._operations[number]
            for after in self._model.after(state, operation.call, operation.result):
                yield number, after
        node = self._next[node]


def without_lost(self: Any, state: Any) -> Iterator[tuple[int, Any]]:
    for number, after in ORIGINAL_CHOICES(self, state):
        if self._operations[number].returned is not None:
            yield number, after


def state_forgotten(self: Any, place: Any) -> bool:
    return ORIGINAL_ADD(self, place._replace(state=None))


def mask_forgotten(self: Any, place: Any) -> bool:
    return ORIGINAL_ADD(self, place._replace(mask=0))


def more_lost_is_as_good(self: Any, place: Any) -> bool:
    return ORIGINAL_ADD(self, place._replace(lost=0))


def link_forgotten(self: Any, number: int) -> None:
    return


ORIGINAL_CHOICES = search._Search._choices
ORIGINAL_ADD = search._Tried.add
PLANTED = [
    ("real time is ignored", search._Search, "_choices", beyond_returns),
    ("lost operations never work", search._Search, "_choices", without_lost),
    ("the memory forgets the state", search._Tried, "add", state_forgotten),
    ("the memory forgets who is taken", search._Tried, "add", mask_forgotten),
    ("the memory forgets which lost ones are spent", search._Tried, "add", more_lost_is_as_good),
    ("a choice is not taken back", search._Search, "_link", link_forgotten),
]


@pytest.mark.parametrize(("what", "owner", "name", "fault"), PLANTED)
def test_a_fault_planted_in_the_search_is_found(
    what: str, owner: Any, name: str, fault: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the same cases that hold the search: the labelled histories and the textbook ones."""
    from tests.checker.test_labels import differing

    monkeypatch.setattr(owner, name, fault)
    textbook = [case for case, history in WRONG if check(REGISTER, history).verdict is not Verdict.VIOLATION]
    textbook += [case for case, history in RIGHT if check(REGISTER, history).verdict is not Verdict.OK]
    assert textbook or differing(public_data("porcupine")), what
