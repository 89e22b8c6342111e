"""Parked ranges of a fake native node: a plain model of what the engine does with orders about them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

# Replies by the fate of the scope that a range was exported under.
BY_FATE = {"open": "exporting", "committed": "exported", "unknown": "unknown"}
PAGE_MAX = 1_024


@dataclass(frozen=True)
class Parked:
    first: int
    rows: int
    count: int = 5
    reason: str = "bad row"
    time_ms: int = 1_000
    scope: int = 0
    gone: int = 0


class ParkedModel:
    """`parked` by (cohort, partition) and number; `put_back` are the rows of retries."""

    def __init__(self) -> None:
        self.parked: dict[tuple[int, int], dict[int, Parked]] = {}
        self.put_back: list[tuple[int, int]] = []

    def park(self, cohort: int, partition: int, **ranges: Any) -> int:
        """Park a range; returns its number."""
        there = self.parked.setdefault((cohort, partition), {})
        number = 1 + max(there, default=0)
        there[number] = Parked(**ranges)
        return number

    def listed(self, cohort: int, partition: int, after: int, count: int) -> dict[str, Any]:
        there = sorted(self.parked.get((cohort, partition), {}).items())
        lines = [
            (number, one.first, one.rows, one.count, one.reason, one.time_ms, one.scope, one.gone)
            for number, one in there
            if number > after
        ]
        count = min(count, PAGE_MAX)
        return {"parked": lines[:count], "more": len(lines) > count}

    def settled(
        self, gate: tuple[int, int], action: str, items: list[tuple[int, int, str]], scope: int, forced: bool
    ) -> dict[str, Any]:
        assert len(items) <= PAGE_MAX
        return {
            "replies": [
                (number, self._reply(gate, action, number, named, fate, scope, forced))
                for number, named, fate in items
            ]
        }

    def _reply(
        self, gate: tuple[int, int], action: str, number: int, named: int, fate: str, scope: int, forced: bool
    ) -> str:
        there = self.parked.get(gate, {})
        one = there.get(number)
        if one is None:
            return "not_parked"
        if action == "exported":
            if one.scope != scope:
                return "exporting" if one.scope else "not_begun"
            if fate != "committed":
                return "unknown" if fate == "unknown" else "exporting"
            del there[number]
            return "taken"
        if one.scope and not (action == "begin" and one.scope == scope):
            fate = fate if named == one.scope else "open"
            if fate in BY_FATE and not (fate == "unknown" and forced):
                if fate == "committed":
                    del there[number]
                return BY_FATE[fate]
        if action == "begin":
            there[number] = replace(one, scope=scope)
            return "taken"
        del there[number]
        if action == "retry":
            self.put_back.append((one.first, one.rows))
        return "gone" if action == "retry" and one.gone else "taken"
