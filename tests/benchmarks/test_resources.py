"""Ten thousand active partitions cost what one costs: the same calls and syncs, nearly the same work."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import resources
from benchmarks.native_build import build

# A cold build of a release, then valgrind with fifty times the work, on two cores that others use, too.
pytestmark = pytest.mark.timeout(2400)


def test_ten_thousand_partitions_cost_what_one_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    # The release's, whose instructions are counted; but this one alone, for each is optimized whole.
    micro = Path(build("release", "micro")["micro"])
    monkeypatch.setenv("BENCHMARKS_PROGRAMS", str(micro.parent))
    one, many = (resources.count(partitions) for partitions in resources.PARTITIONS)
    assert many.syncs_per_mib == pytest.approx(one.syncs_per_mib, rel=0.02)
    assert many.writes_per_mib == pytest.approx(one.writes_per_mib, rel=0.02)
    assert many.written_bytes_per_body_byte == pytest.approx(one.written_bytes_per_body_byte, rel=0.02)
    if one.instructions_per_batch is not None:
        assert many.instructions_per_batch == pytest.approx(one.instructions_per_batch, rel=0.1)
