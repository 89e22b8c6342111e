"""Connected members, members in grace, silent ones; and a leader that was away itself."""

from __future__ import annotations

from itertools import pairwise

import pytest

from ringfence.control.model.cohort_commands import RegisterMembers, RemovalReason, RemoveMembers
from ringfence.control.model.cohorts import CohortId, MemberSession
from ringfence.control.model.ids import NodeId
from ringfence.control.model.results import ItemsTaken
from ringfence.control.state_machines.cohorts.digests import pack_sessions, sessions_digest
from ringfence.control.state_machines.cohorts.liveness import (
    FRESH_MS,
    GRACE_MS_MIN,
    PAUSE_MS,
    PRESENCE_MS,
    REPROPOSE_MS,
    CohortLiveness,
    Presence,
    SessionsReport,
)
from tests.fakes.cohort_log import CohortLog

GRACE_MS = 12_000


def report(*sessions: MemberSession, grace_ms: int = GRACE_MS) -> SessionsReport:
    packed = pack_sessions(sessions)
    return SessionsReport(sessions_digest(packed), packed, grace_ms)


class Scene:
    """A leader with a cohort of some members; `hear` reports sessions from nodes at each second."""

    def __init__(self, *names: str, nodes: int = 3, term: int = 1) -> None:
        self.log = CohortLog(nodes)
        self.cohort: CohortId = self.log.create()
        self.sessions = dict(zip(names, self.log.join(self.cohort, *names), strict=True))
        self.now_ms = 100_000
        self.liveness = CohortLiveness(GRACE_MS)
        self.liveness.begin(term, self.now_ms)
        self.removed: list[str] = []

    def seconds(self, count: int, **heard: list[str]) -> None:
        """Seconds in which node n1, n2, ... reports these members; removals are applied."""
        for _ in range(count):
            self.now_ms += 1_000
            for node, names in heard.items():
                made = report(*(self.sessions[name] for name in names))
                self.liveness.report(self.node(node), made, self.now_ms)
            self.tick()

    def node(self, text: str) -> NodeId:
        return NodeId(self.log.nodes[int(text[1:]) - 1])

    def tick(self) -> tuple[RemoveMembers, ...]:
        made = self.liveness.tick(self.log.state, self.now_ms)
        for command in made:
            self.removed += [item.name for item in command.members]
            assert {item.why for item in command.members} == {RemovalReason.SILENT}
            self.log.must(command)
        return made

    def connected(self) -> set[str]:
        return {*self.liveness.connected(self.log.state, self.cohort, self.now_ms)}


def test_a_member_is_connected_while_any_node_reports_it() -> None:
    scene = Scene("a", "b")
    scene.seconds(20, n1=["a"], n2=["b"])
    assert scene.connected() == {"a", "b"}
    scene.seconds(20, n2=["a", "b"])
    assert scene.connected() == {"a", "b"}, "its home is away, another node reports it"
    assert scene.removed == []


def test_a_silent_member_is_in_grace_and_then_removed_once() -> None:
    scene = Scene("a", "b")
    scene.seconds(20, n1=["a", "b"])
    scene.seconds(4, n1=["a"])
    assert scene.connected() == {"a"}
    assert scene.liveness.in_grace(scene.log.state, scene.cohort, scene.now_ms) == {"b"}
    scene.seconds(7, n1=["a"])
    assert scene.removed == []
    scene.seconds(30, n1=["a"])
    assert scene.removed == ["b"]
    assert {*scene.log.members(scene.cohort)} == {"a"}


def test_a_member_that_comes_back_within_its_grace_stays_and_nothing_is_written() -> None:
    scene = Scene("a")
    scene.seconds(20, n1=["a"])
    scene.seconds(9, n1=[])
    index = scene.log.at
    scene.seconds(60, n2=["a"])
    assert (scene.removed, scene.log.at) == ([], index), "P13, P31"


def test_the_node_that_stops_reporting_takes_its_members_after_their_grace_only() -> None:
    scene = Scene("a", "b")
    scene.seconds(20, n1=["a"], n2=["b"])
    scene.seconds(11, n2=["b"])
    assert scene.removed == []
    scene.seconds(5, n2=["b"])
    assert scene.removed == ["a"]


def test_a_new_leader_takes_everybody_for_connected_for_a_whole_grace() -> None:
    scene = Scene("a", "b")
    scene.seconds(40, n1=["a", "b"])
    scene.liveness.begin(2, scene.now_ms)
    scene.seconds(11)
    assert scene.connected() == {"a", "b"}
    assert scene.removed == [], "P14"
    scene.seconds(3, n1=["a"])
    assert scene.removed == ["b"]


def test_leaders_that_change_within_a_grace_remove_nobody() -> None:
    scene = Scene("a")
    for term in range(2, 12):
        scene.seconds(10)
        scene.liveness.begin(term, scene.now_ms)
    assert scene.removed == []


def test_a_leader_that_was_paused_begins_the_wait_again() -> None:
    """PB12: 60 s without a tick are its own silence."""
    scene = Scene("a", "b")
    scene.seconds(40, n1=["a", "b"])
    scene.now_ms += 60_000
    assert scene.tick() == ()
    scene.seconds(11)
    assert scene.removed == []
    assert PAUSE_MS < GRACE_MS_MIN, "else a pause that is not seen could be a grace"


