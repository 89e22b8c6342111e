"""A run that crashes says so, and where its threads were."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
CRASH = "from tests.chaos import sandbox; sandbox.prepare(); import ctypes; ctypes.string_at(0)"
RUN = "import sys; from tests.chaos.sandbox import run; sys.exit(run([sys.executable, *sys.argv[1:]]))"


def test_a_run_that_crashes_names_the_signal_and_the_place() -> None:
    done = subprocess.run(
        [sys.executable, "-c", RUN, "-c", CRASH], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 128 + 11, done.stderr
    assert "ended by SIGSEGV" in done.stderr
    assert "in string_at" in done.stderr


def test_the_exit_code_of_a_run_that_ends_by_itself_stays() -> None:
    done = subprocess.run(
        [sys.executable, "-c", RUN, "-c", "raise SystemExit(3)"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (3, "")
