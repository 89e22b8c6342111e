"""`ringfence dev --demo-pipeline` tells its whole story: real nodes, a real Spark cluster, kills."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ringfence.control.cli.dev_story import StoryError
from ringfence.control.cli.local_cluster import LocalCluster
from ringfence.control.cli.pipeline_answers import QueryAnswer, digest
from ringfence.control.cli.pipeline_story import PipelineStory
from tests.harness.processes import cli

SCALE = "0.005"  # 37,604 rows


@pytest.mark.long(
    "test_demo_layout.py runs a demo with Spark; test_kills.py and test_cluster_kills.py kill its parts"
)
def test_every_engine_gives_the_same_answer_whatever_was_killed(tmp_path: Path) -> None:
    options = ("--scale", SCALE, "--data", str(tmp_path / "cluster"), "--json")
    done = cli("dev", "--nodes", "3", "--demo-pipeline", *options, timeout_s=1200)
    assert done.returncode == 0, done.stdout + done.stderr
    *scenes, summary = map(json.loads, done.stdout.splitlines())
    told = {scene["scene"]: scene["seen"] for scene in scenes}
    assert told["topics compared with files"].startswith(f"equal: {summary['rows']:,} rows")
    kills = summary["kills"]
    assert kills["executor"] >= 1
    assert (kills["node"], kills["driver"]) == (1, 1)
    answers = [QueryAnswer(**one) for one in summary["answers"]]
    assert len(answers) == 4
    assert summary["equal"]
    assert len({answer.digest for answer in answers}) == 1
    assert answers[0].rows > 10


def test_answers_that_differ_in_one_digit_fail_the_story(tmp_path: Path) -> None:
    import datetime as dt
    import decimal
    import threading

    day = dt.date(1995, 3, 1)
    rows = [(1, decimal.Decimal("10.0000"), day, 0), (2, decimal.Decimal("7.5"), day, 0)]
    wrong = [rows[0], (2, decimal.Decimal("7.5001"), day, 0)]
    assert digest(rows) == digest(reversed(rows))
    assert digest(rows)[1] != digest(wrong)[1]
    story = PipelineStory(LocalCluster(tmp_path, threading.Event()), tmp_path)
    for name, given in (("one", rows), ("two", rows)):
        story.add_answer(QueryAnswer(name, *digest(given), 0.0))
    story.check()
    story.add_answer(QueryAnswer("three", *digest(wrong), 0.0))
    with pytest.raises(StoryError, match="three"):
        story.check()
    assert not story.summary["equal"]
