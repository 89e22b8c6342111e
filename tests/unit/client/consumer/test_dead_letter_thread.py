"""The thread of `dead_letter=`: it exports, warns with the reason, goes on, and ends with its consumer."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from ringfence.consumer.dead_letter_thread import DeadLetterThread
from ringfence.consumer.exporter import Exporter
from ringfence.consumer.queue_calls import RowsParked
from ringfence.native.errors import ClosedError, DiskFullError, NotFoundError
from ringfence.native.wire import Code
from tests.fakes.parked_node import ParkedNode

LONG_S = 10.0


@pytest.fixture
def node() -> ParkedNode:
    """It parked two ranges long ago."""
    return ParkedNode((1, 7), (2, 8))


def started(node: Any) -> DeadLetterThread:
    thread = DeadLetterThread(Exporter(node, node, "t", "c", "u", timeout_s=1.0), "u")
    thread.start()
    return thread


def until(condition: Any) -> None:
    end = time.monotonic() + LONG_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_it_exports_at_the_start_what_is_parked_for_long(node: ParkedNode) -> None:
    thread = started(node)
    until(lambda: not node.parked)
    thread.stop()
    assert [row["id"] for row in node.copied] == [70, 71, 80, 81]
    assert not any(one.name == "ringfence-dead-letter" for one in threading.enumerate())


def test_what_its_consumer_parks_it_exports_at_once(
    node: ParkedNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ringfence.consumer.dead_letters.AGE_MS", 1 << 60)
    thread = started(node)
    until(lambda: "list" in node.asked)
    assert len(node.parked) == 2
    thread.parked(RowsParked(2, 80, 81))
    until(lambda: [*node.parked] == [(1, 7)])
    thread.stop()


def test_a_failure_is_warned_of_with_its_reason_and_tried_again(
    node: ParkedNode, caplog: pytest.LogCaptureFixture
) -> None:
    node.errors["stage"] = [DiskFullError("no space on node 3")]
    thread = started(node)
    until(lambda: not node.parked)
    thread.stop()
    assert len(node.copied) == 4
    warnings = [one.message for one in caplog.records if "cannot be exported to u" in one.message]
    assert len(warnings) == 1
    assert "range 1:7" in warnings[0]
    assert "no space on node 3" in warnings[0]


def test_without_a_cohort_yet_it_waits_without_a_warning(
    node: ParkedNode, caplog: pytest.LogCaptureFixture
) -> None:
    node.errors["describe"] = [NotFoundError("no cohort", code=Code.UNKNOWN_COHORT)]
    thread = started(node)
    until(lambda: not node.parked)
    thread.stop()
    assert caplog.records == []


@pytest.mark.parametrize("error", [ClosedError("the client is closed"), ValueError("a defect")])
def test_it_ends_with_the_client_and_a_defect_does_not_end_it(
    node: ParkedNode, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    node.errors["list"] = [error]
    thread = started(node)
    if isinstance(error, ClosedError):
        until(lambda: not any(one.name == "ringfence-dead-letter" for one in threading.enumerate()))
        assert len(node.parked) == 2
    else:
        until(lambda: not node.parked)
        assert any("defect" in one.message for one in caplog.records)
    thread.stop()
    thread.stop()
