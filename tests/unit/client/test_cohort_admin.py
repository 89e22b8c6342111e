"""`client.admin` about cohorts: pages, settings, refusals."""

from __future__ import annotations

import datetime as dt
from types import SimpleNamespace
from typing import Any

import pytest

from ringfence.cohort_admin import CohortAdmin
from ringfence.native import cohort_messages as cohorts
from ringfence.native.cohort_messages import CohortEntry, CohortPartition, CohortSettings, CohortSummary
from ringfence.native.errors import (
    ConflictError,
    InvalidArgumentError,
    ProtocolError,
    RingfenceError,
    UnknownOutcomeError,
)
from ringfence.native.wire import Code, Opcode


def summary(name: str, topic: str = "t") -> CohortSummary:
    return CohortSummary(CohortEntry(topic, name, 3, "queue", "earliest", CohortSettings(limit=7), 4, 0, 0))


class Node:
    """Gives the answers in order; `asked` has the requests."""

    def __init__(self, *answers: Any) -> None:
        self._answers = list(answers)
        self.asked: list[tuple[Opcode, Any]] = []

    def request(self, opcode: Opcode, message: Any, **_: Any) -> tuple[Any, int]:
        self.asked.append((opcode, message))
        answer = self._answers.pop(0)
        if isinstance(answer, RingfenceError):
            raise answer
        return SimpleNamespace(control=lambda _: answer), 0

    def positions_at(self, topic: str, time: dt.datetime) -> list[tuple[int, int, int]]:
        assert (topic, time.tzinfo) == ("t", dt.UTC)
        return [(1, 20, 2)]


def admin(*answers: Any) -> tuple[CohortAdmin, Node]:
    node: Any = Node(*answers)
    return CohortAdmin(node, node), node


def test_cohorts_are_listed_page_by_page() -> None:
    pages = (
        cohorts.CohortListed([summary("a"), summary("b")], more=True),
        cohorts.CohortListed([summary("a", "u")]),
    )
    api, node = admin(*pages)
    assert [(one.entry.topic, one.entry.cohort) for one in api.cohorts()] == [
        ("t", "a"),
        ("t", "b"),
        ("u", "a"),
    ]
    assert node.asked[1][1].after == ("t", "b")


@pytest.mark.parametrize("names", [["b"], []])
def test_a_page_that_does_not_follow_is_refused(names: list[str]) -> None:
    first = cohorts.CohortListed([summary("b")], more=True)
    api, _ = admin(first, cohorts.CohortListed([summary(name) for name in names], more=True))
    with pytest.raises(ProtocolError, match="does not follow"):
        list(api.cohorts("t"))


def test_a_cohort_is_shown_with_all_its_partitions() -> None:
    def page(*numbers: int, more: bool) -> cohorts.CohortDescribed:
        parts = [CohortPartition(number, "t-0", "ACTIVE", 1) for number in numbers]
        return cohorts.CohortDescribed(summary("a"), partitions=parts, more=more)

    api, node = admin(page(1, 2, more=True), page(5, more=False))
    shown = api.cohort("t", "a")
    assert ([part.partition for part in shown.partitions], shown.more) == ([1, 2, 5], False)
    assert node.asked[1][1].after == 2


def test_a_change_keeps_what_it_does_not_name_and_replaces_one_version() -> None:
    described = cohorts.CohortDescribed(summary("a"))
    api, node = admin(described, summary("a").entry)
    api.change_cohort("t", "a", lease_s=1.5)
    change = node.asked[1][1]
    assert (change.settings.lease_ms, change.settings.limit, change.version) == (1_500, 7, 4)
    api, node = admin(described, summary("a").entry)
    api.change_cohort("t", "a", limit=0, expected=2)
    assert (node.asked[1][1].settings.limit, node.asked[1][1].version) == (0, 2)


@pytest.mark.parametrize(("code", "kind"), [(Code.TOO_OLD, ConflictError), (None, UnknownOutcomeError)])
def test_settings_of_another_version_are_a_conflict(code: Code | None, kind: type[RingfenceError]) -> None:
    api, _ = admin(cohorts.CohortDescribed(summary("a")), UnknownOutcomeError("of version 8", code=code))
    with pytest.raises(kind, match="of version 8"):
        api.change_cohort("t", "a", limit=1)


def test_a_seek_to_a_time_is_one_to_positions_and_the_latest_rows_elsewhere() -> None:
    api, node = admin(cohorts.CohortSought(2, 0))
    api.seek_cohort("t", "a", dt.datetime(2026, 1, 1, tzinfo=dt.UTC))
    seek = node.asked[0][1]
    assert (seek.to, seek.positions, seek.rest, seek.wait) == ("positions", [(1, 20, 2)], "latest", True)


@pytest.mark.parametrize("given", [{"limit": -1}, {"limit": True}, {"lease_s": "1"}, {"handover_s": 0}])
def test_settings_that_are_none_are_refused_before_anything_is_asked(given: dict[str, Any]) -> None:
    api, node = admin()
    with pytest.raises(InvalidArgumentError):
        api.create_cohort("t", "a", **given)
    assert node.asked == []


def test_each_call_has_a_key_of_its_own_for_all_its_tries() -> None:
    entry = summary("a").entry
    api, node = admin(entry, entry, cohorts.CohortDeleted(deleted=True))
    api.create_cohort("t", "a")
    api.create_cohort("t", "a")
    assert api.delete_cohort("t", "a")
    assert len({message.key for _, message in node.asked}) == 3
    assert all(len(message.key) == 32 for _, message in node.asked)
