"""A line for each script at the end of a run with `--raft-scripts`: passed, or failed at which command."""

from __future__ import annotations

from pathlib import Path

import pytest

REPORT = pytest.StashKey[list[str]]()


def report(config: pytest.Config, line: str) -> None:
    config.stash.setdefault(REPORT, []).append(line)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    folder: Path | None = config.getoption("--raft-scripts")
    if folder is None:
        return
    terminalreporter.section(f"scripts under {folder}")
    for line in config.stash.get(REPORT, []):
        terminalreporter.line(line)
