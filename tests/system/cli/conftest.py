"""What tests of several commands share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.processes import NodeProcess


@pytest.fixture(scope="module")
def node(module_folder: Path) -> Iterator[NodeProcess]:
    """One node for all tests of a file; it must stop in order behind them."""
    with NodeProcess(module_folder / "node") as running:
        yield running
        assert running.stop() == 0
