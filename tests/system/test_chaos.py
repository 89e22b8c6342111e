"""The short form of `make chaos`, and that nothing of a run outlives it."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.processes import until

ROOT = Path(__file__).parents[2]
# A test that is killed takes the run with it: the run's own sandbox dies with its parent, too.
RUN = ("setpriv", "--pdeathsig", "KILL", sys.executable, "-m", "tests.chaos")
SECONDS = 40


@pytest.mark.long("`make chaos MINUTES=2`, which CI runs behind `make test`")
@pytest.mark.timeout(1_500)
def test_no_row_is_lost_doubled_reordered_or_changed_whatever_happens_to_nodes(soak: int) -> None:
    done = subprocess.run(
        [*RUN, "--minutes", f"{SECONDS * soak / 60:.2f}", "--seed", "1"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-8000:]
    said = re.match(r"(\d+) faults .*\n(\d+) moves committed, .*\n([\d,]+) rows", done.stdout)
    assert said is not None, done.stdout
    faults, moves, rows = (int(count.replace(",", "")) for count in said.groups())
    assert (faults >= 8, moves >= 2, rows >= 250_000) == (True, True, True), done.stdout


@pytest.mark.timeout(300)
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_nothing_outlives_a_run_that_is_killed(how: signal.Signals) -> None:
    run = subprocess.Popen([*RUN, "--seed", "1"], cwd=ROOT, stderr=subprocess.PIPE, text=True)
    assert run.stderr is not None
    folder = ""
    try:
        for line in run.stderr:
            if found := re.search(r"nodes serve under (\S+)", line):
                folder = found[1]
                break
        assert folder, "it says where it runs"
        of_run = processes(folder)
        assert len([command for command in of_run.values() if "serve" in command]) == 4, of_run
        networks = {network(process) for process in of_run} - {network(os.getpid())}
        assert len(networks) == 5, "four hosts, and where their bridge is"
        inside = within(networks)
        assert loop_devices(folder) == 4
    finally:
        run.send_signal(how)
        run.wait(60)
        run.stderr.close()
    until(lambda: not processes(folder), 30, "its processes are gone")
    until(lambda: loop_devices(folder) == 0, 30, "its disks are gone")
    # By process: the number of a namespace that is gone may be another test's the next moment.
    until(lambda: not inside & within(networks), 30, "nobody is in its namespaces")
    assert folder not in Path("/proc/mounts").read_text()
    shutil.rmtree(folder, ignore_errors=True)  # logs alone: SIGKILL leaves nobody who could remove them


def processes(folder: str) -> dict[int, str]:
    """Process id -> command line of all that name `folder`."""
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            command = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if folder in command:
            found[int(path.name)] = command
    return found


def within(networks: set[str]) -> set[int]:
    """Process ids."""
    ids = (int(path.name) for path in Path("/proc").glob("[0-9]*"))
    return {process for process in ids if network(process) in networks}


def network(process: int) -> str:
    """The namespace of a process; "" if it is gone, or out of reach, as one of the run never is."""
    try:
        return str(Path(f"/proc/{process}/ns/net").readlink())
    except OSError:
        return ""


def loop_devices(folder: str) -> int:
    """How many have their image under `folder`."""
    listed = subprocess.run(
        ["losetup", "--list", "--noheadings", "--output", "BACK-FILE"],
        capture_output=True,
        text=True,
        check=True,
    )
    return listed.stdout.count(folder)
