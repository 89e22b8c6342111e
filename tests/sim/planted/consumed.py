"""Bugs of consume-transform-publish, one at a time: in the library, in the control plane, in the engine.

Each is looked for in seeds that have little but moments of some kinds (`tests/sim/faults/moments.py`).
`python -m tests.sim.planted.consumed`.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import pytest
from msgspec.structs import replace

from ringfence.consumer.consuming import Consuming
from ringfence.consumer.gate import Gate
from ringfence.consumer.giving import Giving
from ringfence.control.model.scopes import CommitScope
from ringfence.control.runtime.transactions import consumed_positions
from ringfence.control.runtime.transactions.consumed_positions import ConsumedPositions
from ringfence.control.runtime.transactions.publish_watch import PublishWatch
from ringfence.control.runtime.transactions.seen_claims import SeenClaims, gates_of, with_epochs
from ringfence.control.state_machines.metadata import consumed_ranges
from ringfence.scopes import Scopes
from ringfence.send.restage import Restager
from tests.sim.checks.violation import ViolationError
from tests.sim.consumed import busy, run_seed
from tests.sim.planted import seeds as by_seeds

Patch = pytest.MonkeyPatch

# ---- the library -----------------------------------------------------------------------------------------


def _goes_on_after_an_abort(patch: Patch) -> None:
    """What an aborted block was given is not given again."""
    patch.setattr(Gate, "rewind", lambda _: 0)


def _gives_while_unknown(patch: Patch) -> None:
    """PB26: rows are given while a COMMIT may be decided, and come again at an abort."""

    def uncertain(self: Any) -> None:
        self.aborted()

    patch.setattr("ringfence.consumer.taking.Taking.uncertain", uncertain)


def _settles_nothing(patch: Patch) -> None:
    """A COMMIT that took effect moves no cursor."""
    patch.setattr(Consuming, "committed", lambda self, _: self.aborted())


def _acknowledged_when_given(patch: Patch) -> None:
    """Rows are settled when the application gets them."""
    give = Giving.give

    def gave(self: Giving, *given: Any, **how: Any) -> Any:
        place = give(self, *given, **how)
        if place is not None:
            self.acknowledge(place)
        return place

    patch.setattr(Giving, "give", gave)


def _already_is_a_failure(patch: Patch) -> None:
    """PB28: a COMMIT that an earlier try has decided counts as one of another."""
    commit = Scopes._commit

    def refused(self: Scopes, *given: Any, **how: Any) -> Any:
        told = commit(self, *given, **how)
        is_new = not told.own or self_is_new[0]
        return told if is_new else replace(told, own=False)

    put = Scopes._put
    self_is_new = [True]

    def observed(self: Scopes, *given: Any) -> Any:
        answer = put(self, *given)
        self_is_new[0] = not len(answer.body)
        return answer

    patch.setattr(Scopes, "_put", observed)
    patch.setattr(Scopes, "_commit", refused)


def _first_token_is_dropped(patch: Patch) -> None:
    """PB25: staging again leaves the first token out, which is that of the claims."""
    moved = Restager.moved

    def planted(self: Restager, *given: Any) -> Any:
        found = moved(self, *given)
        return replace(found, tokens=found.tokens[1:])

    patch.setattr(Restager, "moved", planted)


# ---- the control plane -----------------------------------------------------------------------------------


def _claims_are_not_asked_for(patch: Patch) -> None:
    """No owner is asked for the claims: the entry names the owners of now (CT6)."""

    async def verify(self: SeenClaims, command: CommitScope) -> CommitScope:
        consumed: Any = command.consumed
        if not consumed:
            return command
        asked = gates_of(self._proposer.state, consumed)
        return with_epochs(command, consumed, {one.range.partition: one.assignment.epoch for one in asked})

    patch.setattr(SeenClaims, "verify", verify)


def _owner_epochs_are_not_compared(patch: Patch) -> None:
    """The entry does not look whether owners are those that were asked (CT5)."""
    patch.setattr(consumed_ranges, "owners_fault", lambda *_: None)


def _incarnation_is_not_compared(patch: Patch) -> None:
    """A COMMIT of before a seek is decided after it; its positions are never written (CT5)."""
    patch.setattr(consumed_ranges, "incarnation_fault", lambda *_: None)


def _positions_are_not_waited_for(patch: Patch) -> None:
    """PB27: a COMMIT is answered before it has taken effect."""

    async def published(*_: Any) -> None:
        """Nothing is waited for."""

    patch.setattr(PublishWatch, "until_published", published)


def _confirmed_unwritten(patch: Patch) -> None:
    """Positions are confirmed without being written (CT7)."""

    async def write(*_: Any) -> bool:
        return True

    patch.setattr(ConsumedPositions, "_write", write)


def _positions_before_rows(patch: Patch) -> None:
    """Positions are due before the rows of their commit are published (CT4); the engine is told so, too."""
    due, items = consumed_ranges.due_positions, consumed_positions.position_items

    def without_rows(scope: Any) -> Any:
        return replace(scope, pending=tuple(replace(one, parts=()) for one in scope.pending))

    def at_once(state: Any, here: Any = None) -> Any:
        scopes = {number: without_rows(scope) for number, scope in state.scopes.items()}
        return due(replace(state, scopes=scopes), here)

    patch.setattr(consumed_positions, "due_positions", at_once)
    patch.setattr(
        "ringfence.control.runtime.transactions.requests.position_items",
        lambda scope: items(without_rows(scope)),
    )


BUGS: Final[dict[str, Callable[[Patch], None]]] = {
    "goes_on_after_an_abort": _goes_on_after_an_abort,
    "gives_while_unknown": _gives_while_unknown,
    "settles_nothing": _settles_nothing,
    "consumed_acknowledged_when_given": _acknowledged_when_given,
    "already_is_a_failure": _already_is_a_failure,
    "first_token_is_dropped": _first_token_is_dropped,
    "claims_are_not_asked_for": _claims_are_not_asked_for,
    "owner_epochs_are_not_compared": _owner_epochs_are_not_compared,
    "incarnation_is_not_compared": _incarnation_is_not_compared,
    "positions_are_not_waited_for": _positions_are_not_waited_for,
    "confirmed_unwritten": _confirmed_unwritten,
    "positions_before_rows": _positions_before_rows,
}
"""Of the library and of the control plane; others are the engine's."""


