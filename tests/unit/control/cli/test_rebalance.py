"""`rebalance` and the other commands that start runs: their waits and exit codes, through either API."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ringfence.control.cli import endpoint, rebalance
from ringfence.control.cli.exit_codes import Exit
from ringfence.control.cli.program import run
from ringfence.native.errors import ConnectError

RUN = {
    "run": 7,
    "action": "drain",
    "node": 4,
    "outcome": "",
    "why": "",
    "policy": None,
    "counts": {},
    "eta_s": None,
    "held": 0,
    "waits": [],
    "moves": [],
    "gaps": {},
    "reversible": [],
}


def shown(state: str, **more: Any) -> dict[str, Any]:
    return {**RUN, "state": state, **more}


class Told:
    """An API that gives one answer after the other, the last one forever."""

    def __init__(self, *answers: dict[str, Any], runs: tuple[dict[str, Any], ...] = ()) -> None:
        self.answers, self.runs = list(answers), runs

    def show(self) -> dict[str, Any]:
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

    def history(self) -> dict[str, Any]:
        return {"runs": list(self.runs)}


@pytest.mark.parametrize(
    ("answers", "runs", "code"),
    [
        ([shown("RUNNING"), shown("IDLE", outcome="DONE")], (), Exit.OK),
        ([shown("IDLE", outcome="DONE", held=2)], (), Exit.DEGRADED),
        ([shown("RUNNING"), shown("CANCELLING"), shown("IDLE", outcome="CANCELLED")], (), Exit.DEGRADED),
        # The node that is asked lags: it still shows the run before.
        ([shown("IDLE", run=5, outcome="DONE"), shown("IDLE", outcome="GIVEN_UP")], (), Exit.DEGRADED),
        # The next run has begun before anybody looked.
        ([shown("RUNNING", run=9)], (shown("IDLE", outcome="DONE"),), Exit.OK),
        ([shown("RUNNING", run=9)], (shown("IDLE", outcome="GIVEN_UP"),), Exit.DEGRADED),
    ],
)
def test_who_waits_hears_of_this_runs_end_and_whether_all_was_moved(
    answers: list[dict[str, Any]],
    runs: tuple[dict[str, Any], ...],
    code: Exit,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(rebalance, "POLL_S", 0.0)
    api: Any = Told(*answers, runs=runs)
    assert rebalance.start_run(api, lambda: 7, as_json=True, wait=True) == code
    assert json.loads(capsys.readouterr().out)["run"] == 7


def test_without_wait_the_run_is_told_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    api: Any = Told(shown("RUNNING"))
    assert rebalance.start_run(api, lambda: 7, as_json=True, wait=False) == Exit.OK
    assert json.loads(capsys.readouterr().out) == {"run": 7, "waits": []}


class Silent(Told):
    """An API without answers."""

    def show(self) -> dict[str, Any]:
        raise ConnectError("nobody answers")


@pytest.mark.parametrize(
    ("api", "line"),
    [
        (Told(shown("RUNNING", waits=["node 2", "node 3"])), "waiting for: node 2; node 3"),
        (Told(shown("RUNNING", run=5, waits=["node 2"])), None),
        (Silent(shown("RUNNING")), None),
    ],
)
def test_what_a_run_waits_for_is_told_at_once_where_it_is_known(
    api: Any, line: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert rebalance.start_run(api, lambda: 7, as_json=False, wait=False) == Exit.OK
    first, *more = capsys.readouterr().out.splitlines()
    assert (first.startswith("rebalance 7 is running"), more) == (True, [line] if line else [])


@pytest.mark.parametrize("state", ["RUNNING", "IDLE"])
def test_a_run_that_moves_nothing_says_so(state: str, capsys: pytest.CaptureFixture[str]) -> None:
    api: Any = Told(shown(state, action="balance"))
    assert rebalance.start_run(api, lambda: 7, as_json=False, wait=False) == Exit.OK
    assert capsys.readouterr().out == "rebalance 7: nothing is to be moved\n"
    api = Told(shown("IDLE", outcome="DONE"))
    assert rebalance.start_run(api, lambda: 7, as_json=False, wait=True) == Exit.OK
    assert "IDLE (DONE): nothing to move\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("start", "add_node", "5"), "(5); try `add_node --node 5`"),
        (("preview", "drain", "5"), "(5); try `drain --node 5`"),
        (("start", "move", "7:2", "8:3"), "(7:2 8:3); try `move --move 7:2`"),
        (("start", "balance", "5"), "got unexpected extra argument (5)"),
        (("start", "add_node", "north"), "got unexpected extra argument (north)"),
    ],
)
def test_an_argument_that_is_an_option_is_told_which(
    given: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["rebalance", *given]) == Exit.USAGE
    told = capsys.readouterr().err
    assert said in told
    assert ("try `" in told) == ("try `" in said)


@pytest.mark.parametrize("as_json", [False, True])
def test_who_waits_sees_how_far_it_is(
    as_json: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(rebalance, "POLL_S", 0.0)
    monkeypatch.setattr(rebalance, "REPORT_S", 0.0)
    answers = shown("RUNNING", run=5), shown("RUNNING", waits=["node 2"]), shown("IDLE", outcome="DONE")
    api: Any = Told(*answers)
    rebalance.start_run(api, lambda: 7, as_json=as_json, wait=True)
    said = capsys.readouterr().err.splitlines()
    lines = [
        "waiting until the node has the run in its metadata",
        "RUNNING: 0 of 0 moved, 0 B, waiting for: node 2",
    ]
    assert said == ([] if as_json else lines)


class Agrees:
    """An admin API that takes every change."""

    def __init__(self, *_: Any) -> None:
        """Whatever the address."""

    def change(self, method: str, path: str) -> None:
        assert (method, path) == ("DELETE", "/admin/nodes/6")


def test_who_took_a_node_out_is_told_to_stop_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(endpoint, "Admin", Agrees)
    assert run(["node", "remove", "6"]) == Exit.OK
    assert capsys.readouterr().out == "node 6: removed; now stop its process\n"


def test_ids_are_shown_as_options_take_them(capsys: pytest.CaptureFixture[str]) -> None:
    plan = {"count": 1, "moves": [{"partition": 1_441_794, "from": [1_000], "to": [2_000]}]}
    rebalance._show_plan(plan, as_json=False)
    said = capsys.readouterr().out
    assert said.startswith("1 move\n")
    assert "1441794" in said
    move = {**dict.fromkeys(rebalance.COLUMNS), "partition": 1_441_794, "rows": 1_234}
    rebalance._show(shown("RUNNING", moves=[move]), as_json=False)
    said = capsys.readouterr().out
    assert "1441794" in said
    assert "1,234" in said


NONE, LONG = "no batch was acknowledged", "for 1.5 ms (median), 9.0 ms (maximum)"
REVERTS, BY = "`rebalance reverse` reverts", "by number, for example `rebalance reverse 4`"


def kept(partition: int, run_: int, to: int = 2) -> dict[str, Any]:
    return {"partition": partition, "run": run_, "from": [1], "to": [to]}


@pytest.mark.parametrize(
    ("told", "line"),
    [
        (
            {"reversible": [kept(7, 3), kept(8, 3), kept(9, 3), kept(4, 2), kept(5, 2), kept(6, 2, to=1)]},
            f"{REVERTS} 3 changes of rebalance 3; 2 changes of earlier rebalances {BY}: partitions 4, 5",
        ),
        ({"reversible": [kept(7, 3)]}, f"{REVERTS} 1 change of rebalance 3"),
        (
            {"gaps": {"count": 1, "p50_us": 1_500, "p99_us": 1_500, "max_us": 1_500}},
            f"1 partition changed its owner: {NONE} there for 1.5 ms",
        ),
        (
            {"gaps": {"count": 4, "p50_us": 1_500, "p99_us": 9_000, "max_us": 9_000}},
            f"4 partitions changed their owners: {NONE} {LONG}",
        ),
        (
            {"waits": [f"node {number}" for number in range(7)]},
            "waiting for: node 0; node 1; node 2; node 3; node 4; and 2 more",
        ),
    ],
)
def test_the_end_of_a_run_is_told_in_words(
    told: dict[str, Any], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    rebalance._show(shown("IDLE", outcome="DONE", **told), as_json=False)
    assert line in capsys.readouterr().out.splitlines()


def test_the_history_says_how_long_the_longest_gap_was(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    gaps = {"count": 2, "p50_us": 10, "p99_us": 2_500, "max_us": 2_500}
    api = Told(shown("IDLE"), runs=(shown("IDLE", gaps=gaps), shown("IDLE")))
    monkeypatch.setattr("ringfence.control.cli.rebalance_api._open", lambda *_: api)
    assert run(["rebalance", "history"]) == Exit.OK
    said = capsys.readouterr().out
    assert "longest gap" in said
    assert "2.5 ms" in said
    assert "count" not in said.replace("counts", "")


COMMANDS = ["start", "preview", "status", "history", "reverse", "pause", "resume", "cancel"]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_rebalance_command_has_an_example_json_and_both_doors(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["rebalance", name, "--help"]) == Exit.OK
    said = capsys.readouterr().out
    for part in (f"ringfence rebalance {name}", "--json", "--http", "--control", "--token-file"):
        assert part in said
