"""Workloads are data that cannot contradict itself."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pytest

from benchmarks import workload
from benchmarks.dataset import batches_of
from benchmarks.engines import ENGINES
from benchmarks.trials import TRIALS

if TYPE_CHECKING:
    from pathlib import Path

ALL = workload.load_all()


@pytest.mark.parametrize("name", sorted(ALL))
def test_a_workload_names_known_engines_and_transports(name: str) -> None:
    found = ALL[name]
    assert set(found.engines) <= ENGINES.keys()
    assert set(found.transports) <= {"tcp", "ipc"}
    assert "limit" in found.engines
    assert not found.trial or found.trial in TRIALS


def test_the_big_workload_has_bodies_of_eight_mebibytes() -> None:
    sizes = [batch.serialize().size for batch in batches_of(ALL["lineitem_8mib"])]
    assert all(abs(size - (8 << 20)) < 0.01 * (8 << 20) for size in sizes)


def test_rows_that_do_not_add_up_are_refused() -> None:
    with pytest.raises(ValueError, match=r"workload row_1: .* rows are not 5"):
        dataclasses.replace(ALL["row_1"], rows_expected=5)


def test_a_window_that_the_lanes_cannot_fill_is_refused() -> None:
    with pytest.raises(ValueError, match="are less than 65"):
        dataclasses.replace(ALL["lineitem_1000"], window=65)


def test_an_unknown_key_is_named(tmp_path: Path) -> None:
    path = tmp_path / "odd.toml"
    path.write_text("windw = 3\n")
    with pytest.raises(ValueError, match=r"odd\.toml: unknown keys \['windw'\]"):
        workload.load(path)
