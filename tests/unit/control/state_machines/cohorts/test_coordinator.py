"""One round of a leader: plans, evictions and progress, and what a new leader does."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from ringfence.control.model.cohort_commands import MarkBegun, MarkDrained, PublishPlan, RemoveMembers
from ringfence.control.model.cohorts import CohortId, MemberSession, StartKind
from ringfence.control.model.ids import PartitionId
from ringfence.control.model.ranges import SLOT_LAST, SlotRange
from ringfence.control.model.results import Refused
from ringfence.control.state_machines.cohorts import coordinator, plans
from ringfence.control.state_machines.cohorts.coordinator import REPROPOSE_MS, CohortCoordinator
from ringfence.control.state_machines.cohorts.digests import pack_sessions, sessions_digest
from ringfence.control.state_machines.cohorts.liveness import SessionsReport
from ringfence.control.state_machines.metadata.cohort_lineage import heir
from tests.fakes.cohort_log import CohortLog

GRACE_MS = 12_000
STEP_MS = 50


class Leader:
    """A coordinator over a log: what it proposes is applied, while `is_applied`."""

    def __init__(self, log: CohortLog) -> None:
        self.log, self.now_ms, self.term = log, 100_000, 0
        self.desk = CohortCoordinator(GRACE_MS)
        self.proposed: list[object] = []
        self.is_applied = True
        self.heard: set[MemberSession] = set()
        self.elect()

    def elect(self) -> None:
        self.term += 1
        self.desk.begin(self.term, self.now_ms)

    def run(self, ms: int) -> list[object]:
        """The entries of a span of time, in which every node reports `heard` once a second."""
        before = len(self.proposed)
        for _ in range(ms // STEP_MS):
            self.now_ms += STEP_MS
            if self.now_ms % 1_000 == 0:
                packed = pack_sessions(self.heard)
                report = SessionsReport(sessions_digest(packed), packed, GRACE_MS)
                for node in self.log.nodes:
                    self.desk.report(node, report, self.now_ms)
            for command in self.desk.step(self.log.state, self.now_ms).entries:
                self.proposed.append(command)
                if self.is_applied:
                    result = self.log.do(command)
                    self.desk.note_entry(command, self.now_ms, is_refused=isinstance(result, Refused))
        return self.proposed[before:]

    def join(self, number: CohortId, *names: str) -> None:
        self.heard |= {*self.log.join(number, *names)}


def test_members_that_come_and_go_are_planned() -> None:
    log = CohortLog(partitions=6)
    number = log.create()
    leader = Leader(log)
    leader.join(number, "a", "b", "c")
    leader.run(1_000)
    assert [len(share) for share in log.slices(number).values()] == [2, 2, 2]
    gone = log.leave(number, "b")
    log.must(gone)
    leader.desk.note_entry(gone, leader.now_ms)
    (made,) = leader.run(150)
    assert isinstance(made, PublishPlan), "P21: within 100 ms"
    assert [len(share) for share in log.slices(number).values()] == [3, 3]


@pytest.mark.parametrize("offset_ms", range(0, 1_000, STEP_MS))
def test_who_registers_at_a_leader_of_any_age_gets_its_share_at_once(offset_ms: int) -> None:
    """A leader that is older than the grace period takes members by what it heard, once a second."""
    log = CohortLog(partitions=4)
    log.join(log.create("older"), "a")
    leader = Leader(log)
    leader.run(2 * GRACE_MS + offset_ms)
    number = log.create("newer")
    leader.join(number, "b")
    leader.run(plans.FIRST_DELAY_MS + 2 * STEP_MS)
    assert [len(share) for share in log.slices(number).values()] == [4]


def test_idle_members_write_nothing_for_ten_minutes() -> None:
    """P31: constant membership makes no change."""
    log = CohortLog(partitions=8)
    number = log.create()
    leader = Leader(log)
    leader.join(number, *(f"m{place}" for place in range(100)))
    leader.run(2_000)
    index = log.at
    assert leader.run(600_000) == []
    assert log.at == index


def test_no_slice_moves_over_a_change_of_leaders() -> None:
    """F20, F25, P14: twenty elections, counted."""
    log = CohortLog(partitions=12)
    number = log.create()
    leader = Leader(log)
    leader.join(number, *(f"m{place}" for place in range(5)))
    leader.run(3_000)
    slices, generation = log.slices(number), log.cohort(number).generation
    moved = 0
    for _ in range(20):
        leader.elect()
        moved += len(leader.run(4_000))
    assert (moved, log.slices(number), log.cohort(number).generation) == (0, slices, generation)


def test_a_silent_member_is_removed_and_its_partitions_go_to_the_others_by_one_plan() -> None:
    log = CohortLog(partitions=6)
    number = log.create()
    leader = Leader(log)
    leader.join(number, "a", "b", "c")
    leader.run(20_000)
    leader.heard -= {log.members(number)["b"].session}
    made = leader.run(30_000)
    assert [type(command) for command in made] == [RemoveMembers, PublishPlan], "P13"
    assert sum(map(len, log.slices(number).values())) == 6


def test_nothing_new_comes_to_a_member_in_grace_and_it_keeps_what_it_has() -> None:
    log = CohortLog(partitions=6)
    number = log.create()
    leader = Leader(log)
    leader.join(number, "a", "b", "c")
    leader.run(20_000)
    kept = log.slices(number)["b"]
    leader.heard -= {log.members(number)["b"].session}
    leader.run(5_000)
    log.done(log.split(log.part(PartitionId(log.slices(number)["a"][0]))), upto="opened")
    leader.run(3_000)
    assert log.slices(number)["b"] == kept
    assert sum(map(len, log.slices(number).values())) == 8, "the children are with the others"


def test_a_plan_without_an_answer_is_proposed_again_and_one_under_way_is_waited_for() -> None:
    log = CohortLog(partitions=4)
    number = log.create()
    leader = Leader(log)
    leader.run(500)
    leader.is_applied = False
    leader.join(number, "a")
    made = leader.run(900)
    assert len(made) == 1
    leader.join(number, "b")
    assert leader.run(200) == [], "its entry is under way"
    again = leader.run(REPROPOSE_MS)
    assert [type(command) for command in again] == [PublishPlan]
    leader.is_applied = True
    leader.run(2 * REPROPOSE_MS)
    assert [len(share) for share in log.slices(number).values()] == [2, 2]


def test_a_plan_that_is_cut_goes_on_immediately(monkeypatch: pytest.MonkeyPatch) -> None:
    log = CohortLog(partitions=40)
    number = log.create()
    leader = Leader(log)
    leader.join(number, "a", "b")
    monkeypatch.setattr(
        coordinator,
        "next_entry",
        lambda state, cohort, connected: plans.entry_of(cohort, plans.moves(state, cohort, connected), 15),
    )
    assert len(leader.run(300)) == 3
    assert [len(share) for share in log.slices(number).values()] == [20, 20]


def test_a_large_plan_is_made_elsewhere_and_its_entry_is_refused_if_the_state_moved_on() -> None:
    log = CohortLog(partitions=1)
    number = log.create()
    log.join(number, "a")
    part = log.active[0]
    many = tuple(
        replace(part, partition=PartitionId(place), slots=SlotRange(place % SLOT_LAST, place % SLOT_LAST))
        for place in range(1, plans.LARGE_PLAN + 1)
    )
    topic = replace(log.now, layout=replace(log.now.layout, partitions=many))
    state = replace(log.state, topics={log.topic: topic})
    desk = CohortCoordinator(GRACE_MS)
    desk.begin(1, 0)
    found = [desk.step(state, now_ms) for now_ms in (0, 100, 200, 300)]
    (large,) = [one for made in found for one in made.large]
    assert not any(made.entries for made in found)
    assert large.cohort.cohort == number
    assert large.connected == {"a"}
    made = plans.next_entry(state, large.cohort, large.connected)
    assert made is not None
    assert not made.is_whole or len(made.command.changes[0].add) == plans.LARGE_PLAN
    assert desk.note_plan(made, 300) == (made.command,)
    assert desk.note_plan(None, 300) == ()


def test_what_owners_tell_becomes_entries() -> None:
    log = CohortLog(partitions=1)
    number, latest = log.create(), log.create("l", start=StartKind.LATEST)
    source = log.active[0]
    leader = Leader(log)
    begun = log.begun(latest, *log.cohort(latest).resetting).marks
    leader.desk.tell_begun(begun, leader.now_ms)
    (first,) = leader.run(300)
    assert isinstance(first, MarkBegun)
    log.split_done(source)
    assert heir(log.now.layout.by_id(), source.partition) != source.partition
    leader.desk.tell_drained(log.drained(number, source.partition).marks, leader.now_ms)
    made = leader.run(1_000)
    assert [type(command) for command in made] == [MarkDrained]
    assert source.partition in {mark.partition for mark in log.state.drained_marks[number]}


def test_who_does_not_lead_proposes_nothing() -> None:
    log = CohortLog()
    number = log.create()
    leader = Leader(log)
    leader.join(number, "a")
    leader.desk.end()
    assert leader.run(5_000) == []


def test_a_member_that_is_reported_late_gets_its_share_when_it_comes() -> None:
    """It was registered, and in grace when the plan was made: nothing is unassigned, and it has nothing."""
    log = CohortLog(partitions=4)
    number = log.create()
    leader = Leader(log)
    leader.join(number, "a")
    leader.run(20_000)
    (late,) = log.join(number, "late")
    leader.run(200)  # too early for its plan
    log.must(log.change(number, log.cohort(number).changed, limit=9))
    leader.is_applied = False
    leader.run(5_000)
    leader.is_applied = True
    leader.run(3_000)
    assert log.slices(number)["late"] == (), "no node has reported it"
    leader.heard.add(late)
    leader.run(3_000)
    assert [len(share) for share in log.slices(number).values()] == [2, 2]
