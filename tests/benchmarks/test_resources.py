"""Ten thousand active partitions cost what one costs: the same calls and syncs, nearly the same work.

Steps are compared with those of another commit by their instructions.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import resources
from benchmarks.native_build import build
from benchmarks.resources import Beside

# A build, then valgrind with fifty times the work, on two cores that others use, too.
pytestmark = pytest.mark.timeout(2400)


def test_ten_thousand_partitions_cost_what_one_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    # In the profile of `cargo test`, whose libraries it shares: both counts are of one program.
    micro = Path(build("dev", "micro")["micro"])
    monkeypatch.setenv("BENCHMARKS_PROGRAMS", str(micro.parent))
    one, many = (resources.count(partitions) for partitions in resources.PARTITIONS)
    assert many.syncs_per_mib == pytest.approx(one.syncs_per_mib, rel=0.02)
    assert many.writes_per_mib == pytest.approx(one.writes_per_mib, rel=0.02)
    assert many.written_bytes_per_body_byte == pytest.approx(one.written_bytes_per_body_byte, rel=0.02)
    if one.instructions_per_batch is not None:
        assert many.instructions_per_batch == pytest.approx(one.instructions_per_batch, rel=0.1)


def test_a_step_may_take_a_twentieth_more_than_before_and_must_be_counted() -> None:
    def beside(ratio: float | None) -> Beside:
        return Beside(step="ingest", partitions=1, now=105.0, before=100.0, ratio=ratio)

    assert resources.held([beside(0.9), beside(1.05)])
    assert not resources.held([beside(0.9), beside(1.051)])
    assert not resources.held([beside(None)])


def test_a_step_is_compared_by_its_instructions(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = {"now": 210.0, "then": 200.0}
    monkeypatch.setattr(resources, "programs", lambda: {"micro": "now"})
    monkeypatch.setattr(resources, "material", lambda _: ["--bodies", "none"])
    monkeypatch.setattr(resources, "instructions", lambda command, _: counted[command[0]])
    found = resources.beside("then", "ingest", 10_000, 20)
    assert found == Beside(step="ingest", partitions=10_000, now=210.0, before=200.0, ratio=1.05)
