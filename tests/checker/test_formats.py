"""The two text formats, rule by rule."""

from __future__ import annotations

import pytest

from tests.checker import jepsen, kv
from tests.checker.history import UNKNOWN, HistoryError, Operation
from tests.checker.models import Append, CompareAndSet, Get, Put, Read, Write


def log(*events: str) -> list[Operation]:
    return jepsen.parse(f"INFO  jepsen.util - {event}\n" for event in events)


def test_a_jepsen_log_gives_each_kind_of_end_its_meaning() -> None:
    assert log(
        "0 :invoke :read nil",
        "0 :ok :read 3",
        "1\t:invoke\t:write\t4",
        "1\t:ok\t:write\t4",
        "2 :invoke :cas [1 2]",
        "2 :fail :cas [1 2]",
        "3 :invoke :cas [nil 2]",
        "3 :ok :cas [nil 2]",
    ) == [
        Operation(0, Read(), 3, 1, 2),
        Operation(1, Write(4), True, 3, 4),
        Operation(2, CompareAndSet(1, 2), False, 5, 6),
        Operation(3, CompareAndSet(None, 2), True, 7, 8),
    ]


def test_what_timed_out_has_no_return_and_a_read_no_meaning() -> None:
    assert log(
        "0 :invoke :read nil",
        "0 :fail :read :timed-out",
        "1 :invoke :write 4",
        "1 :info :write :timed-out",
        "2 :invoke :cas [1 2]",
        "2 :info :cas :timed-out",
        "3 :invoke :cas [5 6]",
        "4 :invoke :read nil",
        "4 :info :read :timed-out",
    ) == [
        Operation(1, Write(4), UNKNOWN, 3, None),
        Operation(2, CompareAndSet(1, 2), UNKNOWN, 5, None),
        Operation(3, CompareAndSet(5, 6), UNKNOWN, 7, None),
    ]


def test_lines_of_other_shapes_are_ignored() -> None:
    lines = [
        "",
        "INFO  jepsen.core - Worker 1 starting",
        "INFO  jepsen.util - :nemesis :info :start nil",
        "WARN  jepsen.util - 0 :invoke :read nil",
        "INFO  jepsen.util - 0 :invoke :read nil\r\n",
        "INFO  jepsen.util - 0 :ok :read nil",
    ]
    assert jepsen.parse(lines) == [Operation(0, Read(), None, 5, 6)]


@pytest.mark.parametrize("event", ["0 :ok :read 1", "0 :invoke :write x", "0 :invoke :cas 1"])
def test_a_log_without_sense_is_refused_with_its_line(event: str) -> None:
    with pytest.raises(HistoryError, match="line 1: "):
        log(event)


def test_a_history_of_texts_is_read() -> None:
    lines = [
        '{:process 0, :type :invoke, :f :put, :key "a", :value "x \\"1\\" \\\\ y"}',
        '{:process 1, :type :invoke, :f :get, :key "a", :value nil}',
        '{:process 0, :type :ok, :f :put, :key "a", :value "x \\"1\\" \\\\ y"}',
        '{:process 1, :type :ok, :f :get, :key "a", :value "x \\"1\\" \\\\ y"}',
        '{:process 2, :type :invoke, :f :append, :key "b", :value ""}',
    ]
    assert kv.parse(lines) == [
        Operation(0, Put("a", 'x "1" \\ y'), None, 1, 3),
        Operation(1, Get("a"), 'x "1" \\ y', 2, 4),
        Operation(2, Append("b", ""), UNKNOWN, 5, None),
    ]
