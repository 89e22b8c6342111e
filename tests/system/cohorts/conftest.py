"""Members as processes of their own, which end with the test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.harness.member import Begun, Member


@pytest.fixture
def begun() -> Iterator[Begun]:
    """Starts members; none is left behind."""
    with ExitStack() as running:

        def begin(address: str, topic: str, cohort: str, name: str, **options: Any) -> Member:
            return running.enter_context(Member(address, topic, cohort, name, options))

        yield begin
