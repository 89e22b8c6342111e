"""Faults of consume-transform-publish are found by seeds with transformers, by what they break."""

from __future__ import annotations

from typing import Final

import pytest

from tests.sim.planted import native
from tests.sim.planted.consumed import BUGS, SHOWN_BY, find, seeds_of

OF_ENGINE: Final = [name for name in SHOWN_BY if name not in BUGS]
SHORT: Final = (
    "consumed_acknowledged_when_given",
    "first_token_is_dropped",
    "positions_are_not_waited_for",
    "positions_before_rows",
)
"""One of each kind: of the library, of restaging, of the answer, of the order."""
LONG: Final = [name for name in SHOWN_BY if name not in SHORT]


def _is_found(name: str) -> None:
    kinds, known, rule, members = SHOWN_BY[name]
    seed, broken = find(name, kinds, seeds_of(name), members)
    assert broken is not None, f"{name} is not shown by seeds up to {seed}"
    assert seed != known or broken.invariant.startswith(rule), broken


def test_every_bug_is_looked_for() -> None:
    assert SHOWN_BY.keys() >= BUGS.keys()


@pytest.mark.parametrize("name", SHORT)
def test_a_fault_of_transactions_with_a_consumer_is_found(name: str) -> None:
    _is_found(name)


def test_the_engine_has_each_of_them() -> None:
    assert set(OF_ENGINE) <= set(native.load().plantable_cohorts())


@pytest.mark.long("the four of SHORT: of the library, of restaging, of the answer, of the order")
@pytest.mark.parametrize("name", LONG)
def test_any_other_fault_of_transactions_with_a_consumer_is_found(name: str) -> None:
    _is_found(name)