def test_a_registration_counts_as_a_report() -> None:
    scene = Scene("a")
    scene.seconds(20, n1=["a"])
    (scene.sessions["late"],) = scene.log.join(scene.cohort, "late")
    scene.seconds(2, n1=["a"])
    assert scene.connected() == {"a", "late"}
    scene.seconds(9, n1=["a"])
    assert scene.removed == []
    scene.seconds(3, n1=["a"])
    assert scene.removed == ["late"]


def test_a_removal_is_about_the_session_that_was_silent() -> None:
    """PB11: it comes back under its name at the moment when its grace ends."""
    scene = Scene("a")
    scene.seconds(20, n1=["a"])
    late: tuple[RemoveMembers, ...] = ()
    while not late:
        scene.now_ms += 1_000
        late = scene.liveness.tick(scene.log.state, scene.now_ms)
    number = scene.cohort
    item = scene.log.item(number, "a", "new process", scene.sessions["a"])
    scene.log.must(RegisterMembers(members=(item,)))
    assert scene.log.took(late[0]) == ItemsTaken(count=0)
    assert "a" in scene.log.members(number)


def test_a_removal_without_an_answer_is_proposed_again_and_not_before() -> None:
    scene = Scene("a")
    scene.seconds(20, n1=["a"])
    proposed: list[int] = []
    for _ in range(40):
        scene.now_ms += 500
        if scene.liveness.tick(scene.log.state, scene.now_ms):
            proposed.append(scene.now_ms)
    gaps = {later - earlier for earlier, later in pairwise(proposed)}
    assert len(proposed) > 2
    assert gaps == {REPROPOSE_MS}


def test_a_digest_stands_for_the_list_that_was_sent_before() -> None:
    scene = Scene("a", "b")
    whole = report(scene.sessions["a"])
    short = SessionsReport(whole.digest, None, GRACE_MS)
    node = scene.node("n1")
    assert scene.liveness.report(node, short, scene.now_ms), "the leader does not know the list"
    assert not scene.liveness.report(node, whole, scene.now_ms)
    assert not scene.liveness.report(node, short, scene.now_ms + 1_000)
    other = report(scene.sessions["b"])
    assert scene.liveness.report(node, SessionsReport(other.digest, None, GRACE_MS), scene.now_ms + 2_000)
    with pytest.raises(ValueError, match="does not have its digest"):
        scene.liveness.report(node, SessionsReport(other.digest, whole.sessions, GRACE_MS), scene.now_ms)
    scene.liveness.begin(2, scene.now_ms + 3_000)
    assert scene.liveness.report(node, short, scene.now_ms + 3_000), "another leadership"


def test_the_grace_is_that_of_the_node_that_reported_last() -> None:
    scene = Scene("a")
    scene.seconds(1, n1=["a"])
    scene.liveness.report(scene.node("n2"), report(scene.sessions["a"], grace_ms=60_000), scene.now_ms + 1)
    scene.seconds(50)
    assert scene.removed == []
    scene.seconds(11)
    assert scene.removed == ["a"]


def test_whether_a_name_is_in_use_is_told_or_not_known() -> None:
    scene = Scene("a", "b")

    def ask(name: str) -> Presence:
        return scene.liveness.presence(scene.log.state, scene.sessions[name], scene.now_ms)

    scene.seconds(1, n1=["a"], n2=[], n3=[])
    assert ask("a") is Presence.UNKNOWN, "a leader of less than two seconds"
    scene.seconds(2, n1=["a"], n2=[])
    assert ask("a") is Presence.CONNECTED
    assert ask("b") is Presence.ABSENT, "node 3 reported within three seconds"
    scene.seconds(2, n1=["a"], n2=[])
    assert ask("b") is Presence.UNKNOWN, "node 3 may have it"
    assert PRESENCE_MS <= FRESH_MS


def test_a_herd_that_is_gone_leaves_in_few_entries() -> None:
    names = [f"m{number}" for number in range(1_100)]
    scene = Scene(*names[:500])
    scene.sessions |= dict(zip(names[500:], _join_all(scene, names[500:]), strict=True))
    scene.seconds(15)
    entries = scene.removed
    assert sorted(entries) == sorted(names)
    assert scene.liveness.tick(scene.log.state, scene.now_ms) == ()


def _join_all(scene: Scene, names: list[str]) -> list[MemberSession]:
    found = []
    for place in range(0, len(names), 512):
        found += scene.log.join(scene.cohort, *names[place : place + 512])
    return found


def test_who_does_not_lead_decides_nothing() -> None:
    scene = Scene("a")
    scene.seconds(5, n1=["a"])
    scene.liveness.end()
    assert not scene.liveness.leads
    assert scene.liveness.tick(scene.log.state, scene.now_ms + 90_000) == ()
    assert not scene.liveness.report(scene.node("n1"), report(), scene.now_ms)
    assert scene.liveness.presence(scene.log.state, scene.sessions["a"], scene.now_ms) is Presence.UNKNOWN
    with pytest.raises(AssertionError, match="began after term"):
        scene.liveness.begin(1, scene.now_ms)
