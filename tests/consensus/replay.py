"""Run every script under a folder and say of each file whether it passed, or at which command it did not."""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.consensus import confchange_scripts, interaction, quorum_scripts, tracker_cases
from tests.consensus.confchange_scripts import ChangeScript
from tests.consensus.datadriven import Case, ScriptSyntaxError, cases_of
from tests.consensus.environment import Environment

_CHATTER = re.compile(r"^ *(DEBUG|INFO|WARN|ERROR) .*\n", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one file."""

    path: Path
    cases: int
    """Cases that ran and were as expected."""
    failure: str = ""
    """Where it failed, with expected and got; empty if it passed."""
    chatter: int = 0
    """Cases in which only log lines differ."""

    @property
    def passed(self) -> bool:
        return not self.failure

    def line(self, folder: Path) -> str:
        name = self.path.relative_to(folder) if self.path.is_relative_to(folder) else self.path
        if self.failure:
            return f"{name} failed {self.failure}"
        level = f"log lines differ in {self.chatter}" if self.chatter else "exact"
        return f"{name} passed ({self.cases} cases, {level})"


def scripts_under(folder: Path) -> list[Path]:
    """All scripts of a folder, at any depth: text files, and the tracker's tables."""
    tables = [path for path in folder.rglob("*.json") if tracker_cases.is_tracker_file(path)]
    return sorted([*folder.rglob("*.txt"), *tables])


def replay(path: Path) -> Outcome:
    """Run one file. A crash of the harness or of a node is a failure of the file, and says where."""
    if path.suffix == ".json":
        return _replay_tables(path)
    try:
        cases = cases_of(path)
    except (ScriptSyntaxError, UnicodeDecodeError) as error:
        return Outcome(path, 0, f"to be read: {error}")
    if not cases:
        return Outcome(path, 0, "to be read: it has no case")
    run = runner(cases)
    passed = chatter = 0
    for case in cases:
        try:
            got = run(case)
        except Exception:  # noqa: BLE001 -- whatever it is, it belongs to this file's report
            got = "crashed: " + traceback.format_exc()
        if got and not got.endswith("\n"):
            got += "\n"
        if got != case.expected:
            if _CHATTER.sub("", got) != _CHATTER.sub("", case.expected):
                return Outcome(path, passed, difference(case, got), chatter)
            chatter += 1
        passed += 1
    return Outcome(path, passed, chatter=chatter)


def runner(cases: list[Case]) -> Callable[[Case], str]:
    """What runs the cases of one file, by the commands that it uses."""
    commands = {case.command for case in cases}
    if commands & quorum_scripts.COMMANDS:
        return quorum_scripts.run
    if commands & confchange_scripts.COMMANDS:
        return ChangeScript().run
    environment = Environment()
    return lambda case: interaction.run(environment, case)


def difference(case: Case, got: str) -> str:
    return f"at line {case.line}, {case.command!r}\n--- expected\n{case.expected}--- got\n{got}---"


def _replay_tables(path: Path) -> Outcome:
    count = len(list(tracker_cases.results(path)))
    for name, expected, got in tracker_cases.differences(path):
        return Outcome(path, 0, f"at {name}\n--- expected\n{expected}\n--- got\n{got}\n---")
    return Outcome(path, count)
