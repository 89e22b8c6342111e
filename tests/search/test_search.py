"""The protocol of changes, exhausted in small worlds; and bugs planted in it, each found.

`pytest -s` prints how many states each world has.
"""

from __future__ import annotations

import pytest

from tests.search.explore import exhaust
from tests.search.planted import FAILOVER, MOVE, PLANTED, REVERSAL, Planted
from tests.search.world import ChangeWorld, Plan

PLANS = {
    "a move, two rows": MOVE,
    "a move, another leader": MOVE._replace(rows=1, leaders=1),
    "a move that is aborted, and a second try": Plan(2, 1, ((1,), (1,)), rows=1, aborts=1),
    "a move, source or target crashes": MOVE._replace(rows=0, crashes=1),
    "a move that is reversed": REVERSAL,
    "a move that is reversed, nodes that lag": REVERSAL._replace(rows=0, lagging=(0, 1)),
    "a reversal that is aborted, and another": Plan(
        2, 1, ((1,), (0,), (0,)), rows=0, lagging=(), keeps=True, aborts=1
    ),
    "a reversal, either node crashes": REVERSAL._replace(rows=0, crashes=1),
    "an owner crashes and starts": FAILOVER._replace(crashes=1),
    "an owner counts as failed": FAILOVER._replace(fails=1),
}


@pytest.mark.parametrize("name", PLANS)
def test_no_state_of_a_change_breaks_an_invariant_and_each_has_an_end(name: str) -> None:
    found = exhaust(ChangeWorld(PLANS[name]))
    print(f"\n{name}: {found}")
    assert found.wrong is None, str(found)
    assert found.ends > 0


@pytest.mark.parametrize("bug", PLANTED, ids=lambda bug: bug.world.__name__)
def test_a_planted_bug_is_found(bug: Planted) -> None:
    found = exhaust(bug.world(bug.plan))
    print(f"\n{bug.world.__name__}: {found}")
    assert found.wrong is not None
    assert found.wrong.startswith(bug.finds), str(found)
