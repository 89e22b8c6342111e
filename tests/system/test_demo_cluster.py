"""`ringfence dev --demo-cluster` tells its whole story, with real processes."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tests.harness.processes import cli


def test_the_cluster_changes_and_no_row_is_lost(tmp_path: Path) -> None:
    options = ("--scale", "0.005", "--data", str(tmp_path / "cluster"), "--json")
    done = cli("dev", "--nodes", "3", "--demo-cluster", *options, timeout_s=400)
    assert done.returncode == 0, done.stdout + done.stderr
    scenes = {scene["scene"]: scene["seen"] for scene in map(json.loads, done.stdout.splitlines())}
    told = " ".join(scenes)
    for part in ("joins", "kill -9 of node", "kill -9 of the leader", "drained and leaves"):
        assert part in told, scenes
    assert "acknowledged rows, each present once" in scenes["all rows read again"]
    counted = re.fullmatch(r"0 of ([\d,]+) sends", scenes["errors that a producer saw"])
    assert counted is not None, scenes
    assert int(counted[1].replace(",", "")) > 100, "too few sends to say anything"
