"""`ringfence top`: the cluster at a glance, again and again."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from ringfence.control.cli.admin import TOPICS_PATH, Admin, http_options, topic_path
from ringfence.control.cli.exit_codes import Exit
from ringfence.control.cli.output import draw, emit, json_option, shown_bytes
from ringfence.control.model.names import shown_topic_name
from ringfence.native.errors import NotFoundError, RefusedError, RingfenceError

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table

# Counters that are shown as so much a second.
RATES: Final = ("rows", "bytes", "acknowledged", "reads", "refused")
UNKNOWN_LOAD: Final[dict[str, Any]] = {"bytes_s": None, "requests_s": None, "busiest": []}
UNDER_WAY: Final = frozenset({"DUAL_WRITE", "COPYING", "VERIFYING", "RETRYING"})
# What the metadata tells of each node; one of an older program has no `replicas`.
PLAIN: Final = ("node", "life", "role", "draining", "in_ring", "partitions", "replicas")
# Of those under way: a terminal has so many lines.
MOVES_SHOWN: Final = 10
# Topics that a look asks for where none is named: each is asked of all nodes that own some of it.
TOPICS_MAX: Final = 16
# Those that nobody serves first, then the busiest, and of equally busy ones those with the most rows; --json
# has all.
PARTITIONS_SHOWN: Final = 20
# How long a node may take to answer; one that takes longer is shown as silent.
ASK_S: Final = 2.0


@dataclass(slots=True)
class Seen:
    """What the last looks told; rates need two."""

    at_s: dict[int, float] = field(default_factory=dict)
    counters: dict[int, dict[str, int]] = field(default_factory=dict)
    # When, and how many bytes of each move's copy.
    copied: dict[int, tuple[float, int]] = field(default_factory=dict)
    # When, the end offset and the bytes of each partition.
    stored: dict[int, tuple[float, int, int]] = field(default_factory=dict)
    # Topics that were asked for by name, and found.
    named: set[str] = field(default_factory=set)


@click.command()
@click.option(
    "--interval",
    "interval_s",
    type=click.FloatRange(min=0.2),
    default=1.0,
    show_default=True,
    help="Seconds between two looks.",
)
@click.option("--count", type=click.IntRange(min=0), default=0, help="Looks, 0 = until Ctrl-C.")
@click.option(
    "--topic",
    "topics",
    multiple=True,
    metavar="NAME",
    help=f"Its partitions, may be repeated.  [default: the first {TOPICS_MAX} topics]",
)
@http_options
@json_option
def command(
    *,
    interval_s: float,
    count: int,
    topics: tuple[str, ...],
    http: str | None,
    token_file: Path | None,
    as_json: bool,
) -> int:
    """Show nodes, partitions, rates, lag, moves and loads of the cluster until Ctrl-C.

    Every node is asked at the address that the metadata names; --json gives one object a look. A partition's
    lag is the records that the replica lacks that is furthest behind its owner.

    \b
    Example:
      ringfence top --http http://127.0.0.1:7412
      ringfence top --topic events --count 1
    """  # noqa: D301 - click's \b keeps the lines
    admin = Admin(http, token_file, 10.0, quiet=True)
    chosen = tuple(topic_path(name) for name in topics)
    looks = _looks(admin, token_file, interval_s, count, chosen)
    if as_json:
        for look in looks:
            emit(look)
        return Exit.OK
    from rich.console import Console  # noqa: PLC0415 - rich loads in 0.1 s
    from rich.live import Live  # noqa: PLC0415

    console = Console(width=None if sys.stdout.isatty() else 200, highlight=False)
    if not sys.stdout.isatty():
        for look in looks:
            draw(console, _shown(look))
        return Exit.OK
    with Live(console=console, auto_refresh=False, screen=True) as live:
        for look in looks:
            live.update(_shown(look), refresh=True)
    return Exit.OK


def _looks(
    admin: Admin, token_file: Path | None, interval_s: float, count: int, topics: tuple[str, ...]
) -> Iterator[dict[str, Any]]:
    seen, done = Seen(), 0
    while True:
        nodes = admin.get("/admin/nodes")
        shown = [_node(node, token_file, seen) for node in nodes["nodes"]]
        total = {f"{name}_s": sum(node.get(f"{name}_s") or 0.0 for node in shown) for name in RATES}
        yield {
            "time_ms": time.time_ns() // 1_000_000,
            "leader": nodes["leader"],
            "term": nodes["term"],
            "nodes": shown,
            "total": total,
            "partitions": _partitions(admin, topics, seen),
            **_moving(admin, seen, {node["node"] for node in shown if _tells_nothing(node)}),
        }
        done += 1
        if count and done >= count:
            return
        time.sleep(interval_s)


def _partitions(admin: Admin, topics: tuple[str, ...], seen: Seen) -> list[dict[str, Any]]:
    """Rows, bytes and lag of each, without them where the owner is silent.

    A topic that goes is left out. RefusedError where it was named: there would be nothing to show.
    """
    named = topics
    if not topics:
        listed = admin.get(f"/admin/topics?limit={TOPICS_MAX}")["topics"]
        topics = tuple(topic_path(topic["name"]) for topic in listed)
    found: list[dict[str, Any]] = []
    for path in topics:
        try:
            topic = _named(admin, path, seen) if named else admin.get(path)
        except RingfenceError as error:
            if named and isinstance(error, RefusedError):
                raise
            continue
        found += [_partition(topic["name"], part, seen) for part in topic["stats"]]
    seen.stored = {
        number: at for number, at in seen.stored.items() if number in {part["partition"] for part in found}
    }
    return found


def _named(admin: Admin, path: str, seen: Seen) -> Any:
    """A topic that is to be shown. NotFoundError when there is none of its name, by the leader's word."""
    try:
        try:
            topic = admin.get(path)
        except NotFoundError:  # a node that is behind does not know the newest
            topic = admin.get(f"{path}?linearizable=true")
    except NotFoundError as error:
        name = shown_topic_name(path.removeprefix(TOPICS_PATH))
        why = f"there is no topic {name}; `ringfence topic list` shows all"
        if path in seen.named:
            why = f"topic {name} was deleted meanwhile"
        raise NotFoundError(why, code=error.code) from None
    seen.named.add(path)
    return topic


