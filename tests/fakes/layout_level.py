"""Programs whose newest level is that of layout changes, or the one before, for tests above real nodes."""

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


def raise_program(monkeypatch: pytest.MonkeyPatch, level: int = LAYOUT_LEVEL) -> None:
    """From now on a new node begins with this level; `node_process` names it to the engine, too."""
    for module in (*PRODUCT_MODULES, "tests.fakes.admin_api"):
        monkeypatch.setattr(f"{module}.LEVEL_NEWEST", level)


def lower_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program of before layout changes; an engine of this program is faked beside it."""
    raise_program(monkeypatch, LAYOUT_LEVEL - 1)
