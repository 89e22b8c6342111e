"""`ringfence dev --demo-layout` tells its whole story: real nodes, Spark, a kill, and each row proven."""

from __future__ import annotations

import json
import re
from pathlib import Path

from ringfence.control.cli.layout_story import COUNTS
from tests.harness.processes import cli


def test_one_partition_becomes_2_4_16_and_3_and_no_row_is_lost(tmp_path: Path) -> None:
    options = ("--scale", "0.005", "--data", str(tmp_path / "cluster"), "--json")
    done = cli("dev", "--nodes", "3", "--demo-layout", *options, timeout_s=900)
    assert done.returncode == 0, done.stdout + done.stderr
    scenes = {scene["scene"]: scene["seen"] for scene in map(json.loads, done.stdout.splitlines())}
    changes = {title: seen for title, seen in scenes.items() if re.search(r"becomes? [0-9]+", title)}
    assert [int(re.findall(r"becomes? ([0-9]+)", title)[0]) for title in changes] == list(COUNTS)
    assert all("longest wait" in seen for seen in changes.values())
    assert any("gap" in seen for seen in changes.values()), changes
    assert any("kill -9" in title for title in changes)
    assert "acknowledged rows, each present once" in scenes["all rows read again"]
    assert re.fullmatch(r"0 of [0-9,]+ sends", scenes["errors that a producer saw"])
    assert scenes["the writer with a name"].startswith(f"{len(COUNTS)} successors")
    rows = scenes["all rows read again"].split(" ")[0]
    assert scenes["Spark and Python read the same"].startswith(f"{rows} rows")
    assert scenes["all changes are finished"].startswith("3 take rows, ")
