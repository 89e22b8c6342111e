"""Older programs: their newest level is lower than this one's, for tests above faked engines."""

from __future__ import annotations

from typing import Final

import pytest

from ringfence.control.model.layout_changes import LAYOUT_LEVEL

# Modules of the product that compare with the newest level of the program.
PRODUCT_MODULES: Final = (
    "ringfence.control.runtime.handlers.cluster_levels",
    "ringfence.control.runtime.membership.joining",
    "ringfence.control.runtime.membership.members",
    "ringfence.control.runtime.node_process",
    "ringfence.control.runtime.raft.level_gate",
    "ringfence.control.store.directory",
    "ringfence.control.store.identity",
)


def lower_program(monkeypatch: pytest.MonkeyPatch, level: int = LAYOUT_LEVEL - 1) -> None:
    """From now on a new node begins with this level: of before layout changes, if it is not named."""
    for module in (*PRODUCT_MODULES, "tests.fakes.admin_api"):
        monkeypatch.setattr(f"{module}.LEVEL_NEWEST", level)
