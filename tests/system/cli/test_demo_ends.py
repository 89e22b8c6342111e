"""A demo that a signal ends stops its nodes and removes its folders: `timeout` and CI send SIGTERM."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from ringfence.control.cli.exit_codes import Exit
from tests.harness.children import children, signals_not_ignored
from tests.harness.processes import PROGRAM, until


@pytest.mark.parametrize(
    ("command", "begun", "number"),
    [
        ("demo --scale 0.3 --no-spark", "Python writes", signal.SIGTERM),
        ("demo --scale 0.3 --no-spark", "Python writes", signal.SIGINT),
        ("demo --scale 0.3 --no-spark", "Python writes", signal.SIGHUP),
        ("dev --demo-cluster --scale 0.01", "undisturbed", signal.SIGTERM),
        ("dev --demo-pipeline --scale 0.01", "two topics", signal.SIGINT),
    ],
)
def test_a_signal_ends_a_demo_with_its_nodes_and_its_folders(
    command: str, begun: str, number: signal.Signals, tmp_path: Path
) -> None:
    folder, log = tmp_path / "tmp", tmp_path / "log"
    folder.mkdir()
    with log.open("wb") as said, signals_not_ignored():
        demo = subprocess.Popen(
            [PROGRAM, *command.split()],
            stdout=subprocess.DEVNULL,
            stderr=said,
            env={**os.environ, "TMPDIR": str(folder)},
        )
    try:
        until(lambda: begun in log.read_text(), what="rows on their way", timeout_s=240)
        assert children(folder), "its node runs there"
        demo.send_signal(number)
        assert demo.wait(120) == Exit.INTERRUPTED, log.read_text()
    finally:
        demo.kill()
    until(lambda: not children(folder), what="nobody runs there any more", timeout_s=60)
    assert list(folder.iterdir()) == []
