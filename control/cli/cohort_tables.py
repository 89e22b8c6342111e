"""Show cohorts, members and partitions as tables, with notes for operators."""

from __future__ import annotations

import time

from ringfence.control.cli.cohort_api import Shown
from ringfence.control.cli.output import show_table


def note_of(cohort: Shown) -> str:
    """What an operator should know of a cohort in one line."""
    notes = []
    if not cohort["members"] and cohort["idle_since_ms"]:
        notes.append(f"no members for {age_text(cohort['idle_since_ms'])}")
    if cohort["unknown"]:
        notes.append(f"lag of {len(cohort['unknown'])} partitions not known")
    for key, text in (("unassigned", "unassigned"), ("blocked", "blocked"), ("paused", "paused")):
        if cohort[key]:
            notes.append(f"{cohort[key]} {text}")
    return ", ".join(notes) or "-"


def age_text(since_ms: int) -> str:
    seconds = max(0, round(time.time() - since_ms / 1_000))
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


def seconds(lag_ms: int | None) -> float | None:
    return None if lag_ms is None else lag_ms / 1_000


def show_members(members: list[Shown]) -> None:
    columns = ("member", "state", "partitions", "node", "since")
    rows = [
        [one["member"], one["state"], one["partitions"], one["home"], age_text(one["since_ms"])]
        for one in members
    ]
    show_table("", columns, rows)


def show_partitions(partitions: list[Shown]) -> None:
    columns = ("partition", "state", "member", "settled", "end", "lag rows", "note")
    rows = [
        [
            one["partition"],
            one["state"],
            one["member"] or None,
            one["settled"],
            one["end"],
            one["lag_rows"],
            partition_note(one),
        ]
        for one in partitions
    ]
    show_table("", columns, rows, ids=("partition",))


def partition_note(shown: Shown) -> str:
    """Why a partition is not read, in one line."""
    notes = [shown["reason"]] if shown["reason"] else []
    if shown["drained"]:
        notes.append("read to its end")
    if shown["waits_for"]:
        notes.append(f"waits for {', '.join(map(str, shown['waits_for']))}")
    if shown["sought"]:
        notes.append("a seek is not over")
    if shown["missed"]:
        notes.append(
            f"not read before they were removed: {', '.join(str(one[0]) for one in shown['missed'])}"
        )
    if shown["paused"]:
        notes.append(f"paused: {shown['paused']}")
    return "; ".join(notes) or "-"
