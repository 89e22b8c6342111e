"""The search for a linearization: Wing and Gong's, with Lowe's memory of what was tried.

Depth-first over (operations taken so far, state). Only an operation invoked before the first return of one
not yet taken may come next. A pair that was reached before is not tried again: its rest is the same. Sources:
Wing and Gong, "Testing and verifying concurrent objects", 1993; Lowe, "Testing for linearizability", 2017.

- **No recursion**: a history of a million operations needs a list, not a stack of calls.
- **A set of operations is two small numbers**, whatever the history's length: all that returned before the
  *frontier* (the first return of an operation not yet taken) are in it; of those open across it, a bit each
  says so. Bits are slots that are used again once their operation has returned.
- **An operation never heard of again** (*lost*) has no return that must be passed. It comes after all others,
  is not taken where it changes nothing, and of several equal ones the first stands for all. What was reached
  with some lost operations is not tried again with more of them: fewer used leave all that others can do.
- **Memory is bounded**: a full memory is emptied. The search stays right, it may only take longer.

A part that needs too many steps is UNDECIDED, never called linearizable or not.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, NamedTuple

from tests.checker.history import HistoryError, Operation
from tests.checker.models import Model

MEMORY_MAX: Final = 1_000_000
"""Remembered pairs: about 300 MB."""
STEPS_MAX: Final = 50_000_000
"""Steps of one part: minutes, not days; every public history needs less than a hundredth."""
ALTERNATIVES_MAX: Final = 256
"""Sets of lost operations remembered for one pair; each new one is compared with all of them."""
STATES_SHOWN: Final = 5


class Verdict(Enum):
    OK = "ok"
    VIOLATION = "violation"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True)
class Outcome:
    """`why` is empty for OK. `steps` counts operations tried."""

    verdict: Verdict
    why: str = ""
    steps: int = 0


def check(
    model: Model, operations: Iterable[Operation], *, steps_max: int = STEPS_MAX, memory_max: int = MEMORY_MAX
) -> Outcome:
    """Judge a history, part by part; the first part that is none ends it.

    Raises:
        HistoryError: an operation returned before it was invoked.
    """
    parts: dict[Hashable, list[Operation]] = {}
    for operation in operations:
        if operation.returned is not None and operation.returned < operation.invoked:
            raise HistoryError(f"{operation} returned before it was invoked")
        parts.setdefault(model.part(operation.call), []).append(operation)
    steps, undecided = 0, None
    for part in parts.values():
        search = _Search(model, part, steps_max, memory_max)
        outcome = search.run()
        steps += outcome.steps
        if outcome.verdict is Verdict.VIOLATION:
            return Outcome(Verdict.VIOLATION, outcome.why, steps)
        undecided = undecided or (outcome if outcome.verdict is Verdict.UNDECIDED else None)
    if undecided is not None:
        return Outcome(Verdict.UNDECIDED, undecided.why, steps)
    return Outcome(Verdict.OK, steps=steps)


class _Place(NamedTuple):
    """Where a search stands: `mask` has taken operations that return later, `lost` the taken lost ones."""

    frontier: int
    mask: int
    lost: int
    state: Hashable


@dataclass(slots=True)
class _Frame:
    """A choice that was made: how to go on with the next one, and how to take it back."""

    choices: Iterator[tuple[int, Hashable]]
    taken: int
    place: _Place


class _Tried:
    """What was reached. It forgets everything when it is full, which costs time and nothing else."""

    def __init__(self, size_max: int) -> None:
        self._known: dict[tuple[int, int, Hashable], list[int]] = {}
        self._size, self._size_max = 0, size_max

    def add(self, place: _Place) -> bool:
        """Whether `place` is new: not reached before with these lost operations or with fewer of them."""
        if self._size >= self._size_max:
            self._known.clear()
            self._size = 0
        key = (place.frontier, place.mask, place.state)
        known = self._known.get(key)
        if known is None:
            self._known[key] = [place.lost]
        elif any(fewer & ~place.lost == 0 for fewer in known):
            return False
        elif len(known) < ALTERNATIVES_MAX:
            known.append(place.lost)
        self._size += 1
        return True


class _Search:
    """One part. Events are nodes of a ring in the order of time, node 0 its head; taken ones are unlinked."""

    def __init__(
        self, model: Model, operations: Sequence[Operation], steps_max: int, memory_max: int
    ) -> None:
        self._model, self._operations = model, operations
        self._steps_max, self._tried = steps_max, _Tried(memory_max)
        events = _events(operations)
        self._slot_bit = _slots(events, operations)
        self._returns = [number for is_return, number in events if is_return]
        count = len(events) + 1
        self._next = [*range(1, count), 0]
        self._previous = [count - 1, *range(count - 1)]
        self._event = [(True, -1), *events]  # the head ends a walk as a return does
        self._call_node, self._return_node = [0] * len(operations), [0] * len(operations)
        for node, (is_return, number) in enumerate(events, start=1):
            (self._return_node if is_return else self._call_node)[number] = node
        self._best, self._best_states = -1, list[Hashable]()

    def run(self) -> Outcome:
        place = _Place(frontier=0, mask=0, lost=0, state=self._model.initial)
        self._tried.add(place)
        self._note(place)
        frames = [_Frame(self._choices(place.state), -1, place)]
        steps = 0
        while frames[-1].place.frontier < len(self._returns):
            frame = frames[-1]
            for number, after in frame.choices:
                steps += 1
                place = self._reached(frame.place, number, after)
                if self._tried.add(place):
                    self._unlink(number)
                    self._note(place)
                    frames.append(_Frame(self._choices(after), number, place))
                    break
            else:
                if frame.taken < 0:
                    return Outcome(Verdict.VIOLATION, self._why(), steps)
                self._link(frame.taken)
                frames.pop()
            if steps > self._steps_max:
                why = f"more than {self._steps_max} steps for {len(self._operations)} operations"
                return Outcome(Verdict.UNDECIDED, why, steps)
        return Outcome(Verdict.OK, steps=steps)

    def _choices(self, state: Hashable) -> Iterator[tuple[int, Hashable]]:
        """Operations that may come next, each with the state it leaves.

        It walks the ring while deeper choices change and restore it: after a restore the ring is as before.
        """
        lost: dict[Any, int] = {}
        node = self._next[0]
        while True:
            is_return, number = self._event[node]
            if is_return:
                break
            operation = self._operations[number]
            if operation.returned is None:
                # With its type: named tuples of two kinds are equal when their fields are.
                lost.setdefault((type(operation.call), operation.call), number)
            else:
                for after in self._model.after(state, operation.call, operation.result):
                    yield number, after
            node = self._next[node]
        for (_, call), number in lost.items():
            for after in self._model.after(state, call, self._operations[number].result):
                if after != state:
                    yield number, after

    def _reached(self, place: _Place, number: int, state: Hashable) -> _Place:
        """The place behind the operation `number`, its frontier behind all returns of what is taken."""
        returns, bits = self._returns, self._slot_bit
        if self._operations[number].returned is None:
            return _Place(place.frontier, place.mask, place.lost | bits[number], state)
        frontier, mask = place.frontier, place.mask | bits[number]
        while frontier < len(returns) and mask & bits[returns[frontier]]:
            mask ^= bits[returns[frontier]]
            frontier += 1
        return _Place(frontier, mask, place.lost, state)

    def _unlink(self, number: int) -> None:
        for node in (self._call_node[number], self._return_node[number]):
            if node:
                self._next[self._previous[node]] = self._next[node]
                self._previous[self._next[node]] = self._previous[node]

    def _link(self, number: int) -> None:
        """Undo the last `_unlink`, in the opposite order."""
        for node in (self._return_node[number], self._call_node[number]):
            if node:
                self._next[self._previous[node]] = node
                self._previous[self._next[node]] = node

    def _note(self, place: _Place) -> None:
        if place.frontier > self._best:
            self._best, self._best_states = place.frontier, []
        if place.frontier == self._best and len(self._best_states) < STATES_SHOWN:
            self._best_states.append(place.state)

    def _why(self) -> str:
        stuck = self._operations[self._returns[self._best]]
        return (
            f"{self._best} of {len(self._returns)} operations with a return are in order at the best; then "
            f"{stuck} fits nowhere, states before it: {self._best_states}"
        )


def _events(operations: Sequence[Operation]) -> list[tuple[bool, int]]:
    """(is a return, operation) in the order of time; at equal times calls come before returns."""
    timed = [(operation.invoked, False, number) for number, operation in enumerate(operations)]
    timed += [
        (operation.returned, True, number)
        for number, operation in enumerate(operations)
        if operation.returned is not None
    ]
    return [(is_return, number) for _, is_return, number in sorted(timed)]


def _slots(events: Sequence[tuple[bool, int]], operations: Sequence[Operation]) -> list[int]:
    """A bit for each operation; two have the same only if one returned before the other was invoked.

    Lost operations have bits of their own, which never meet those of others in one mask.
    """
    bits, free, made, lost = [0] * len(operations), list[int](), 0, 0
    for is_return, number in events:
        if is_return:
            free.append(bits[number])
        elif operations[number].returned is None:
            bits[number] = 1 << lost
            lost += 1
        elif free:
            bits[number] = free.pop()
        else:
            bits[number] = 1 << made
            made += 1
    return bits
