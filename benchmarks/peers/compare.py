"""Our cluster and Kafka's in turn, on the same machine within the same hour: one record, one table."""

from __future__ import annotations

import datetime
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks import machine
from benchmarks.cluster import failovers, moves
from benchmarks.paths import work_directory
from benchmarks.peers import installed, kafka_moves
from benchmarks.peers.kafka_cluster import PROFILES, Profile

# Rows of the table: part, what it is, path to the figure's object, fields of it, unit.
ROWS = (
    ("moves", "one copy moves with all its data at 20 MB/s: longest gap", ("moved", "gap_ms"), "ms"),
    ("moves", "without a move", ("moved", "without_a_move_ms"), "ms"),
    ("moves", "the whole move", ("moved", "move_s"), "s"),
    ("moves", "the next of three copies leads, at 20 MB/s: longest gap", ("handed_over", "gap_ms"), "ms"),
    ("moves", "without it", ("handed_over", "without_a_move_ms"), "ms"),
    ("failovers", "kill -9 of a leader to the next acknowledgement", ("resumed_s",), "s"),
    ("failovers", "the same when it leads the metadata, too", ("resumed_leader_s",), "s"),
)


@dataclass(frozen=True)
class System:
    """`measure[part](count)` gives the figures of a part."""

    name: str
    promise: str
    measure: dict[str, Callable[[int], dict[str, Any]]]


def _kafka(profile: Profile) -> System:
    def measured(part: Callable[[Path, Profile, int], dict[str, Any]], count: int) -> dict[str, Any]:
        with tempfile.TemporaryDirectory(dir=work_directory(), ignore_cleanup_errors=True) as folder:
            return part(Path(folder), profile, count)

    return System(
        f"Kafka, {profile.name}",
        "acks=all, min.insync.replicas 2 of 3 (1 of 1 when one copy moves), idempotent; in memory of those "
        f"brokers, no sync; {profile.about}",
        {
            "moves": lambda count: measured(kafka_moves.moves, count),
            "failovers": lambda count: measured(kafka_moves.failovers, count),
        },
    )


def systems() -> tuple[list[System], list[str]]:
    """(ours and the peers that are here, a line for each that is missing)."""
    ours = System(
        "ringfence",
        "fdatasync on a majority of 3 (on the one of 1) before the answer; failure_ms 2,000",
        {"moves": moves.measure, "failovers": failovers.measure},
    )
    here, missing = installed.present(("kafka",))
    return [ours, *(_kafka(profile) for profile in PROFILES.values() if here)], missing


def run(parts: Sequence[str], counts: dict[str, int], tell: Callable[[str], None]) -> dict[str, Any]:
    """Every part of every system, one system after the other within a part. A failure is in the record."""
    taking_part, missing = systems()
    for line in missing:
        tell(f"{line}; left out")
    result: dict[str, Any] = {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "machine": machine.describe(),
        "versions": {"ringfence": version("ringfence")} | ({} if missing else installed.versions(["kafka"])),
        "left_out": missing,
        "counts": {part: counts[part] for part in parts},
        "systems": {system.name: {"promise": system.promise} for system in taking_part},
    }
    for part in parts:
        for system in taking_part:
            tell(f"{part}: {system.name}, {counts[part]} times")
            try:
                figures = system.measure[part](counts[part])
            except Exception as error:  # noqa: BLE001 - it is told, and the others still run
                tell(f"{part}: {system.name} failed: {error}")
                figures = {"failure": str(error)}
            result["systems"][system.name][part] = figures
    result["load_average_after"] = machine.describe()["load_average"]
    return result


def markdown(result: dict[str, Any]) -> str:
    """The table for people: one column a system."""
    names = list(result["systems"])
    lines = ["| figure | " + " | ".join(names) + " |", "|---|" + "--:|" * len(names)]
    for part, about, path, unit in ROWS:
        if part in result["counts"]:
            cells = [_cell(result["systems"][name].get(part, {}), path) for name in names]
            lines.append(f"| {about}, {unit} | " + " | ".join(cells) + " |")
    lines += ["", "Each cell: " + "; ".join(_counts(result)) + ". What an answer promises:", ""]
    lines += [f"- {name}: {told['promise']}" for name, told in result["systems"].items()]
    lines += [f"- {name} {number}" for name, number in result["versions"].items()]
    lines += [f"- {line}; left out" for line in result["left_out"]]
    return "\n".join(lines)


def failed(result: dict[str, Any]) -> bool:
    """Whether a system did not end a part."""
    parts = [told[part] for told in result["systems"].values() for part in result["counts"] if part in told]
    return any("failure" in part for part in parts)


def _counts(result: dict[str, Any]) -> list[str]:
    return [f"{part} {count} times" for part, count in result["counts"].items()]


def _cell(figures: dict[str, Any], path: Sequence[str]) -> str:
    if "failure" in figures:
        return "failed"
    found: Any = figures
    for name in path:
        found = found.get(name, {})
    return ", ".join(f"{name} {value:g}" for name, value in found.items()) or "-"
