"""Short forms of `make log-check`, without and with consumers: clients of a harmed cluster see no anomaly.

The run itself fails when a kind of fault has not struck, when no member saw rows on both sides of a split and
of a merge, when no owner of a gate changed, or when a cohort has no member that was killed.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RUN = ("setpriv", "--pdeathsig", "KILL", sys.executable, "-m", "tests.chaos.log_check")
SECONDS = 20
COHORTS = {
    "audit": "rows acknowledged",
    "mail": "rows acknowledged",
    "clean": "rows transformed",
    "store": "rows saved",
    "tail": "rows acknowledged",
}


@pytest.mark.timeout(1_500)
@pytest.mark.parametrize(
    "consumers",
    [
        pytest.param((), id="plain"),
        pytest.param(("--consumers",), id="consumers", marks=pytest.mark.long("the same without consumers")),
    ],
)
def test_clients_of_a_harmed_cluster_see_no_anomaly(
    soak: int, tmp_path: Path, consumers: tuple[str, ...]
) -> None:
    options = (*consumers, "--minutes", f"{SECONDS * soak / 60:.2f}", "--seed", "1", "--keep", str(tmp_path))
    done = subprocess.run([*RUN, *options], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-8000:]
    for topic in ("chaos", "cut", "forced"):
        counts = told(rf"^{topic}: ([\d,]+) rows sent .*, ([\d,]+) rows at the end", done.stdout)
        assert all(count > 100 for count in counts), done.stdout
    for cohort, what in COHORTS.items() if consumers else ():
        rows, killed = told(rf"^{cohort} .*: ([\d,]+) {what}.* (\d+) killed", done.stdout)
        assert (rows > 100, killed > 0) == (True, True), done.stdout
    assert "1 forced owners" in done.stdout
    kills, changes = told(r"(\d+) kill,.* (\d+) layout changes", done.stdout)
    assert (kills > 0, changes > 1) == (True, True), done.stdout


def told(pattern: str, output: str) -> tuple[int, ...]:
    """The numbers of the line that the pattern finds."""
    found = re.search(pattern, output, re.MULTILINE)
    assert found is not None, output
    return tuple(int(count.replace(",", "")) for count in found.groups())