def _partition(topic: str, part: dict[str, Any], seen: Seen) -> dict[str, Any]:
    number, now, end, size = part["partition"], time.monotonic(), part["end_offset"], part["bytes"]
    if end is None:
        return {
            "topic": topic,
            "partition": number,
            "owner": part["owner"],
            "rows": None,
            "bytes": None,
            "lag_records": None,
            "rows_s": None,
            "bytes_s": None,
            "unknown": part["unknown"],
        }
    at_s, end_before, size_before = seen.stored.get(number, (now, end, size))
    seen.stored[number] = now, end, size
    since = now - at_s
    rates = {
        "rows_s": round(max(0, end - end_before) / since, 1) if since > 0 else None,
        "bytes_s": round(max(0, size - size_before) / since, 1) if since > 0 else None,
    }
    return {
        "topic": topic,
        "partition": number,
        "owner": part["owner"],
        "rows": end - part["start_offset"],
        "bytes": size,
        "lag_records": part.get("lag_records"),
        **rates,
    }


def _tells_nothing(node: dict[str, Any]) -> bool:
    """What was told of it before is not so any more."""
    return bool(node["state"] == "silent" or node.get("life") == "FAILED")


def _moving(admin: Admin, seen: Seen, mute: set[int]) -> dict[str, Any]:
    """The run with the moves that are under way, what partitions cost, and what the policy makes of it.

    The leader remembers for half a minute what a node told of its load; of the `mute` ones it is unknown.
    """
    try:
        told = admin.get("/admin/rebalance")
    except RingfenceError as error:
        return {"rebalance": None, "moves": [], "loads": [], "policy": str(error)[:200]}
    now, moves = time.monotonic(), []
    for move in told["moves"]:
        if move["state"] in UNDER_WAY:
            at_s, size = seen.copied.get(move["partition"], (now, move["bytes"]))
            rate = round(max(0, move["bytes"] - size) / (now - at_s), 1) if now > at_s else None
            moves.append({**move, "bytes_s": rate})
    seen.copied = {move["partition"]: (now, move["bytes"]) for move in moves}
    run = {name: told[name] for name in ("run", "action", "node", "state", "outcome", "counts", "eta_s")}
    loads = [load if load["node"] not in mute else {**load, **UNKNOWN_LOAD} for load in told["loads"]]
    return {"rebalance": run, "moves": moves, "loads": loads, "policy": told["policy"]}


def _node(node: dict[str, Any], token_file: Path | None, seen: Seen) -> dict[str, Any]:
    """A member with its rates; without them where it does not answer, or has no admin API."""
    shown: dict[str, Any] = {name: node[name] for name in PLAIN if name in node}
    if not node["http"]:
        return {**shown, "state": "no admin API"}
    try:
        status = Admin(",".join(node["http"]), token_file, ASK_S, quiet=True).get("/admin/status")
    except RingfenceError as error:
        return {**shown, "state": "silent", "why": str(error)[:200]}
    number, now, counters = int(node["node"]), time.monotonic(), status["counters"]
    before, since = seen.counters.get(number), now - seen.at_s.get(number, now)
    rates = (
        {f"{name}_s": round(max(0, counters.get(name, 0) - before.get(name, 0)) / since, 1) for name in RATES}
        if before is not None and since > 0
        else {}
    )
    seen.counters[number], seen.at_s[number] = counters, now
    return {
        **shown,
        "state": status["state"],
        "reasons": status["reasons"],
        "index": status["index"],
        "connections": counters.get("connections", 0),
        "pool_free_bytes": counters.get("pool_free_bytes", 0),
        "unacknowledged": counters.get("unacknowledged", 0),
        **rates,
    }


def _shown(look: dict[str, Any]) -> Group:
    from rich.console import Group  # noqa: PLC0415 - as above

    return Group(_table(look), *_why(look), *_stored(look), *_moves(look))


