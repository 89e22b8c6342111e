"""Delays between tries, and deadlines on the wire."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ringfence.common.retry import Backoff, deadline_ms


@given(st.integers(1, 1000), st.floats(0, 0.999), st.floats(0, 5))
def test_a_delay_is_between_half_and_whole_and_never_below_what_the_node_asked(
    tries: int, jitter: float, asked: float
) -> None:
    delay = Backoff(first_s=0.02, cap_s=2.0).delay_s(tries, jitter, asked)
    whole = min(2.0, 0.02 * 2 ** min(tries - 1, 30))
    assert delay >= asked
    assert whole / 2 <= delay <= max(whole, asked)


def test_a_deadline_on_the_wire_is_never_zero_and_never_above_its_limit() -> None:
    assert deadline_ms(10.0, 9.5) == 500
    assert deadline_ms(10.0, 11.0) == 1
    assert deadline_ms(float("inf"), 0.0) == 600_000
