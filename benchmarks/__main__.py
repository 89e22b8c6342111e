"""`python -m benchmarks`: run engines side by side, print ratios to the limit, keep the record."""

from __future__ import annotations

import datetime
import json
import sys
import time
from pathlib import Path
from typing import Any

import click

from benchmarks import machine, report, runner, warm, workload
from benchmarks.engines import ENGINES
from benchmarks.native_build import programs
from benchmarks.peers import installed
from benchmarks.peers.process import unwind_on_term

WARM_BYTES = 8 << 30  # what the buffered engines' files and the pools take
# Ten minutes from the first line on, builds included; what is left is shared by the workloads.
QUICK_TIME_S_MAX = 560.0
TIME_S_MAX = 7200.0
QUICK_WORKLOADS = (
    "lineitem_8mib",
    "lineitem_1000",
    "lineitem_100",
    "row_1",
    "latency_1000",
    "lineitem_python_8",
    "row_1_python",
)


def _tell(text: str) -> None:
    click.echo(text, err=True)


def _chosen(names: str | None, known: tuple[str, ...], what: str) -> tuple[str, ...]:
    wanted = tuple(names.split(",")) if names else known
    unknown = [name for name in wanted if name not in known]
    if unknown:
        raise click.BadParameter(f"unknown {what} {unknown}; known are {list(known)}")
    return wanted


def _engines(names: str | None, *, with_peers: bool) -> tuple[tuple[str, ...], list[str]]:
    """(engines that take part, a line for each peer that cannot). Without a choice: all but the peers."""
    usual = tuple(name for name in ENGINES if name not in installed.PEERS)
    chosen = _chosen(names, tuple(ENGINES), "engines") if names else usual
    asked = [name for name in installed.PEERS if with_peers or name in chosen]
    here, missing = installed.present(asked)
    for line in missing:
        _tell(f"{line}; left out")
    return (*(name for name in chosen if name not in installed.PEERS), *here), missing


@click.command()
@click.option(
    "--quick", is_flag=True, help="Ends within 10 minutes: fewer requests, the main workloads only."
)
@click.option(
    "--json", "json_path", type=click.Path(dir_okay=False, path_type=Path), help="Write the result here."
)
@click.option("--workloads", metavar="A,B", help="Only these.")
@click.option("--engines", metavar="A,B", help="Only these; the limit always takes part.")
@click.option(
    "--peers", "with_peers", is_flag=True, help="Those of Kafka, NATS and Redis that are installed, too."
)
@click.option("--rounds", type=click.IntRange(1, 25), help="Turns of each engine; 3 with --quick, else 5.")
@click.option("--seconds", type=click.IntRange(30, 86_400), help="Ends about then; default 560 or 7200.")
@click.option("--record/--no-record", "keep", default=False, help="Keep the result under benchmarks/record.")
@click.option("--warm/--no-warm", "warmed", default=True, help="Touch memory before the first turn.")
def main(
    *,
    quick: bool,
    json_path: Path | None,
    workloads: str | None,
    engines: str | None,
    with_peers: bool,
    rounds: int | None,
    seconds: int | None,
    keep: bool,
    warmed: bool,
) -> None:
    """Measure ingest: engines interleaved, medians, ratios to the limit of the same run.

    \b
    Example:
      python -m benchmarks --quick --json result.json
    """
    begin = time.monotonic()
    unwind_on_term()
    known = workload.load_all()
    default = tuple(name for name in QUICK_WORKLOADS if name in known) if quick else tuple(known)
    names = _chosen(workloads, tuple(known), "workloads") if workloads else default
    chosen, missing = _engines(engines, with_peers=with_peers)
    rounds = rounds or (3 if quick else 5)
    programs()  # a build must not run beside the first turn
    warmth = "Memory was not touched before."
    if warmed:
        touched, took = warm.touch(WARM_BYTES)
        warmth = (
            f"Memory was warm: {touched >> 20} MiB touched in {took:.0f} s before the first turn; "
            "each turn began with unmeasured requests."
        )
        _tell(warmth)
    rows = runner.run(
        [known[name] for name in names],
        (runner.LIMIT_NAME, *chosen),
        rounds,
        quick=quick,
        tell=_tell,
        until=begin + (seconds or (QUICK_TIME_S_MAX if quick else TIME_S_MAX)),
    )
    result: dict[str, Any] = {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "quick": quick,
        "rounds": rounds,
        "seconds": round(time.monotonic() - begin, 1),
        "warmth": warmth,
        "machine": machine.describe(),
        "peers": installed.versions([name for name in chosen if name in installed.PEERS]),
        "left_out": missing,
        "rows": rows,
    }
    click.echo(f"{report.markdown(rows)}\n\nWhat an answer promises:\n\n{report.guarantees(rows)}")
    if json_path is not None:
        report.save(result, json_path)
    if keep:
        _tell(f"kept as {report.record(result).relative_to(Path.cwd())}")
    failed = [row for row in rows if row["failure"]]
    for row in failed:
        _tell(json.dumps({key: row[key] for key in ("workload", "engine", "transport", "failure")}))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
