"""`ringfence top`: the cluster at a glance, again and again."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from ringfence.control.cli.admin import Admin, http_options
from ringfence.control.cli.exits import Exit
from ringfence.control.cli.output import emit, json_option, shown_bytes
from ringfence.native.errors import RingfenceError

if TYPE_CHECKING:
    from rich.table import Table

RATES: Final = ("rows", "bytes", "acknowledged", "reads", "refused")
"""Counters that are shown as so much a second."""
ASK_S: Final = 2.0
"""How long a node may take to answer; one that takes longer is shown as silent."""


@dataclass(slots=True)
class Seen:
    """What the last looks told; rates need two."""

    at_s: dict[int, float] = field(default_factory=dict)
    counters: dict[int, dict[str, int]] = field(default_factory=dict)


@click.command()
@click.option("--interval", "interval_s", type=click.FloatRange(min=0.2), default=1.0, show_default=True,
              help="Seconds between two looks.")  # fmt: skip
@click.option("--count", type=click.IntRange(min=0), default=0, help="Looks, 0 = until Ctrl-C.")
@http_options
@json_option
def command(
    *, interval_s: float, count: int, http: str | None, token_file: Path | None, as_json: bool
) -> int:
    """Show nodes, partitions and rates of the cluster until Ctrl-C.

    Every node is asked at the address that the metadata names; --json gives one object a look.

    \b
    Example:
      ringfence top --http http://127.0.0.1:7412
    """  # noqa: D301 - click's \b keeps the lines
    looks = _looks(Admin(http, token_file, 10.0), token_file, interval_s, count)
    if as_json:
        for look in looks:
            emit(look)
        return Exit.OK
    from rich.console import Console  # noqa: PLC0415 - rich loads in 0.1 s
    from rich.live import Live  # noqa: PLC0415

    console = Console(width=None if sys.stdout.isatty() else 200, highlight=False)
    if not sys.stdout.isatty():
        for look in looks:
            console.print(_table(look))
        return Exit.OK
    with Live(console=console, auto_refresh=False, screen=True) as live:
        for look in looks:
            live.update(_table(look), refresh=True)
    return Exit.OK


def _looks(admin: Admin, token_file: Path | None, interval_s: float, count: int) -> Iterator[dict[str, Any]]:
    seen, done = Seen(), 0
    while True:
        nodes = admin.get("/admin/nodes")
        shown = [_node(node, token_file, seen) for node in nodes["nodes"]]
        total = {f"{name}_s": sum(node.get(f"{name}_s") or 0.0 for node in shown) for name in RATES}
        yield {"time_ms": time.time_ns() // 1_000_000, "leader": nodes["leader"], "term": nodes["term"],
               "nodes": shown, "total": total}  # fmt: skip
        done += 1
        if count and done >= count:
            return
        time.sleep(interval_s)


def _node(node: dict[str, Any], token_file: Path | None, seen: Seen) -> dict[str, Any]:
    """A member with its rates; without them where it does not answer, or has no admin API."""
    shown = {name: node[name] for name in ("node", "life", "role", "draining", "in_ring", "partitions")}
    if not node["http"]:
        return {**shown, "state": "no admin API"}
    try:
        status = Admin(",".join(node["http"]), token_file, ASK_S).get("/admin/status")
    except RingfenceError as error:
        return {**shown, "state": "silent", "why": str(error)[:200]}
    number, now, counters = int(node["node"]), time.monotonic(), status["counters"]
    before, since = seen.counters.get(number), now - seen.at_s.get(number, now)
    rates = {
        f"{name}_s": round(max(0, counters.get(name, 0) - before.get(name, 0)) / since, 1)
        for name in RATES
    } if before is not None and since > 0 else {}  # fmt: skip
    seen.counters[number], seen.at_s[number] = counters, now
    return {
        **shown, "state": status["state"], "reasons": status["reasons"], "index": status["index"],
        "connections": counters.get("connections", 0), "pool_free_bytes": counters.get("pool_free_bytes", 0),
        "unacknowledged": counters.get("unacknowledged", 0), **rates,
    }  # fmt: skip


def _table(look: dict[str, Any]) -> Table:
    from rich.table import Table  # noqa: PLC0415 - as above

    leader = f"node {look['leader']} leads term {look['term']}" if look["leader"] else "nobody leads"
    title = f"{leader}   {time.strftime('%H:%M:%S')}"
    table = Table(title=title, box=None, pad_edge=False, title_justify="left")
    for name in ("node", "life", "role", "state", "partitions", "index", "connections", "rows/s", "bytes/s",
                 "acks/s", "reads/s", "refused/s", "unacked", "pool free"):  # fmt: skip
        table.add_column(name, justify="left" if name in {"life", "role", "state"} else "right")
    for node in [*look["nodes"], {"node": "all", **look["total"]}]:
        rates = [node.get(f"{name}_s") for name in RATES]
        figures = ["-" if rate is None else shown_bytes(rate) if name == "bytes" else f"{rate:,.0f}"
                   for name, rate in zip(RATES, rates, strict=True)]  # fmt: skip
        state = str(node.get("state", "")) + (" draining" if node.get("draining") else "")
        table.add_row(
            str(node["node"]), str(node.get("life", "")), str(node.get("role", "")), state,
            str(node.get("partitions", "")), str(node.get("index", "")), str(node.get("connections", "")),
            *figures, str(node.get("unacknowledged", "")),
            shown_bytes(node["pool_free_bytes"]) if "pool_free_bytes" in node else "",
        )  # fmt: skip
    return table
