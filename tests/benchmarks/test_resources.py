"""Ten thousand active partitions cost what one costs: the same calls and syncs, nearly the same work."""

from __future__ import annotations

import pytest

from benchmarks import resources


@pytest.mark.timeout(900)
def test_ten_thousand_partitions_cost_what_one_costs() -> None:
    one, many = (resources.count(partitions) for partitions in resources.PARTITIONS)
    assert many.syncs_per_mib == pytest.approx(one.syncs_per_mib, rel=0.02)
    assert many.writes_per_mib == pytest.approx(one.writes_per_mib, rel=0.02)
    assert many.written_bytes_per_body_byte == pytest.approx(one.written_bytes_per_body_byte, rel=0.02)
    if one.instructions_per_batch is not None:
        assert many.instructions_per_batch == pytest.approx(one.instructions_per_batch, rel=0.1)
