"""A native node with the engine's part of cohorts: rules as they are installed, gates of a simple log.

A gate begins as soon as its rule lets it; `settle` is what a member does. `heard` are sessions whose members
beat at this node. Leases and holds are the engine's own matter, and not here.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from ringfence.control.runtime.data_plane import cohort_orders, executor
from ringfence.control.runtime.data_plane.cohort_orders import CohortItems
from ringfence.native import messages
from ringfence.native.cohort_messages import Assign
from ringfence.native.wire import ANSWER_STRUCT, AnswerHeader, Opcode, Status
from tests.fakes import node_bench, node_cluster
from tests.fakes.native_node import FakeNode
from tests.fakes.parked_model import ParkedModel

AT, FINISHED, NOT_BEGUN = 0, 1, 2


class Rule(NamedTuple):
    topic: int
    partition: int
    log: int
    cohort: int
    assignee: int
    kind: int
    offset: int
    epoch: int
    flags: int
    end: int | None
    waits_for: list[int]
    read: list[tuple[int, int]]
    notes: list[tuple[int, int, int]]


class Entry(NamedTuple):
    incarnation: int
    offset: int
    is_settled: bool


class GatedNode(FakeNode):
    """`cohorts` by id, `rules` by (cohort, partition), `entries` are what logs have."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.cohorts: dict[int, tuple[Any, ...]] = {}
        self.rules: dict[tuple[int, int], Rule] = {}
        self.entries: dict[tuple[int, int], Entry] = {}
        self.heard: set[int] = set()
        self.installs: list[CohortItems] = []
        self.pushes: list[tuple[AnswerHeader, Assign]] = []
        self.begins = True
        self.ranges = ParkedModel()

    def answer(self, connection: int, header: bytes, body: bytes) -> None:
        fields = AnswerHeader(*ANSWER_STRUCT.unpack(header))
        if fields.status == Status.PUSH:
            assert fields.opcode == Opcode.ASSIGN
            self.pushes.append((fields, messages.decode(Assign, body)))
            return
        super().answer(connection, header, body)

    def install_cohorts(self, *items: Any) -> int:
        update = CohortItems(*items)
        if "install_cohorts" not in self.refuses:
            assert not self.installs or update.as_of >= self.installs[-1].as_of, "rules of an older entry"
            self.installs.append(update)
            for item in update.cohorts:
                self.cohorts[item[1]] = item
                self.rules = {key: rule for key, rule in self.rules.items() if key[0] != item[1]}
            self.rules |= {(rule[3], rule[1]): Rule(*rule) for rule in update.rules}
            for _, cohort in update.gone:
                self.cohorts.pop(cohort, None)
                self.rules = {key: rule for key, rule in self.rules.items() if key[0] != cohort}
            self._begin()
        return self._order("install_cohorts", update.as_of)

    def _begin(self) -> None:
        for key, rule in self.rules.items():
            incarnation = self.cohorts[rule.cohort][3]
            entry = self.entries.get(key)
            if not self.begins or (entry is not None and entry.incarnation == incarnation):
                continue
            if rule.kind == FINISHED:
                self.entries.pop(key, None)
            elif entry is not None or rule.kind == NOT_BEGUN:
                offset = self._end(rule) if rule.kind == NOT_BEGUN else rule.offset
                self.entries[key] = Entry(incarnation, offset, is_settled=False)

    def _epoch_of(self, rule: Rule) -> int:
        return int(self.hosted.get((rule.topic, rule.log), {}).get("owner_epoch", 0))

    def _end(self, rule: Rule) -> int:
        if rule.end is not None:
            return rule.end
        return int(self.hosted.get((rule.topic, rule.partition), {"end_offset": 0})["end_offset"])

    def settle(self, cohort: int, partition: int, offset: int) -> None:
        """A member acknowledged rows; the engine tells that gates have made progress."""
        incarnation = self.cohorts[cohort][3]
        self.entries[cohort, partition] = Entry(incarnation, offset, is_settled=True)
        self.tell(("gates",))

    def list_parked(self, topic: int, partition: int, cohort: int, after: int, count: int) -> int:
        result = self.ranges.listed(cohort, partition, after, count)
        return self._order("list_parked", topic, partition, cohort, after, count, result=result)

    def settle_parked(
        self,
        topic: int,
        partition: int,
        cohort: int,
        action: str,
        items: list[tuple[int, int, str]],
        scope: int,
        is_forced: bool,
    ) -> int:
        result = None
        if "settle_parked" not in self.refuses:
            result = self.ranges.settled((cohort, partition), action, items, scope, is_forced)
        return self._order(
            "settle_parked", topic, partition, cohort, action, items, scope, is_forced, result=result
        )

    def members(self) -> list[int]:
        return sorted(self.heard)

    def gates(self) -> list[tuple[int, int, int, int, int, bool, bool, int]]:
        none = Entry(0, 0, is_settled=False)
        return [
            (
                *(rule.topic, rule.partition, rule.cohort),
                *self.entries.get(key, none),
                False,
                self._epoch_of(rule),
            )
            for key, rule in self.rules.items()
        ]

    def cohort_figures(self) -> list[dict[str, Any]]:
        return [self._figures(key, rule) for key, rule in self.rules.items()]

    def _figures(self, key: tuple[int, int], rule: Rule) -> dict[str, Any]:
        entry = self.entries.get(key)
        parked = self.ranges.parked.get(key, {}).values()
        settled, end = rule.offset if entry is None else entry.offset, self._end(rule)
        return {
            "topic": rule.topic,
            "cohort": rule.cohort,
            "partition": rule.partition,
            "settled": settled,
            "end": end,
            "lag_rows": max(0, end - settled),
            "parked": len(parked),
            "parked_rows": sum(one.rows for one in parked),
        }


def install(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on nodes have the level of cohorts and gated native nodes."""
    for module in (node_bench, node_cluster):
        monkeypatch.setattr(module, "FakeNode", GatedNode)

    def install_order(*arguments: Any) -> Any:
        items = cohort_orders.items_of(*arguments)
        return SimpleNamespace(name="install_cohorts", arguments=tuple(items))

    monkeypatch.setattr(executor, "install_order", install_order)