def _stored(look: dict[str, Any]) -> Iterator[Table | str]:
    """The partitions that matter most."""
    from rich.table import Table  # noqa: PLC0415 - as above

    parts = sorted(
        look["partitions"],
        key=lambda part: (part["rows"] is None, part["bytes_s"] or 0, part["rows"] or 0),
        reverse=True,
    )
    if not parts:
        return
    table = Table(box=None, pad_edge=False)
    for name in ("topic", "partition", "owner", "rows", "bytes", "rows/s", "bytes/s", "lag"):
        table.add_column(name, justify="left" if name == "topic" else "right")
    for part in parts[:PARTITIONS_SHOWN]:
        rows_s, bytes_s, lag = part["rows_s"], part["bytes_s"], part["lag_records"]
        table.add_row(
            part["topic"],
            str(part["partition"]),
            str(part["owner"]),
            "?" if part["rows"] is None else f"{part['rows']:,}",
            "?" if part["bytes"] is None else shown_bytes(part["bytes"]),
            "-" if rows_s is None else f"{rows_s:,.0f}",
            "-" if bytes_s is None else shown_bytes(bytes_s),
            "-" if lag is None else f"{lag:,}",
        )
    yield ""
    yield table
    if len(parts) > PARTITIONS_SHOWN:
        yield f"{len(parts) - PARTITIONS_SHOWN} more partitions"


def _why(look: dict[str, Any]) -> Iterator[str]:
    """What is wrong where a state says that something is."""
    for node in look["nodes"]:
        for reason in [*node.get("reasons", ()), *([node["why"]] if "why" in node else [])]:
            yield f"node {node['node']}: {reason}"


def _moves(look: dict[str, Any]) -> Iterator[Table | str]:
    from rich.table import Table  # noqa: PLC0415 - as above

    run = look["rebalance"]
    if run is not None and run["run"]:
        counts = ", ".join(f"{count} {state}" for state, count in run["counts"].items()) or "no moves"
        eta = f", about {run['eta_s']:g} s left" if run["eta_s"] is not None else ""
        yield f"\nrebalance {run['run']}: {run['action']} {run['outcome'] or run['state']}: {counts}{eta}"
    if look["moves"]:
        table = Table(box=None, pad_edge=False)
        for name in ("partition", "from", "to", "state", "rows", "copied", "bytes/s", "try"):
            table.add_column(name, justify="left" if name in {"from", "to", "state"} else "right")
        for move in look["moves"][:MOVES_SHOWN]:
            table.add_row(
                str(move["partition"]),
                _list(move["from"]),
                _list(move["to"]),
                move["state"],
                f"{move['rows']:,}",
                shown_bytes(move["bytes"]),
                "-" if move["bytes_s"] is None else shown_bytes(move["bytes_s"]),
                str(move["attempts"]),
            )
        yield table
    for load in look["loads"]:
        if load["bytes_s"] is None:
            yield f"node {load['node']}: - appended"
            continue
        busiest = ", ".join(f"{one['partition']} {shown_bytes(one['bytes_s'])}/s" for one in load["busiest"])
        rate = f"{shown_bytes(load['bytes_s'])}/s and {load['requests_s']:,} batches/s appended"
        yield f"node {load['node']}: {rate}" + (f"; busiest {busiest}" if busiest else "")
    if look["policy"]:
        yield f"policy: {look['policy']}"


def _list(nodes: list[int]) -> str:
    return ", ".join(map(str, nodes))


def _table(look: dict[str, Any]) -> Table:
    from rich.table import Table  # noqa: PLC0415 - as above

    leader = f"node {look['leader']} leads term {look['term']}" if look["leader"] else "nobody leads"
    title = f"{leader}   {time.strftime('%H:%M:%S')}"
    table = Table(title=title, box=None, pad_edge=False, title_justify="left")
    for name in (
        "node",
        "life",
        "role",
        "state",
        "owned",
        "replicas",
        "index",
        "connections",
        "rows/s",
        "bytes/s",
        "acks/s",
        "reads/s",
        "refused/s",
        "unacked",
        "pool free",
    ):
        table.add_column(name, justify="left" if name in {"life", "role", "state"} else "right")
    for node in [*look["nodes"], {"node": "all", **look["total"]}]:
        rates = [node.get(f"{name}_s") for name in RATES]
        figures = [
            "-" if rate is None else shown_bytes(rate) if name == "bytes" else f"{rate:,.0f}"
            for name, rate in zip(RATES, rates, strict=True)
        ]
        state = str(node.get("state", "")) + (" draining" if node.get("draining") else "")
        plain = [str(node.get(name, "")) for name in ("partitions", "replicas", "index", "connections")]
        table.add_row(
            str(node["node"]),
            str(node.get("life", "")),
            str(node.get("role", "")),
            state,
            *plain,
            *figures,
            str(node.get("unacknowledged", "")),
            shown_bytes(node["pool_free_bytes"]) if "pool_free_bytes" in node else "",
        )
    return table
