"""All systems one after the other on the same machine within the same hour: one record, one table."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

from benchmarks import machine
from benchmarks.cohorts import groups, story
from benchmarks.peers import installed

ROWS = (
    ("rows/s of a backlog, two members", ("backlog_rows_per_s",)),
    ("latency, ms", ("latency_ms",)),
    ("longest pause of a stream, calm, ms", ("calm",)),
    ("pause when a member joins, ms", ("joins_pause_ms",)),
    ("when it leaves, ms", ("leaves_pause_ms",)),
    ("when it is killed, ms", ("killed_pause_ms",)),
    ("rows received again", ("rows_again",)),
    ("rows lost", ("rows_lost",)),
    ("messages out of order", ("out_of_order",)),
)


def run(size: story.Size, tell: Callable[[str], None], only: str = "") -> dict[str, Any]:
    """Each system's story. A failure is in the record."""
    systems, missing = groups.taking_part()
    systems = [one for one in systems if only in one.name]
    for line in missing:
        tell(f"{line}; left out")
    needed = sorted({one.needs for one in systems if one.needs})
    result: dict[str, Any] = {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "machine": machine.describe(),
        "versions": {"ringfence": version("ringfence"), **installed.versions(needed)},
        "left_out": missing,
        "systems": {},
    }
    for system in systems:
        tell(system.name)
        try:
            figures = story.told(system, size)
        except Exception as error:  # noqa: BLE001 - it is told, and the others still run
            tell(f"{system.name} failed: {error}")
            figures = {"failure": f"{type(error).__name__}: {error}"}
        result["systems"][system.name] = {"promise": system.promise, **figures}
    result["load_average_after"] = machine.describe()["load_average"]
    return result


def markdown(result: dict[str, Any]) -> str:
    """The table for people: one column a system."""
    systems = result["systems"]
    lines = ["| figure | " + " | ".join(systems) + " |", "|---|" + "--:|" * len(systems)]
    for about, (name,) in ROWS:
        lines.append(f"| {about} | " + " | ".join(_cell(told, name) for told in systems.values()) + " |")
    lines += ["", *(f"- {name}: {told['promise']}" for name, told in systems.items())]
    lines += [f"- {name} {number}" for name, number in result["versions"].items()]
    lines += [f"- {line}; left out" for line in result["left_out"]]
    return "\n".join(lines)


def failed(result: dict[str, Any]) -> bool:
    return any("failure" in told for told in result["systems"].values())


def _cell(told: dict[str, Any], name: str) -> str:
    if "failure" in told:
        return "failed"
    value = told.get(name, "-")
    return (
        ", ".join(f"{key} {each:g}" for key, each in value.items()) if isinstance(value, dict) else str(value)
    )
