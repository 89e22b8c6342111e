"""A running node for a whole file, and a connection of a test's own that speaks its protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ringfence.native.wire import Status
from tests.harness.processes import NodeProcess
from tests.harness.raw_client import RawClient

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="module")
def node(module_folder: Path) -> Iterator[NodeProcess]:
    with NodeProcess(module_folder / "node") as running:
        yield running


@pytest.fixture
def client(node: NodeProcess) -> Iterator[RawClient]:
    with RawClient(node.address) as raw:
        assert raw.hello().status == Status.READY
        yield raw
