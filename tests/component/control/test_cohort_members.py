"""JOIN, LEAVE and ASSIGN at the data address of a whole node over a fake native one."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace

from ringfence.control.model.cohorts import COHORT_LEVEL
from ringfence.control.model.ids import Index
from ringfence.control.model.layout_changes import LAYOUT_LEVEL
from ringfence.control.state_machines.cohorts import liveness
from ringfence.native import messages
from ringfence.native.cohort_messages import Join, Joined, Leave, Left
from ringfence.native.wire import Code, Features, Opcode
from tests.fakes import gated_node
from tests.fakes.cohort_bench import joined, joins, with_cohorts
from tests.fakes.gated_node import GatedNode
from tests.fakes.layout_level import lower_program
from tests.fakes.node_bench import CREATE, Bench, run, soon

Patch = pytest.MonkeyPatch


def test_members_share_the_partitions_and_hear_of_it(tmp_path: Path, monkeypatch: Patch) -> None:
    async def work(bench: Bench, native: GatedNode, parts: list[int]) -> None:
        first = await joined(bench, joins("m-1", 1))
        assert (first.slices, first.incarnation, first.lease_ms) == ([], first.cohort, 10_000)
        native.heard.add(first.session)
        await soon(lambda: len(native.pushes) == 1)
        header, assign = native.pushes[0]
        assert header.sequence == assign.generation == 1
        assert [part.partition for part in assign.slices] == sorted(parts)
        assert {rule.assignee for rule in native.rules.values()} == {first.session}
        second = await joined(bench, joins("m-2", 2))
        await soon(lambda: len(native.pushes) == 3)
        shares = {assign.session: len(assign.slices) for _, assign in native.pushes[1:]}
        assert sorted(shares.values()) == [1, 2]
        assert shares.keys() == {first.session, second.session}
        again = await joined(bench, joins("m-1", 1))
        assert (again.session, again.generation) == (first.session, 2), "the same instance is a read"
        assert {part.partition for part in again.slices} <= {*parts}
        left = Leave(topic="t", cohort="etl", member="m-1", session=first.session)
        assert (await bench.ok(Opcode.LEAVE, left, Left)).removed
        assert not (await bench.ok(Opcode.LEAVE, left, Left)).removed, "a repeat"
        await soon(lambda: {rule.assignee for rule in native.rules.values()} == {second.session})

    with_cohorts(tmp_path, monkeypatch, work)


def test_a_name_is_taken_over_by_naming_its_session_and_the_older_process_is_fenced(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    async def work(bench: Bench, native: GatedNode, parts: list[int]) -> None:
        del parts
        first = await joined(bench, joins("m", 1))
        header, body = await bench.ask(Opcode.JOIN, joins("m", 2))
        assert header.code == Code.CONFLICT
        details = messages.decode(messages.Refused, body).details
        assert details["session"] == first.session
        assert details["presence"] in {"unknown", "absent"}
        native.heard.add(first.session)
        for _ in range(200):
            header, body = await bench.ask(Opcode.JOIN, joins("m", 2))
            if messages.decode(messages.Refused, body).details["presence"] == "connected":
                break
            await asyncio.sleep(0.05)
        else:
            raise AssertionError("the leader never heard of the member")
        second = await joined(bench, joins("m", 2, after=first.session))
        assert second.session > first.session
        assert await bench.refused(Opcode.JOIN, joins("m", 1)) == Code.FENCED_MEMBER
        assert await bench.refused(Opcode.JOIN, joins("m", 3, after=first.session)) == Code.CONFLICT

    with_cohorts(tmp_path, monkeypatch, work)


def test_a_silent_member_is_removed_after_its_grace_and_one_that_beats_stays(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(liveness, "GRACE_MS_MIN", 500)

    async def work(bench: Bench, native: GatedNode, parts: list[int]) -> None:
        del parts
        bench.node.parts.cohorts.heard._grace_ms = 1_500
        leader = bench.node.parts.cohorts.leader
        leader.coordinator.liveness._grace_ms = 1_500
        stays, goes = await joined(bench, joins("stays", 1)), await joined(bench, joins("goes", 2))
        native.heard |= {stays.session, goes.session}
        await soon(lambda: {rule.assignee for rule in native.rules.values()} == {stays.session, goes.session})
        await asyncio.sleep(1.5)
        native.heard.remove(goes.session)
        await soon(lambda: {rule.assignee for rule in native.rules.values()} == {stays.session})
        assert native.cohorts[stays.cohort][8] == [stays.session]

    with_cohorts(tmp_path, monkeypatch, work)


def test_a_cohort_at_the_latest_rows_is_answered_when_all_owners_have_begun(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    async def work(bench: Bench, native: GatedNode, parts: list[int]) -> None:
        native.begins = False
        asked = asyncio.ensure_future(joined(bench, joins("m", 1, start="latest")))
        await soon(lambda: len(native.rules) == 3)
        await asyncio.sleep(0.5)
        assert not asked.done()
        native.begins = True
        native._begin()
        native.tell(("gates",))
        answer = await asked
        assert answer.not_begun == []
        assert {entry.offset for entry in native.entries.values()} == {100}, "where each log ended"
        cohort = bench.node.proposer.state.cohorts[answer.cohort]  # type: ignore[index]
        assert cohort.resetting == ()
        native.begins = False
        native.hosted.clear()
        late = joins("x", 9, cohort="late", start="latest")
        header, body = await bench.ask(Opcode.JOIN, late, deadline_ms=1_000)
        assert header.code == 0, messages.decode(messages.Refused, body)
        assert messages.decode(Joined, body).not_begun == sorted(parts)

    with_cohorts(tmp_path, monkeypatch, work)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"member": "a/b"}, Code.INVALID_ARGUMENT),
        ({"member": ""}, Code.INVALID_ARGUMENT),
        ({"member": "m" * 65}, Code.INVALID_ARGUMENT),
        ({"cohort": "é"}, Code.INVALID_ARGUMENT),
        ({"instance": b"short"}, Code.INVALID_ARGUMENT),
        ({"mode": "STREAM"}, Code.INVALID_ARGUMENT),
        ({"mode": "other"}, Code.INVALID_ARGUMENT),
        ({"start": "positions"}, Code.INVALID_ARGUMENT),
        ({"topic": "none"}, Code.UNKNOWN_TOPIC),
        ({"topic": "a//b"}, Code.INVALID_ARGUMENT),
    ],
)
def test_malformed_joins_are_refused_before_an_entry(
    change: dict[str, object], code: Code, tmp_path: Path, monkeypatch: Patch
) -> None:
    """F23."""

    async def work(bench: Bench, native: GatedNode, parts: list[int]) -> None:
        del native, parts
        before = bench.node.proposer.state
        fields = {
            "topic": "t",
            "cohort": "c",
            "mode": "stream",
            "member": "m",
            "instance": b"i" * 16,
        } | change
        assert await bench.refused(Opcode.JOIN, Join(**fields)) == code  # type: ignore[arg-type]
        assert bench.node.proposer.state.cohorts is before.cohorts
        body = messages.encode(Join(**(fields | {"mode": "stream"})))  # type: ignore[arg-type]
        assert await bench.refused(Opcode.JOIN, body[:-3]) == Code.BAD_BODY

    with_cohorts(tmp_path, monkeypatch, work)


def test_another_mode_is_refused_and_settings_of_an_existing_cohort_are_its_own(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    async def work(bench: Bench, native: GatedNode, parts: list[int]) -> None:
        del native, parts
        first = await joined(bench, joins("m", 1))
        assert await bench.refused(Opcode.JOIN, joins("n", 2, mode="queue")) == Code.ALREADY_EXISTS
        other = first.settings.__class__(lease_ms=5_000)
        second = await joined(bench, joins("n", 2, settings=other))
        assert second.settings == first.settings
        unknown = Leave(topic="t", cohort="none", member="m", session=1)
        assert await bench.refused(Opcode.LEAVE, unknown) == Code.UNKNOWN_COHORT

    with_cohorts(tmp_path, monkeypatch, work)


def test_nothing_of_it_is_served_below_its_level(tmp_path: Path, monkeypatch: Patch) -> None:
    gated_node.install(monkeypatch)
    lower_program(monkeypatch, LAYOUT_LEVEL)

    async def work(bench: Bench) -> None:
        await bench.ok(Opcode.TOPIC_CREATE, CREATE, messages.TopicInfo)
        header, body = await bench.ask(Opcode.JOIN, joins("m", 1))
        assert header.code == Code.ALREADY_EXISTS
        assert "ringfence cluster finalize" in messages.decode(messages.Refused, body).message
        assert isinstance(bench.native, GatedNode)
        assert not bench.native.installs

    run(tmp_path, monkeypatch, work)


def test_a_hundred_members_join_in_few_entries(tmp_path: Path, monkeypatch: Patch) -> None:
    async def work(bench: Bench, native: GatedNode, parts: list[int]) -> None:
        await joined(bench, joins("m-0", 0))
        before = bench.node.proposer.applied.index
        answers = await asyncio.gather(*(joined(bench, joins(f"m-{one}", one)) for one in range(1, 101)))
        assert len({answer.session for answer in answers}) == 100
        taken = bench.node.proposer.applied.index - before
        assert taken <= 10, f"{taken} entries for 100 members"
        await soon(lambda: len({rule.assignee for rule in native.rules.values()}) == len(parts))

    with_cohorts(tmp_path, monkeypatch, work)


def test_a_node_tells_clients_of_cohorts_from_their_level_on(tmp_path: Path, monkeypatch: Patch) -> None:
    async def above(bench: Bench, native: GatedNode, parts: list[int]) -> None:
        del parts
        assert native.ready.features == Features.RESUME_RANGES | Features.LINEAGE | Features.COHORTS
        bench.node.parts.data_plane.access.greet()
        assert native.ready.features == Features.RESUME_RANGES | Features.LINEAGE | Features.COHORTS

    with_cohorts(tmp_path / "above", monkeypatch, above)
    lower_program(monkeypatch, LAYOUT_LEVEL)

    async def below(bench: Bench) -> None:
        assert bench.native.ready.features == Features.RESUME_RANGES | Features.LINEAGE
        access, state = bench.node.parts.data_plane.access, bench.node.proposer.state
        raised = replace(state, level=COHORT_LEVEL)
        access.applied(state, raised, Index(bench.node.proposer.applied.index))
        assert bench.native.ready.features == Features.RESUME_RANGES | Features.LINEAGE | Features.COHORTS

    run(tmp_path / "below", monkeypatch, below)
