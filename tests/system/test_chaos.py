"""The short form of `make chaos`: a minute of harm to four nodes while partitions move."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.timeout(600)
def test_no_row_is_lost_doubled_or_moved_whatever_happens_to_nodes(soak: int) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.chaos", "--minutes", str(soak), "--seed", "1"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    assert "moves committed" in done.stdout
