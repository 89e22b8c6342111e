"""Bugs planted into commits that settle what was consumed: the walks find each of them.

Names are those of the design where it has one; bugs of gates stand with the engine's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec import UNSET
from msgspec.structs import replace

from ringfence.control.model.results import Done
from ringfence.control.state_machines.metadata import consumed_ranges, scopes
from tests.fakes.consumed_log import walk

# Walks that a bug may take; most need one or two.
WALKS_MAX = 40
Patch = pytest.MonkeyPatch


def unchecked(name: str) -> Callable[[Patch], None]:
    """The check `name` passes everything."""

    def plant(patch: Patch) -> None:
        patch.setattr(consumed_ranges, name, lambda *_: None)

    return plant


def owner_of_source(patch: Patch) -> None:
    """The epoch is compared with that of the sealed partition's own log, not with its heir's."""
    patch.setattr(consumed_ranges, "heir", lambda _, partition: partition)


def rows_alone_are_pending(patch: Patch) -> None:
    """A commit without rows does not wait for its positions."""
    commit = scopes.commit

    def planted(state: Any, command: Any, index: Any) -> Any:
        after, result = commit(state, command, index)
        if command.parts or after is state:
            return after, result
        scope = after.scopes[command.scope]
        pending = tuple(one for one in scope.pending if one.epoch != command.epoch)
        left = {**after.scopes, command.scope: replace(scope, pending=pending)}
        return replace(after, scopes=left), result

    patch.setattr(scopes, "commit", planted)


def rows_confirm_positions(patch: Patch) -> None:
    """`confirmed_early`: the last confirmation of rows ends the commit, positions or not."""
    confirm = scopes.confirm

    def planted(state: Any, command: Any) -> Any:
        after, _ = confirm(state, command)
        scope = after.scopes[command.scope]
        pending = tuple(one for one in scope.pending if one.parts)
        return replace(after, scopes={**after.scopes, command.scope: replace(scope, pending=pending)}), Done()

    patch.setattr(scopes, "confirm", planted)


def positions_confirm_rows(patch: Patch) -> None:
    """The last confirmation of positions ends the commit, rows or not."""
    confirm = scopes.confirm

    def planted(state: Any, command: Any) -> Any:
        after, _ = confirm(state, command)
        scope = after.scopes[command.scope]
        pending = tuple(one for one in scope.pending if one.consumed is not UNSET or command.parts)
        return replace(after, scopes={**after.scopes, command.scope: replace(scope, pending=pending)}), Done()

    patch.setattr(scopes, "confirm", planted)


def any_position_confirms_all(patch: Patch) -> None:
    """`some_gates`: one confirmed position confirms those of all gates."""
    patch.setattr(consumed_ranges, "without", lambda consumed, done: UNSET if done else consumed)


def positions_stay(patch: Patch) -> None:
    """A confirmed position stays pending."""
    patch.setattr(consumed_ranges, "without", lambda consumed, _: consumed)


def positions_first(patch: Patch) -> None:
    """Positions are due before the rows of their commit are published."""
    due = consumed_ranges.due_positions

    def planted(state: Any, here: Any = None) -> Any:
        bare = {
            number: replace(scope, pending=tuple(replace(one, parts=()) for one in scope.pending))
            for number, scope in state.scopes.items()
        }
        return due(replace(state, scopes=bare), here)

    patch.setattr(consumed_ranges, "due_positions", planted)


def seek_is_not_seen(patch: Patch) -> None:
    """Positions of an incarnation that is over are still written."""
    gates = consumed_ranges._gates_of

    def planted(state: Any, consumed: Any) -> Any:
        cohort = state.cohorts.get(consumed.cohort)
        now = consumed.incarnation if cohort is None else cohort.incarnation
        return gates(state, replace(consumed, incarnation=now))

    patch.setattr(consumed_ranges, "_gates_of", planted)


PLANTED: dict[str, Callable[[Patch], None]] = {
    "scope_unchecked": unchecked("scope_fault"),
    "session_unchecked": unchecked("session_fault"),
    "seek_unchecked": unchecked("incarnation_fault"),
    "any_owner": unchecked("owners_fault"),
    "owner_of_source": owner_of_source,
    "rows_alone_are_pending": rows_alone_are_pending,
    "rows_confirm_positions": rows_confirm_positions,
    "positions_confirm_rows": positions_confirm_rows,
    "any_position_confirms_all": any_position_confirms_all,
    "positions_stay": positions_stay,
    "positions_first": positions_first,
    "seek_is_not_seen": seek_is_not_seen,
    "driver_unchecked": lambda patch: patch.setattr(scopes, "check_driver", lambda *_: None),
}


@pytest.mark.parametrize("bug", PLANTED)
def test_the_walks_find_each_planted_bug(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    PLANTED[bug](monkeypatch)
    for seed in range(WALKS_MAX):
        try:
            walk(seed)
        except AssertionError:
            return
    pytest.fail(f"{bug} was not found in {WALKS_MAX} walks")