class Shown(NamedTuple):
    """Moments and a seed that showed the bug when it was last tried. `rule` is what broke."""

    kinds: tuple[str, ...]
    seed: int
    rule: str
    members: int = 3


KILLS: Final = ("claimed kill", "claimed pause", "claimed takeover", "decided kill")
OWNERS: Final = ("claimed gate_owner", "claimed stand_still", "claimed move", "decided gate_owner")
LOST: Final = ("claimed hang_up", "decided hang_up", "claimed stand_still", "decided stand_still")
OUTPUT: Final = ("decided output_owner", "decided kill", "claimed split_output", "claimed pause")
SEEKS: Final = ("claimed seek", "claimed pause")

SHOWN_BY: Final[dict[str, Shown]] = {
    # the library
    "goes_on_after_an_abort": Shown(KILLS, 3, "CH11 gap"),
    "gives_while_unknown": Shown(("seen cut",), 4, "CH11 settled by none"),
    "settles_nothing": Shown(KILLS, 1, "I13"),
    "consumed_acknowledged_when_given": Shown(KILLS, 1, "CH11 settled by none"),
    "already_is_a_failure": Shown(LOST, 1, "I13"),
    "first_token_is_dropped": Shown(("claimed split_output",), 1, "staged, then lost"),
    # the control plane
    "claims_are_not_asked_for": Shown(("claimed late_commit",), 2, "I13", members=1),
    "owner_epochs_are_not_compared": Shown(("seen cut",), 4, "CT5"),
    "incarnation_is_not_compared": Shown(SEEKS, 1, "CT5"),
    "positions_are_not_waited_for": Shown(KILLS, 1, "acknowledged commit"),
    "confirmed_unwritten": Shown(OWNERS, 2, "I13"),
    "positions_before_rows": Shown(OUTPUT, 1, "CT4"),
    # the engine
    "dropped_by_time": Shown(("claimed mute",), 1, "I13", members=1),
    "decided_is_free": Shown(("decided output_away",), 4, "cohort back", members=1),
}

MORE: Final = 12
"""Seeds that are tried where the known one shows nothing: a change of what runs may change it."""


def seeds_of(name: str) -> list[int]:
    """The known seed first, then others."""
    return by_seeds.seeds_of(SHOWN_BY[name].seed, MORE)


def find(
    name: str, kinds: Sequence[str], seeds: Sequence[int], members: int = 3
) -> tuple[int, ViolationError | None]:
    """The first of these seeds that shows the bug, and what broke."""
    return by_seeds.first_shown(name, BUGS, (busy(seed, kinds, members) for seed in seeds), run_seed)


def main() -> None:
    """A table of bugs with the first seed that shows each."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim.planted.consumed", description=main.__doc__)
    parser.add_argument("names", nargs="*", help="bugs; by default all that are known to be found")
    parser.add_argument("--kinds", nargs="*", help="of moments; by default those of the bug")
    parser.add_argument("--members", type=int, default=3, help="of a bug that has no line yet")
    parser.add_argument("--seeds", type=int, default=20, help="how many are tried for each, from 1 on")
    given = parser.parse_args()
    print("| planted bug | seed | named by |\n|---|--:|---|")
    for name in given.names or SHOWN_BY:
        shown = SHOWN_BY.get(name, Shown((), 0, "", given.members))
        kinds = given.kinds or shown.kinds
        seed, broken = find(name, kinds, range(1, given.seeds + 1), shown.members)
        found = f"not up to {seed}" if broken is None else str(seed)
        print(f"| {name} | {found} | {str(broken or '')[:100]} |", flush=True)


if __name__ == "__main__":
    main()
