"""What trials share: a directory, and the command of a node in it."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from benchmarks.engines.ours import program
from benchmarks.paths import work_directory

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.workload import Workload


def directory_of(workload: Workload) -> Path:
    """An empty directory for this trial."""
    directory = work_directory() / f"trial-{workload.name}"
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    return directory


def options_of(directory: Path, workload: Workload) -> list[str]:
    """`serve` and its options, for a node over tcp with an empty store."""
    options = ["serve", "--json", "--data", str(directory / "data"), "--listen", "tcp://127.0.0.1:0"]
    return [*options, *workload.options]


def command_of(directory: Path, workload: Workload) -> list[str]:
    """The installed program with these options."""
    return [program(), *options_of(directory, workload)]
