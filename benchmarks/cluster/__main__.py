"""`python -m benchmarks.cluster`: measure, print a table, write a record."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks import machine
from benchmarks.cluster import (
    calm,
    chases,
    commits,
    copies,
    dips,
    doubled,
    elections,
    failovers,
    forwards,
    growth,
    moves,
    repartitions,
    routes,
    splits,
    wide,
)

PARTS = {
    "commits": commits,
    "elections": elections,
    "calm": calm,
    "moves": moves,
    "failovers": failovers,
    "dips": dips,
    "chases": chases,
    "forwards": forwards,
    "routes": routes,
    "copies": copies,
    "growth": growth,
    "wide": wide,
    "splits": splits,
    "doubled": doubled,
    "repartitions": repartitions,
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cluster", description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS], help="what to measure; by default all")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the record; parts not measured stay")
    arguments = parser.parse_args()
    known: dict[str, Any] = {}
    if arguments.json is not None and arguments.json.exists():
        known = json.loads(arguments.json.read_text())
    table = Table("part", "figure", "seen", "held")
    all_held = True
    for name in arguments.parts or PARTS:
        result = PARTS[name].measure()
        held = PARTS[name].held(result)
        known[name] = {"machine": machine.describe(), **result, "held": held}
        all_held = all_held and held
        for figure, seen in result.items():
            table.add_row(name, figure, json.dumps(seen), "yes" if held else "NO")
    Console(width=160).print(table)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(known, indent=1) + "\n")
    return 0 if all_held else 1


if __name__ == "__main__":
    raise SystemExit(main())
