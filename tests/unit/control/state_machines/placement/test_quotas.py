"""Shares by weight, as whole numbers."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringfence.control.state_machines.placement.quotas import portions


@settings(max_examples=300, deadline=None)
@given(
    st.integers(0, 200),
    st.lists(st.tuples(st.integers(1, 9), st.integers(0, 20), st.integers(0, 60)), min_size=1, max_size=7),
)
def test_portions_add_up_keep_their_bounds_and_are_within_one_of_the_share(
    total: int, takers_: list[tuple[int, int, int]]
) -> None:
    weights = {number: weight for number, (weight, _, _) in enumerate(takers_)}
    least = {number: low for number, (_, low, _) in enumerate(takers_)}
    most = {number: low + more for number, (_, low, more) in enumerate(takers_)}
    if not sum(least.values()) <= total <= sum(most.values()):
        with pytest.raises(ValueError, match="exceeds the bounds"):
            portions(total, weights, prefer=lambda key, _: key, least=least, most=most)
        return
    portion = portions(total, weights, prefer=lambda key, _: key, least=least, most=most)
    assert sum(portion.values()) == total
    assert all(least[key] <= portion[key] <= most[key] for key in weights)
    free = [key for key in weights if least[key] < portion[key] < most[key]]
    for one in free:
        for other in free:
            assert (portion[one] - 1) * weights[other] < (portion[other] + 1) * weights[one]
