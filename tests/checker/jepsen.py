"""Jepsen's log of a register: `INFO  jepsen.util - 3 :invoke :cas [1 2]`. Other lines are no events.

A read that failed or timed out has no effect and told nothing; a write or compare-and-set without a definite
return may take effect later or never. `:fail :cas` is a result: the value was another. `:fail :write` did not
happen. The order of lines is real time.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

from tests.checker.history import HistoryError, Operation, Recorder
from tests.checker.models import CompareAndSet, Read, Write

EVENT: Final = re.compile(
    r"^INFO\s+jepsen\.util\s+-\s+(?P<process>\d+)\s+:(?P<type>invoke|ok|fail|info)\s+"
    r":(?P<what>read|write|cas)\s+(?P<value>.*\S)\s*$"
)
_PAIR: Final = re.compile(r"\[\s*(-?\d+|nil)\s+(-?\d+|nil)\s*\]")


def parse(lines: Iterable[str]) -> list[Operation]:
    """The operations of a log, for `RegisterModel`. HistoryError names the line that makes no sense."""
    recorder = Recorder()
    open_calls: dict[int, tuple[int, Read | Write | CompareAndSet]] = {}
    for at, line in enumerate(lines, start=1):
        event = EVENT.match(line)
        if event is None:
            continue
        process, what, value = int(event["process"]), event["what"], event["value"]
        if event["type"] == "invoke":
            # An open call of the same process stays open for ever: its return was never logged.
            call = _call(what, value, at)
            open_calls[process] = (recorder.invoke(process, call, at), call)
            continue
        if process not in open_calls:
            raise HistoryError(f"line {at}: process {process} returns without a call: {line.strip()[:120]}")
        ticket, call = open_calls.pop(process)
        _end(recorder, ticket, call, event["type"], value, at)
    return recorder.operations()


def _end(recorder: Recorder, ticket: int, call: Any, kind: str, value: str, at: int) -> None:
    is_definite = value != ":timed-out"
    match call, kind:
        case Read(), "ok" if is_definite:
            recorder.returned(ticket, _value(value, at), at)
        case Read(), _:
            recorder.without_effect(ticket)
        case _, "ok":
            recorder.returned(ticket, result=True, at=at)
        case CompareAndSet(), "fail" if is_definite:
            recorder.returned(ticket, result=False, at=at)
        case Write(), "fail" if is_definite:
            recorder.without_effect(ticket)
        case _:
            recorder.unknown(ticket)


def _call(what: str, value: str, at: int) -> Read | Write | CompareAndSet:
    if what == "read":
        return Read()
    if what == "write":
        return Write(_value(value, at))
    pair = _PAIR.fullmatch(value)
    if pair is None:
        raise HistoryError(f"line {at}: {value[:80]!r} is no pair of values")
    return CompareAndSet(_value(pair[1], at), _value(pair[2], at))


def _value(shown: str, at: int) -> int | None:
    if shown == "nil":
        return None
    try:
        return int(shown)
    except ValueError:
        raise HistoryError(f"line {at}: {shown[:80]!r} is neither a number nor nil") from None
