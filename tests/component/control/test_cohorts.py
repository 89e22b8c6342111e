"""The leader's coordinator of cohorts over the product's log, modelled nodes and consumers, under faults.

Messages are lost, late and repeated; nodes lag, crash and start; consumers are killed, paused and replaced;
leaders change and are paused. Then it is quiet, and each run must end: see `tests.fakes.cohort_world`. Bugs
that are planted into the coordinator, into liveness and into what nodes derive are found.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from ringfence.control.model.cohorts import CohortMode, StartKind
from ringfence.control.state_machines.cohorts import coordinator, gates, liveness, planner, plans, reports
from tests.fakes.cohort_world import CohortWorld, run

RUNS = 12
# Runs that a planted bug may take; most need fewer than five.
RUNS_MAX = 25
LEADERS = 10
Patch = pytest.MonkeyPatch


def test_every_row_is_read_and_nothing_moves_over_changes_of_leaders() -> None:
    """F20, F25: 0 slices move while leaders change, counted."""
    seen, moved = Counter[str](), 0
    for seed in range(RUNS):
        world = run(seed)
        seen += world.seen
        moved += world.change_leaders(LEADERS)
    assert moved == 0, f"{moved} partitions moved over {RUNS * LEADERS} changes of leaders"
    for command, taken in (
        ("RegisterMembers", 100),
        ("RemoveMembers", 50),
        ("PublishPlan", 100),
        ("MarkDrained", 50),
        ("MarkBegun", 30),
        ("SeekCohort", 20),
        ("CommitLayout", 50),
        ("PrunePartitions", 20),
    ):
        assert seen[f"{command} taken"] >= taken, seen
    assert seen["moved"] > 200, seen
    assert seen["rows"] > 1_000, seen


def test_children_open_by_words_while_the_controller_is_away() -> None:
    """F25: no leader runs a round, no entry is written, and children are read after their parent."""
    world = CohortWorld(5, prunes=False)
    world.quiet = True
    number = world.create("s", CohortMode.STREAM, StartKind.EARLIEST)
    for name in ("a", "b"):
        world.new_process(name, "s")
    for _ in range(40):
        world.tick()
    part = world.active[0]
    world.rows[part.partition] += 50
    world._change(world.split(part))
    children = world.part(part.partition).children
    for child in children:
        world.rows[child] += 7
    for _ in range(60):  # the children are planned
        world.tick()
        if {*children} <= {one for share in world.slices(number).values() for one in share}:
            break
    world.is_led = False
    index = world.at
    for _ in range(200):
        world.tick()
    assert world.at == index
    key = (int(number), int(number))
    assert len(world.got[*key, int(part.partition)]) == 50
    assert [len(world.got.get((*key, int(child)), ())) for child in children] == [7, 7]


# ---- planted bugs -------------------------------------------------------------------------------------


def children_do_not_wait(patch: Patch) -> None:
    patch.setattr(gates, "waits_for", lambda *_: ())


def marks_once(patch: Patch) -> None:
    """What is lost is not told again."""
    due = reports.ProgressReports.due

    def planted(told: Any, missing: Any, now_ms: int) -> Any:
        before = {item for item, (_, count) in told._next.items() if count}
        return tuple(item for item in due(told, missing, now_ms) if item not in before)

    patch.setattr(reports.ProgressReports, "due", planted)


def heir_of_highest_slot(patch: Patch) -> None:
    """PB19, in what an owner tells."""

    def planted(parts: Any, number: Any) -> Any:
        while not parts[number].is_active:
            number = max(parts[number].children, key=lambda child: parts[child].slots)
        return number

    patch.setattr(gates, "heir", planted)


def paused_leader_evicts(patch: Patch) -> None:
    """PB12: a leader that was paused counts the pause as silence of others."""
    patch.setattr(liveness, "PAUSE_MS", 1 << 40)


def new_leader_evicts(patch: Patch) -> None:
    """P14: a new leader does not wait for a grace."""
    begin = liveness.CohortLiveness.begin

    def planted(view: Any, term: int, now_ms: int) -> None:
        begin(view, term, now_ms)
        view._since_ms = now_ms - liveness.GRACE_MS

    patch.setattr(liveness.CohortLiveness, "begin", planted)


def one_node_decides(patch: Patch) -> None:
    """A session that one node does not list is silent, although another one does."""
    last = liveness.CohortLiveness._last_reports

    def planted(view: Any) -> Any:
        listed = [frozenset(known.sessions) for known in view._nodes.values()]
        everywhere = frozenset.intersection(*listed) if listed else frozenset()
        return {session: heard for session, heard in last(view).items() if session in everywhere}

    patch.setattr(liveness.CohortLiveness, "_last_reports", planted)


def members_never_leave(patch: Patch) -> None:
    """A silent member is never removed: its partitions wait permanently."""
    patch.setattr(liveness.CohortLiveness, "_silent", lambda *_: ())


def late_member_waits(patch: Patch) -> None:
    """A member that comes back is planned only if a partition is unassigned."""

    def planted(desk: Any, state: Any, now_ms: int) -> None:
        before, desk._connected = desk._connected, {}
        for number, cohort in state.cohorts.items():
            now = desk._connected[number] = desk.liveness.connected(state, number, now_ms)
            if number in before and now != before[number] and plans.unassigned(state, cohort):
                desk.schedule.change(number, now_ms)

    patch.setattr(coordinator.CohortCoordinator, "_note_connected", planted)


def plan_is_not_sticky(patch: Patch) -> None:
    """Partitions are planned as if nobody had any."""
    whole = planner.plan

    def planted(order: Any, names: Any, held: Any, *rest: Any) -> Any:
        del held
        return whole(order, names, {}, *rest)

    patch.setattr(plans, "plan", planted)


PLANTED: dict[str, Callable[[Patch], None]] = {
    "children_do_not_wait": children_do_not_wait,
    "marks_once": marks_once,
    "heir_of_highest_slot": heir_of_highest_slot,
    "paused_leader_evicts": paused_leader_evicts,
    "new_leader_evicts": new_leader_evicts,
    "one_node_decides": one_node_decides,
    "members_never_leave": members_never_leave,
    "late_member_waits": late_member_waits,
    "plan_is_not_sticky": plan_is_not_sticky,
}


@pytest.mark.parametrize("bug", PLANTED)
def test_the_runs_find_each_planted_bug(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    PLANTED[bug](monkeypatch)
    for seed in range(RUNS_MAX):
        try:
            run(seed).change_leaders(2)
        except AssertionError:
            return
    pytest.fail(f"{bug} was not found in {RUNS_MAX} runs")
