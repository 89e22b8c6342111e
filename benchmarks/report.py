"""Result rows as a table for people, and the record that is kept.

`python -m benchmarks.report FILE.json` prints the table of benchmarks/record/README.md out of a record.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from benchmarks.machine import short_name
from benchmarks.paths import RECORD

HEADS = (
    "workload",
    "engine",
    "over",
    "MB/s",
    "spread",
    "of limit",
    "requests/s",
    "p50 ms",
    "p99 ms",
    "CPU ns/B",
)

README_WORKLOADS = {
    "lineitem_8mib": "8 MiB batches of lineitem",
    "lineitem_1000": "1,000-row batches, window 64",
    "lineitem_100": "100-row batches, window 256",
    "row_1": "1-row requests, window 4,096",
    "latency_1000": "1,000 rows, one in flight",
    "lineitem_python_8": "Python producer, 8 MiB over 8 partitions",
    "row_1_python": "Python producer, 1-row sends",
}
README_ENGINES = {
    "limit": "limit",
    "ours": "**ringfence**",
    "pyzmq_router": "pyzmq + fdatasync",
    "flight": "Flight + fdatasync",
}


def readme(rows: list[dict[str, Any]]) -> str:
    """The main workloads and engines, without the spread."""
    heads = [*(head for head in HEADS if head != "spread")]
    heads[-1] = "server CPU ns/B"
    lines = ["| " + " | ".join(heads) + " |", "|---|---|---" + "|--:" * (len(heads) - 3) + "|"]
    for row in rows:
        if row["workload"] in README_WORKLOADS and row["engine"] in README_ENGINES and row.get("turns"):
            _, _, transport, rate, _, *others = _cells(row)
            names = [README_WORKLOADS[row["workload"]], README_ENGINES[row["engine"]], transport]
            lines.append("| " + " | ".join([*names, rate, *others]) + " |")
    return "\n".join(lines)


def markdown(rows: list[dict[str, Any]]) -> str:
    """One line a row, in the order of the run."""
    lines = ["| " + " | ".join(HEADS) + " |", "|---|---|---" + "|--:" * (len(HEADS) - 3) + "|"]
    lines += ["| " + " | ".join(_cells(row)) + " |" for row in rows if "figures" not in row]
    lines += ["", *(_trial(row) for row in rows if "figures" in row)]
    return "\n".join(lines).rstrip()


def guarantees(rows: list[dict[str, Any]]) -> str:
    """What an answer of each engine promises: rates of engines that promise less do not compare."""
    promises = {row["engine"]: row["durability"] for row in rows if "figures" not in row}
    return "\n".join(f"- {engine}: {durability}" for engine, durability in promises.items())


def _trial(row: dict[str, Any]) -> str:
    figures = ", ".join(f"{name} {value:,}" for name, value in row["figures"].items())
    return f"- {row['workload']}: {row['failure'] or figures}"


def _cells(row: dict[str, Any]) -> list[str]:
    names = [row["workload"], row["engine"], row["transport"]]
    if "bytes_per_s" not in row:
        reason = (row["failure"] or "no turn").strip().splitlines()
        return [*names, f"failed: {reason[-1] if reason else 'unknown'}", *[""] * (len(HEADS) - 4)]
    ratio = row["ratio_to_limit"]
    return [
        *names,
        f"{row['bytes_per_s'] / 1e6:,.0f}",
        f"{row['bytes_per_s_spread']:.0%}",
        "-" if ratio is None else f"{ratio:.2f}",
        f"{row['requests_per_s']:,}",
        f"{row['ack_p50_ms']:.2f}",
        f"{row['ack_p99_ms']:.2f}",
        f"{row['server_cpu_ns_per_byte']:.2f}",
    ]


def save(result: dict[str, Any], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=2) + "\n")


def record(result: dict[str, Any]) -> Path:
    """Keep a result under record/<machine>/<date>, as JSON and as Markdown. The same date is replaced."""
    folder = RECORD / short_name(result["machine"])
    path = folder / f"{result['date']}{'-quick' if result['quick'] else ''}.json"
    save(result, path)
    machine = result["machine"]
    size = f"{machine['cores']} cores, {machine['memory_gib']} GiB"
    text = [
        f"# {result['date']}, {result['rounds']} interleaved turns each",
        "",
        f"{machine['processor']}, {size}, {machine['file_system']}, kernel {machine['kernel']}.",
        f"Scheduling {machine['scheduling']}, load average {machine['load_average']}.",
        f"Revision {machine['revision']}. {result['warmth']}",
        "",
        markdown(result["rows"]),
        "",
        "What an answer promises:",
        "",
        guarantees(result["rows"]),
        *(f"- {name} {version}" for name, version in result["peers"].items()),
        *(f"- {line}; left out" for line in result["left_out"]),
        "",
    ]
    path.with_suffix(".md").write_text("\n".join(text))
    return path


if __name__ == "__main__":
    print(readme(json.loads(Path(sys.argv[1]).read_text())["rows"]))
