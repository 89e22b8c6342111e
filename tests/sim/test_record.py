"""A record of seeds goes on where it stopped, and counts those of its own code only."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tests.sim import record

SEEDS = range(1, 4)
SECONDS = 1


@pytest.fixture
def code(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The code's hash, which a test may change."""
    known = ["first"]
    monkeypatch.setattr(record, "revision", lambda: (known[0], "abc1234"))
    return known


def test_a_run_goes_on_where_the_last_one_stopped(tmp_path: Path, code: list[str]) -> None:
    file = tmp_path / "seeds.jsonl"
    assert list(record.go_on(file, SEEDS, SECONDS, minutes=0)) == [1]
    before = file.read_bytes()
    file.write_bytes(before + b'{"code":"first","rev')  # killed in the middle of a line
    found = record.go_on(file, SEEDS, SECONDS)
    assert sorted(found) == list(SEEDS)
    assert record.go_on(tmp_path / "at_once.jsonl", SEEDS, SECONDS, jobs=2).keys() == found.keys()
    assert file.read_bytes().startswith(before) and file.read_bytes().endswith(b"\n")
    assert record.known(file, code[0], SECONDS) == found
    size = file.stat().st_size
    assert record.go_on(file, SEEDS, SECONDS) == found
    assert file.stat().st_size == size, "nothing was left to run"


def test_seeds_of_other_code_or_length_do_not_count(tmp_path: Path, code: list[str]) -> None:
    file = tmp_path / "seeds.jsonl"
    record.go_on(file, range(1, 2), SECONDS)
    code[0] = "second"
    assert record.known(file, code[0], SECONDS) == {}
    assert sorted(record.go_on(file, range(1, 2), SECONDS)) == [1]
    assert len(file.read_bytes().splitlines()) == 2
    assert record.known(file, code[0], SECONDS + 1) == {}


def test_the_row_names_the_revision_the_sums_and_what_broke() -> None:
    line = record.Line(
        code="first",
        revision="abc1234",
        seed=7,
        seconds=10,
        is_counted=True,
        events=1_500,
        faults=20,
        violation="",
        cpu_s=0.5,
    )
    clean = record.summary([line], range(7, 9))
    assert clean.startswith("| 7..8 | abc1234 | 1 | 1,500 | 20 | 0; 120 seeds a minute of one core |")
    assert clean.endswith("1 of 2 seeds have run")
    broken = record.summary([msgspec.structs.replace(line, violation="I5: gone")], range(7, 8))
    assert "1: 7 (I5: gone)" in broken


def test_code_that_is_not_committed_has_no_revision(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "_git", lambda *arguments: " M core/x.rs" if "status" in arguments else "")
    with pytest.raises(record.CodeChangedError, match=r"core/x\.rs"):
        record.revision()
