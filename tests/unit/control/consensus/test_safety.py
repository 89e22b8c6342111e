"""The cluster's checker itself: what it must name, and what it must let pass."""

from __future__ import annotations

import pytest

from ringfence.control.consensus.safety import Safety
from tests.consensus.lab import Lab


def led(node: int, *terms: int, term: int, commit: int = 0) -> Lab:
    """A node that leads the term behind `term`, with a log of these terms and its own first entry."""
    lab = Lab(node, terms=terms, term=term, commit=commit)
    lab.lead()
    assert lab.core.term == term + 1
    return lab


def committed_in_term_5() -> Safety:
    safety = Safety()
    leader = led(2, 1, 1, term=4)
    safety.check(leader.core, {})
    leader.acknowledge(1, 3)
    assert leader.core.log.commit == 3
    safety.check(leader.core, {1: leader.disk, 2: leader.disk})
    safety.applied(2, leader.applied)
    return safety


def test_a_later_leader_without_a_committed_entry_is_named() -> None:
    with pytest.raises(AssertionError, match="leader completeness"):
        committed_in_term_5().check(led(3, 1, 1, term=5).core, {})


def test_a_leader_of_an_older_term_needs_nothing_of_a_later_one() -> None:
    # Found by a simulated cluster: who stood still found the votes of term 4 when term 5 had committed.
    committed_in_term_5().check(led(3, 1, 1, term=3).core, {})


def test_what_was_committed_before_anybody_looked_is_needed_too() -> None:
    safety = Safety()
    safety.applied(1, Lab(1, terms=(1, 1), commit=2).disk.entries(1, 3, 1 << 20))
    with pytest.raises(AssertionError, match="leader completeness"):
        safety.check(led(3, 1, term=5).core, {})
