"""What the admin API shows of all topics and their layouts: what a refused request must leave as it is.

The hash of the whole metadata is no measure on a running node, which renews sessions and witnesses.
"""

from __future__ import annotations

from typing import Any

from tests.harness.admin_http import ask

Layouts = dict[str, tuple[int, list[tuple[Any, ...]]]]
FIELDS = ("partition", "name", "lo", "hi", "state", "parents")


def layouts_seen(http: str) -> Layouts:
    """Topic -> version of its layout, and its partitions with their slots, states and parents."""
    listed = ask(http, "GET", "/admin/topics?linearizable=true").body
    topics = listed["topics"] if isinstance(listed, dict) else listed
    return {topic["name"]: _layout(http, topic["name"]) for topic in topics}


def _layout(http: str, name: str) -> tuple[int, list[tuple[Any, ...]]]:
    shown = ask(http, "GET", f"/admin/topics/{name}/layout?linearizable=true").body
    partitions = [tuple(part.get(field) for field in FIELDS) for part in shown["partitions"]]
    return shown["version"], sorted(partitions, key=lambda one: int(one[0]))
