"""tracker/progress_cases.json: etcd's table tests of one follower's progress, as data."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ringfence.control.consensus import describe, joint_consensus
from ringfence.control.consensus.messages import ConfigurationState
from ringfence.control.consensus.progress import Progress, ProgressState
from ringfence.control.consensus.tracker import Tracker
from ringfence.control.consensus.window import Window

STATES = {
    "StateProbe": ProgressState.PROBE,
    "StateReplicate": ProgressState.REPLICATE,
    "StateSnapshot": ProgressState.SNAPSHOT,
}
NAMES = {state: name for name, state in STATES.items()}
RESTORED_LAST_INDEX = 10


def is_tracker_file(path: Path) -> bool:
    try:
        data = json.loads(path.read_text())
    except ValueError:
        return False
    return isinstance(data, dict) and "maybe_update" in data


def differences(path: Path) -> Iterator[tuple[str, str, str]]:
    """(case, expected, got) of every case that differs."""
    for name, expected, got in results(path):
        if expected != got:
            yield name, expected, got


def results(path: Path) -> Iterator[tuple[str, str, str]]:
    """(case, expected, got) of every case. A table that is not known is a difference, not passed over."""
    for table, cases in json.loads(path.read_text()).items():
        if table == "source":
            continue
        rows = cases["cases"] if isinstance(cases, dict) else cases
        for at, case in enumerate(rows):
            check = _TABLES.get(table)
            name = f"{table}[{at}]"
            if check is None:
                yield name, "a table that is known", table
                continue
            yield from ((f"{name} {what}", str(expected), str(got)) for what, expected, got in check(case))


Checks = Iterator[tuple[str, object, object]]


def _progress(case: dict[str, Any]) -> Progress:
    inflight = case.get("inflights", [])
    window = Window(case.get("inflightsSize", 256))
    for index in inflight:
        window.add(index)
    progress = Progress(
        next_index=case.get("next", 0),
        window=window,
        match=case.get("match", 0),
        is_learner=case.get("isLearner", False),
    )
    progress.state = STATES[case.get("state", "StateProbe")]
    progress.pending_snapshot = case.get("pendingSnapshot", 0)
    progress.recent_active = case.get("recentActive", False)
    progress.pause = case.get("flowPaused", False)
    return progress


def _expected(case: dict[str, Any], progress: Progress) -> Checks:
    got = {
        "state": NAMES[progress.state],
        "match": progress.match,
        "next": progress.next,
        "pendingSnapshot": progress.pending_snapshot,
    }
    for name, value in got.items():
        if f"expect_{name}" in case:
            yield name, case[f"expect_{name}"], value


def _string(case: dict[str, Any]) -> Checks:
    yield "text", case["expect"], describe.progress(_progress(case))


def _is_paused(case: dict[str, Any]) -> Checks:
    yield "paused", case["expect"], _progress(case).is_paused()


def _resume(_case: dict[str, Any]) -> Checks:
    progress = Progress(next_index=2, window=Window(256))
    progress.pause = True
    progress.maybe_decrease(1, 1)
    yield "after maybe_decr", False, progress.pause
    progress.pause = True
    progress.maybe_update(2)
    yield "after maybe_update", False, progress.pause


def _become(act: Callable[[Progress, dict[str, Any]], object]) -> Callable[[dict[str, Any]], Checks]:
    def check(case: dict[str, Any]) -> Checks:
        progress = _progress(case)
        answer = act(progress, case)
        if "expect_ok" in case:
            yield "ok", case["expect_ok"], answer
        yield from _expected(case, progress)

    return check


def _restored(case: dict[str, Any]) -> Checks:
    given: dict[str, Any] = {name: tuple(ids) for name, ids in case.items()}
    tracker = Tracker(inflight_max=20)

    def new(*, is_learner: bool) -> Progress:
        return tracker.new_progress(RESTORED_LAST_INDEX, is_learner=is_learner)

    tracker.switch(*joint_consensus.restored(ConfigurationState(**given), new))
    got = tracker.configuration.state()
    for name in ("voters", "voters_outgoing", "learners", "learners_next"):
        yield name, sorted(given.get(name, ())), sorted(getattr(got, name))
    yield "auto_leave", False, got.auto_leave


_TABLES: dict[str, Callable[[dict[str, Any]], Checks]] = {
    "string": _string,
    "is_paused": _is_paused,
    "resume": _resume,
    "become_probe": _become(lambda progress, _case: progress.become_probe()),
    "become_replicate": _become(lambda progress, _case: progress.become_replicate()),
    "become_snapshot": _become(lambda progress, case: progress.become_snapshot(case["arg"])),
    "maybe_update": _become(lambda progress, case: progress.maybe_update(case["arg"])),
    "maybe_decr": _become(lambda progress, case: progress.maybe_decrease(case["rejected"], case["hint"])),
    "conf_state_restore_roundtrip": _restored,
}
