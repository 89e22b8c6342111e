"""The short form of `make demo-cohort`: real nodes and members, kills, and each row judged."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
RUN = ("setpriv", "--pdeathsig", "KILL", sys.executable, "-m", "tests.chaos.cohort_demo", "--short")


@pytest.mark.timeout(600)
def test_members_go_on_while_nodes_and_members_die_and_a_partition_splits(tmp_path: Path) -> None:
    done = subprocess.run(
        [*RUN, "--keep", str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr[-8000:]
    written = re.search(r"rows written: (\d[\d,]*\d),", done.stdout)
    assert written is not None, done.stdout
    assert int(written[1].replace(",", "")) > 1_000
    for cohort in ("billing (STREAM)", "mails (QUEUE)"):
        assert re.search(rf"{re.escape(cohort)}: .* {written[1]} acknowledged", done.stdout), done.stdout
    assert "kill -9: 1 nodes, 2 members; SIGSTOP: 1 leaders, 1 members" in done.stdout
    assert "layout changes: 1" in done.stdout
    assert "every acknowledged row once, every other again, each key in order" in done.stdout
