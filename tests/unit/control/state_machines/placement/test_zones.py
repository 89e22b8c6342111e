"""Replicas by zone."""

from __future__ import annotations

from ringfence.control.state_machines.placement.zones import replicas_by_zone


def test_levels_fill_zones_evenly_as_far_as_they_have_nodes() -> None:
    assert replicas_by_zone({"a": 3, "b": 3}, 3) == ({"a": 1, "b": 1}, 1)
    assert replicas_by_zone({"a": 1, "b": 4}, 5) == ({"a": 1, "b": 4}, 0)
    assert replicas_by_zone({"a": 1, "b": 1, "c": 1, "d": 1}, 3) == ({"a": 0, "b": 0, "c": 0, "d": 0}, 3)
