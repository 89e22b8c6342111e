"""Every verdict equals the label of the public histories; the program says so line by line."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from tests.checker import check
from tests.checker.files import judge, read
from tests.checker.models import Get
from tests.checker.search import Verdict
from tests.conftest import ROOT, public_data


def labels(folder: Path) -> Iterator[tuple[str, Verdict]]:
    for history in json.loads((folder / "labels.json").read_text())["histories"]:
        yield history["path"], Verdict.OK if history["linearizable"] else Verdict.VIOLATION


def differing(folder: Path) -> list[tuple[str, Verdict]]:
    """Jepsen histories whose verdict is not their label."""
    judged = [
        (path, judge(folder / path).verdict, label) for path, label in labels(folder) if "jepsen" in path
    ]
    return [(path, verdict) for path, verdict, label in judged if verdict is not label]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.checker", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_every_label_is_met_line_by_line() -> None:
    folder = public_data("porcupine")
    ran = run(str(folder))
    expected = [f"{path} {label.value}" for path, label in labels(folder)]
    assert sorted(ran.stdout.splitlines()) == sorted(expected)
    assert len(expected) >= 50
    assert (ran.returncode, ran.stderr) == (0, "")


def test_a_wrong_answer_among_1712_is_found() -> None:
    model, operations = read(public_data("porcupine") / "kv" / "c50-ok.txt")
    gets = [
        place
        for place, operation in enumerate(operations)
        if isinstance(operation.call, Get) and len(operation.result) > 30
    ]
    place = gets[len(gets) // 2]
    told = operations[place].result
    for wrong in (told[:-1], told + "x", told[: len(told) // 2]):
        operations[place] = replace(operations[place], result=wrong)
        assert check(model, operations).verdict is Verdict.VIOLATION


def test_a_folder_is_searched_and_what_holds_no_history_passed_over(tmp_path: Path) -> None:
    deep = tmp_path / "a" / "b"
    deep.mkdir(parents=True)
    event = "INFO  jepsen.util - 0 :invoke :write 1\nINFO  jepsen.util - 0 :ok :write 1\n"
    (deep / "good.log").write_text("INFO chatter\n" + event)
    (deep / "bad").write_text(
        event + "INFO  jepsen.util - 7\t:invoke\t:read\tnil\nINFO  jepsen.util - 7\t:ok\t:read\t3\n"
    )
    (tmp_path / "README.md").write_text("about them")
    (tmp_path / "empty.log").write_bytes(b"")
    (tmp_path / "noise.bin").write_bytes(bytes(range(256)) * 40)
    ran = run(str(tmp_path))
    assert ran.stdout.splitlines() == ["a/b/bad violation", "a/b/good.log ok"]
    assert ran.returncode == 0
    assert run(str(deep / "bad"), "--why").stderr.startswith("bad: 1 of 2 operations")


def test_a_history_that_contradicts_itself_is_not_judged(tmp_path: Path) -> None:
    (tmp_path / "returns.log").write_text("INFO  jepsen.util - 0 :ok :write 1\n")
    (tmp_path / "torn.txt").write_text(
        '{:process 0, :type :invoke, :f :get, :key "1", :value nil}\n{:process 0, :type'
    )
    ran = run(str(tmp_path))
    assert ran.stdout.splitlines() == ["returns.log undecided", "torn.txt undecided"]
    assert ran.returncode == 2
    assert "line 1: process 0 returns without a call" in ran.stderr
    assert "line 2 is no event" in ran.stderr


def test_without_a_history_there_is_no_verdict(tmp_path: Path) -> None:
    assert run(str(tmp_path)).returncode == 2
    assert run(str(tmp_path / "missing")).returncode == 2
