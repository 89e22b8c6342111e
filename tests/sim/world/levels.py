"""The newest level that the simulated program knows; layout changes need one that is not released yet."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from unittest.mock import patch

from tests.fakes.layout_level import PRODUCT_MODULES


@contextmanager
def program_of(level: int) -> Iterator[None]:
    """In this block, LEVEL_NEWEST of the product's modules is `level`; the engine is told it by them."""
    with ExitStack() as stack:
        for module in PRODUCT_MODULES:
            stack.enter_context(patch(f"{module}.LEVEL_NEWEST", level))
        yield
