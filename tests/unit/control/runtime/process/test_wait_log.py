"""A wait that goes on says so, and does not fill the log."""

from __future__ import annotations

from structlog.testing import capture_logs

from ringfence.control.runtime.process.wait_log import REASONS_MAX, REPEAT_S, WaitLog


def test_a_reason_is_told_at_once_and_again_after_half_a_minute() -> None:
    now_s = 0.0
    waits = WaitLog(lambda: now_s)
    with capture_logs() as lines:
        for second in range(61):
            now_s = float(second)
            waits.log("waiting to join", "nobody answers at a")
            if second == 10:
                waits.log("waiting to join", "nobody answers at b")
    told = [line["why"][-1] for line in lines]
    assert told == ["a", "b", "a", "a"], "at 0, 10, 30 and 60 s"
    assert REPEAT_S == 30


def test_changing_reasons_are_bounded() -> None:
    waits = WaitLog(lambda: 0.0)
    with capture_logs() as lines:
        for number in range(3 * REASONS_MAX):
            waits.log("waiting", str(number))
    assert len(lines) == 3 * REASONS_MAX
    assert len(waits._logged_s) <= REASONS_MAX
