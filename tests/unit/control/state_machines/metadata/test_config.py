"""Limits of the cluster."""

from __future__ import annotations

from typing import Any

from ringfence.control.model.commands import InitCluster, SetConfig
from ringfence.control.model.state import EMPTY
from tests.fakes.checked_commands import after, refused
from tests.fakes.metadata_commands import INIT, register


def test_limits_of_the_cluster_fit_each_other() -> None:
    state = after(EMPTY, 1, INIT)
    assert "3 times heartbeat_ms=200" in refused(state, SetConfig(values={"failure_ms": 500})).message
    after(state, 2, SetConfig(values={"failure_ms": 150, "heartbeat_ms": 50}))
    assert "even numbers" in refused(state, SetConfig(values={"voters_max": 4})).message
    full = after(state, 2, SetConfig(values={"nodes_max": 1}))
    assert "`nodes_max`" in refused(full, register(2)).message
    assert "nodes_min=0" in refused(EMPTY, InitCluster(**{**_fields(INIT), "nodes_min": 0})).message


def _fields(command: InitCluster) -> dict[str, Any]:
    return {name: getattr(command, name) for name in command.__struct_fields__}
