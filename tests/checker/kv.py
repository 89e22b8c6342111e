"""Histories of texts by key, one event a line: `{:process 0, :type :ok, :f :put, :key "4", :value "x"}`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from tests.checker.history import HistoryError, Operation, Recorder
from tests.checker.models import Append, Get, Put

START: Final = re.compile(r"^\s*\{\s*:process\b")
_TEXT: Final = r'"(?:[^"\\]|\\.)*"'
EVENT: Final = re.compile(
    r"^\s*\{\s*:process\s+(?P<process>-?\d+)\s*,\s*:type\s+:(?P<type>invoke|ok|fail|info)\s*,"
    r"\s*:f\s+:(?P<what>get|put|append)\s*,"
    rf"\s*:key\s+(?P<key>{_TEXT})\s*,\s*:value\s+(?P<value>nil|{_TEXT})\s*\}}\s*$"
)
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r"}


def parse(lines: Iterable[str]) -> list[Operation]:
    """The operations of a file, for `StringsModel`. HistoryError names the line that makes no sense."""
    recorder = Recorder()
    open_calls: dict[int, tuple[int, Get | Put | Append]] = {}
    for at, line in enumerate(lines, start=1):
        if START.match(line) is None:
            continue
        event = EVENT.match(line)
        if event is None:
            raise HistoryError(f"line {at} is no event: {line.strip()[:120]}")
        process, value = int(event["process"]), _unquoted(event["value"])
        if event["type"] == "invoke":
            call = _call(event["what"], _unquoted(event["key"]), value)
            open_calls[process] = (recorder.invoke(process, call, at), call)
            continue
        if process not in open_calls:
            raise HistoryError(f"line {at}: process {process} returns without a call: {line.strip()[:120]}")
        ticket, call = open_calls.pop(process)
        if event["type"] == "ok":
            recorder.returned(ticket, value if isinstance(call, Get) else None, at)
        elif event["type"] == "fail" or isinstance(call, Get):
            recorder.without_effect(ticket)
        else:
            recorder.unknown(ticket)
    return recorder.operations()


def _call(what: str, key: str, value: str) -> Get | Put | Append:
    if what == "get":
        return Get(key)
    return Put(key, value) if what == "put" else Append(key, value)


def _unquoted(shown: str) -> str:
    if shown == "nil":
        return ""
    return re.sub(r"\\(.)", lambda escape: _ESCAPES.get(escape[1], escape[1]), shown[1:-1])
