"""The short form of `make log-check`: no anomaly in what clients saw of a harmed cluster."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RUN = ("setpriv", "--pdeathsig", "KILL", sys.executable, "-m", "tests.chaos.log_check")
SECONDS = 20


@pytest.mark.timeout(1_500)
def test_clients_of_a_harmed_cluster_see_no_anomaly(soak: int, tmp_path: Path) -> None:
    options = ("--minutes", f"{SECONDS * soak / 60:.2f}", "--seed", "1", "--keep", str(tmp_path))
    done = subprocess.run([*RUN, *options], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-8000:]
    for topic in ("chaos", "cut", "forced"):
        told = re.search(
            rf"^{topic}: ([\d,]+) rows sent .*, ([\d,]+) rows at the end", done.stdout, re.MULTILINE
        )
        assert told is not None, done.stdout
        assert all(int(count.replace(",", "")) > 100 for count in told.groups()), done.stdout
    assert "1 forced owners" in done.stdout
    changed = re.search(r"([1-9]\d*) layout changes", done.stdout)
    assert changed is not None, done.stdout
