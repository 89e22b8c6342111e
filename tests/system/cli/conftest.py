"""What tests of several commands share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.harness.processes import NodeProcess


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """One node for all tests of a file; it must stop in order behind them."""
    with NodeProcess(tmp_path_factory.mktemp("node") / "data") as running:
        yield running
        assert running.stop() == 0
