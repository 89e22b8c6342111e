"""COHORT_CREATE to COHORT_EVICT at the data address of a whole node over a fake native one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec import UNSET

from ringfence.control.runtime.handlers.cohort_views import NOT_BEGUN
from ringfence.native import cohort_messages as cohorts
from ringfence.native import messages
from ringfence.native.cohort_messages import CohortEntry
from ringfence.native.wire import Code, Opcode
from tests.fakes.cohort_bench import joined, joins, with_cohorts
from tests.fakes.gated_node import GatedNode
from tests.fakes.node_bench import Bench, soon

Patch = pytest.MonkeyPatch


async def created(bench: Bench, name: str = "etl", **more: Any) -> CohortEntry:
    request = cohorts.CohortCreate(topic="t", cohort=name, **({"mode": "stream"} | more))
    return await bench.ok(Opcode.COHORT_CREATE, request, CohortEntry)


async def described(bench: Bench, name: str = "etl", **more: Any) -> cohorts.CohortDescribed:
    request = cohorts.CohortDescribe(topic="t", cohort=name, **more)
    return await bench.ok(Opcode.COHORT_DESCRIBE, request, cohorts.CohortDescribed)


def test_a_cohort_is_created_changed_and_deleted(tmp_path: Path, monkeypatch: Patch) -> None:
    async def work(bench: Bench, native: GatedNode, parts: list[int]) -> None:
        del parts
        made = await created(bench, mode="queue")
        assert (made.created, made.topic, made.cohort) == (True, "public/default/t", "etl")
        assert not (await created(bench, mode="queue")).created
        other = cohorts.CohortCreate(topic="t", cohort="etl", mode="stream")
        assert await bench.refused(Opcode.COHORT_CREATE, other) == Code.ALREADY_EXISTS
        settings = cohorts.CohortSettings(limit=7)
        fields = {"topic": "t", "cohort": "etl", "mode": "queue", "settings": settings}
        old = cohorts.CohortChange(**fields, version=made.version - 1)  # type: ignore[arg-type]
        assert await bench.refused(Opcode.COHORT_CHANGE, old) == Code.TOO_OLD
        change = cohorts.CohortChange(**fields, version=made.version)  # type: ignore[arg-type]
        changed = await bench.ok(Opcode.COHORT_CHANGE, change, CohortEntry)
        assert changed.settings.limit == 7
        assert changed.version > made.version
        again = await bench.ok(Opcode.COHORT_CHANGE, change, CohortEntry)
        assert again.version == changed.version, "equal settings are no entry"
        await soon(lambda: native.cohorts[made.id][7] == 7)
        wrong = cohorts.CohortChange(**(fields | {"mode": "stream"}), version=changed.version)  # type: ignore[arg-type]
        assert await bench.refused(Opcode.COHORT_CHANGE, wrong) == Code.ALREADY_EXISTS
        stale = cohorts.CohortDelete(topic="t", cohort="etl", version=made.version)
        assert await bench.refused(Opcode.COHORT_DELETE, stale) == Code.TOO_OLD
        delete = cohorts.CohortDelete(topic="t", cohort="etl", version=changed.version)
        assert (await bench.ok(Opcode.COHORT_DELETE, delete, cohorts.CohortDeleted)).deleted
        assert await bench.refused(Opcode.COHORT_DELETE, delete) == Code.UNKNOWN_COHORT
        missing = cohorts.CohortDelete(topic="t", cohort="etl", missing_ok=True)
        assert not (await bench.ok(Opcode.COHORT_DELETE, missing, cohorts.CohortDeleted)).deleted
        await soon(lambda: not native.rules)
        topic = bench.node.proposer.state.names[made.topic]
        assert native.installs[-1].gone == [(topic, made.id)]

    with_cohorts(tmp_path, monkeypatch, work)


def test_a_repeat_with_its_key_is_the_same_request(tmp_path: Path, monkeypatch: Patch) -> None:
    async def work(bench: Bench, native: GatedNode, parts: list[int]) -> None:
        del native, parts
        await created(bench)
        seek = cohorts.CohortSeek(topic="t", cohort="etl", to="earliest", key="k")
        first = await bench.ok(Opcode.COHORT_SEEK, seek, cohorts.CohortSought)
        again = await bench.ok(Opcode.COHORT_SEEK, seek, cohorts.CohortSought)
        assert again.incarnation == first.incarnation
        other = cohorts.CohortSeek(topic="t", cohort="etl", to="latest", key="k")
        assert await bench.refused(Opcode.COHORT_SEEK, other) == Code.CONFLICT
        bad = cohorts.CohortSeek(topic="t", cohort="etl", to="latest", key="k" * 201)
        assert await bench.refused(Opcode.COHORT_SEEK, bad) == Code.INVALID_ARGUMENT

    with_cohorts(tmp_path, monkeypatch, work)


def test_lag_members_and_what_is_not_known_are_shown(tmp_path: Path, monkeypatch: Patch) -> None:
    async def work(bench: Bench, native: GatedNode, parts: list[int]) -> None:
        await created(bench)
        await created(bench, "other")
        member = await joined(bench, joins("m", 1))
        native.heard.add(member.session)
        await soon(lambda: {rule.assignee for rule in native.rules.values()} == {0, member.session})
        native.settle(member.cohort, parts[0], 40)
        shown = await described(bench)
        assert (shown.summary.lag_rows, shown.summary.unassigned, shown.summary.entry.members) == (260, 0, 1)
        assert [(one.member, one.partitions) for one in shown.members] == [("m", 3)]
        assert shown.members[0].state == "connected"
        first = shown.partitions[0]
        assert (first.partition, first.settled, first.end, first.lag_rows) == (min(parts), 40, 100, 60)
        assert {one.member for one in shown.partitions} == {"m"}
        page = await described(bench, after=parts[0])
        assert [one.partition for one in page.partitions] == sorted({*parts} - {parts[0]})
        assert (await described(bench, partitions=False)).partitions == []
        listed = await bench.ok(Opcode.COHORT_LIST, cohorts.CohortList(), cohorts.CohortListed)
        assert [one.entry.cohort for one in listed.cohorts] == ["etl", "other"]
        assert listed.cohorts[1].entry.idle_since_ms > 0
        after = cohorts.CohortList(topic="t", after=("public/default/t", "etl"))
        rest = await bench.ok(Opcode.COHORT_LIST, after, cohorts.CohortListed)
        assert [one.entry.cohort for one in rest.cohorts] == ["other"]
        known = native.cohort_figures()
        told = [{name: one[name] for name in one.keys() - {"settled", "lag_rows"}} for one in known]
        monkeypatch.setattr(native, "cohort_figures", lambda: told)
        not_begun = (await described(bench)).partitions
        assert {(one.settled, one.lag_rows) for one in not_begun} == {(UNSET, UNSET)}, "not 0, but unknown"
        assert {one.reason for one in not_begun} == {NOT_BEGUN}
        monkeypatch.setattr(native, "cohort_figures", list)
        unknown = await described(bench)
        assert unknown.summary.unknown == sorted(parts)
        assert unknown.summary.lag_rows == 0
        assert all("did not answer" in one.reason for one in unknown.partitions)

    with_cohorts(tmp_path, monkeypatch, work)


def test_a_seek_begins_everywhere_and_an_eviction_ends_a_member(tmp_path: Path, monkeypatch: Patch) -> None:
    async def work(bench: Bench, native: GatedNode, parts: list[int]) -> None:
        made = await created(bench)
        member = await joined(bench, joins("m", 1))
        await soon(lambda: len(native.pushes) == 1)
        seek = cohorts.CohortSeek(topic="t", cohort="etl", to="latest", wait=True)
        sought = await bench.ok(Opcode.COHORT_SEEK, seek, cohorts.CohortSought)
        assert sought.incarnation > made.incarnation
        assert sought.waiting == []
        assert {entry.offset for entry in native.entries.values()} == {100}
        await soon(lambda: native.pushes[-1][1].incarnation == sought.incarnation)
        named = [(part, 7, 0) for part in reversed(parts)]
        there = cohorts.CohortSeek(topic="t", cohort="etl", to="positions", positions=named, wait=True)
        await bench.ok(Opcode.COHORT_SEEK, there, cohorts.CohortSought)
        assert {rule.offset for rule in native.rules.values()} == {7}
        some = cohorts.CohortSeek(topic="t", cohort="etl", to="positions", positions=named[:1])
        assert await bench.refused(Opcode.COHORT_SEEK, some) == Code.INVALID_ARGUMENT
        rest = cohorts.CohortSeek(
            topic="t", cohort="etl", to="positions", positions=named[:1], rest="latest", wait=True
        )
        await bench.ok(Opcode.COHORT_SEEK, rest, cohorts.CohortSought)
        for wrong in (
            {"to": "yesterday"},
            {"to": "latest", "positions": named},
            {"to": "latest", "rest": "x"},
        ):
            request = cohorts.CohortSeek(topic="t", cohort="etl", **wrong)
            assert await bench.refused(Opcode.COHORT_SEEK, request) == Code.INVALID_ARGUMENT
        old = cohorts.CohortSeek(topic="t", cohort="etl", to="latest", incarnation=made.incarnation)
        assert await bench.refused(Opcode.COHORT_SEEK, old) == Code.TOO_OLD
        evict = cohorts.CohortEvict(topic="t", cohort="etl", member="m")
        assert (await bench.ok(Opcode.COHORT_EVICT, evict, cohorts.Left)).removed
        assert not (await bench.ok(Opcode.COHORT_EVICT, evict, cohorts.Left)).removed
        await soon(lambda: native.cohorts[made.id][8] == [])
        back = await joined(bench, joins("m", 1))
        assert back.session > member.session

    with_cohorts(tmp_path, monkeypatch, work)


def test_a_seek_does_not_forget_what_is_parked_unasked(tmp_path: Path, monkeypatch: Patch) -> None:
    async def work(bench: Bench, native: GatedNode, parts: list[int]) -> None:
        del parts
        await created(bench, mode="queue")
        await soon(lambda: len(native.rules) == 3)
        plain = native._figures
        monkeypatch.setattr(native, "_figures", lambda *gate: plain(*gate) | {"parked": 2, "parked_rows": 3})
        assert (await described(bench)).summary.parked_rows == 9
        seek = cohorts.CohortSeek(topic="t", cohort="etl", to="earliest")
        header, body = await bench.ask(Opcode.COHORT_SEEK, seek)
        refusal = messages.decode(messages.Refused, body)
        assert (header.code, refusal.details["parked"]) == (Code.ALREADY_EXISTS, 6)
        monkeypatch.setattr(native, "cohort_figures", list)
        assert await bench.refused(Opcode.COHORT_SEEK, seek) == Code.HELD, "an owner does not answer"
        forced = cohorts.CohortSeek(topic="t", cohort="etl", to="earliest", forget_parked=True)
        await bench.ok(Opcode.COHORT_SEEK, forced, cohorts.CohortSought)

    with_cohorts(tmp_path, monkeypatch, work)


def test_a_token_with_a_prefix_has_no_cohorts_outside(tmp_path: Path, monkeypatch: Patch) -> None:
    """CX8."""

    async def work(bench: Bench, native: GatedNode, parts: list[int]) -> None:
        del parts
        await created(bench)
        native.prefix = "acme/"
        listed = await bench.ok(Opcode.COHORT_LIST, cohorts.CohortList(), cohorts.CohortListed)
        assert listed.cohorts == []
        fields: dict[str, Any] = {"topic": "t", "cohort": "etl"}
        for opcode, request in (
            (Opcode.JOIN, joins("m", 1)),
            (Opcode.LEAVE, cohorts.Leave(topic="t", cohort="etl", member="m", session=1)),
            (Opcode.COHORT_LIST, cohorts.CohortList(topic="t")),
            (Opcode.COHORT_CREATE, cohorts.CohortCreate(topic="t", cohort="x", mode="stream")),
            (Opcode.COHORT_DESCRIBE, cohorts.CohortDescribe(**fields)),
            (
                Opcode.COHORT_CHANGE,
                cohorts.CohortChange(**fields, mode="stream", settings=cohorts.CohortSettings(), version=1),
            ),
            (Opcode.COHORT_SEEK, cohorts.CohortSeek(**fields, to="latest")),
            (Opcode.COHORT_DELETE, cohorts.CohortDelete(**fields)),
            (Opcode.COHORT_EVICT, cohorts.CohortEvict(**fields, member="m")),
        ):
            assert await bench.refused(opcode, request) == Code.UNAUTHORIZED, opcode.name

    with_cohorts(tmp_path, monkeypatch, work)
