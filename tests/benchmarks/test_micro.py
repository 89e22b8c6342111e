"""`pytest benchmarks` is collected and runs (C6); only ratios of times in one run have limits."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.native_build import build
from tests.conftest import ROOT

MEASURED = ("route_and_fence", "slots", "group", "gather", "pack", "decode", "validate", "dedupe")
"""What CONTRIBUTING.md names; one that is renamed or not collected is missed."""


@pytest.mark.timeout(900)  # a cold build
def test_the_micro_set_runs_from_the_checkout() -> None:
    programs = build("dev", "micro")
    environment = {**os.environ, "BENCHMARKS_PROGRAMS": str(Path(programs["micro"]).parent)}
    options = ("-v", "--benchmark-disable", "-p", "no:cacheprovider")
    command = (sys.executable, "-m", "pytest", "benchmarks", *options)
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4_000:]
    passed = re.findall(r"^benchmarks/micro/\S+::(.+) PASSED", done.stdout, re.MULTILINE)
    missed = [what for what in MEASURED if not any(what in name for name in passed)]
    assert not missed, (missed, passed)
