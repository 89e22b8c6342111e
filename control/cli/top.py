"""`ringfence top`: show nodes, partitions, rates and moves of a cluster, refreshed at an interval."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from ringfence.control.cli.admin import TOPICS_PATH, Admin, http_options, topic_path
from ringfence.control.cli.exit_codes import Exit
from ringfence.control.cli.output import draw, emit, format_bytes, json_option
from ringfence.control.model.names import shown_topic_name
from ringfence.native.errors import NotFoundError, RefusedError, RingfenceError

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table

# Counters shown as rates per second.
RATES: Final = ("rows", "bytes", "acknowledged", "reads", "refused")
UNKNOWN_LOAD: Final[dict[str, Any]] = {"bytes_s": None, "requests_s": None, "busiest": []}
RUNNING: Final = frozenset({"DUAL_WRITE", "COPYING", "VERIFYING", "RETRYING"})
# Fields of a node in the metadata; a node of an older program has no `replicas`.
NODE_FIELDS: Final = ("node", "life", "role", "draining", "in_ring", "partitions", "replicas")
# Running moves shown, so that a sample fits on a terminal.
MOVES_SHOWN: Final = 10
# Topics per sample without --topic. One request returns them; the node asks each owner of partitions once.
TOPICS_MAX: Final = 16
# Partitions shown, in this order: those without a serving owner, the busiest, those with the most rows.
# --json has all partitions.
PARTITIONS_SHOWN: Final = 20
# Seconds to wait for a node's answer; a node that takes longer is shown as silent.
ASK_S: Final = 2.0


@dataclass(slots=True)
class PreviousSample:
    """Values of the previous sample. A rate is the difference of two samples."""

    # By node: time on time.monotonic, and the counters at that time.
    at_s: dict[int, float] = field(default_factory=dict)
    counters: dict[int, dict[str, int]] = field(default_factory=dict)
    # By partition: time, copied bytes of its move.
    copied: dict[int, tuple[float, int]] = field(default_factory=dict)
    # By partition: time, end offset, bytes.
    stored: dict[int, tuple[float, int, int]] = field(default_factory=dict)
    # Paths of topics of --topic that existed in an earlier sample.
    found_topics: set[str] = field(default_factory=set)


@click.command()
@click.option(
    "--interval",
    "interval_s",
    type=click.FloatRange(min=0.2),
    default=1.0,
    show_default=True,
    help="Seconds between two samples.",
)
@click.option("--count", type=click.IntRange(min=0), default=0, help="Number of samples; 0 = until Ctrl-C.")
@click.option(
    "--topic",
    "topics",
    multiple=True,
    metavar="NAME",
    help=f"Show partitions of this topic; may be repeated.  [default: the first {TOPICS_MAX} topics]",
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

    The command asks every node at its address in the metadata. With --json, it prints one object per sample.
    The lag of a partition is the number of records that its slowest replica lacks.

    \b
    Example:
      ringfence top --http http://127.0.0.1:7412
      ringfence top --topic events --count 1
    """  # noqa: D301 - click's \b keeps the lines
    admin = Admin(http, token_file, 10.0, quiet=True)
    chosen = tuple(topic_path(name) for name in topics)
    samples = _samples(admin, token_file, interval_s, count, chosen)
    if as_json:
        for sample in samples:
            emit(sample)
        return Exit.OK
    from rich.console import Console  # noqa: PLC0415 - rich loads in 0.1 s
    from rich.live import Live  # noqa: PLC0415

    console = Console(width=None if sys.stdout.isatty() else 200, highlight=False)
    if not sys.stdout.isatty():
        for sample in samples:
            draw(console, _render(sample))
        return Exit.OK
    with Live(console=console, auto_refresh=False, screen=True) as live:
        for sample in samples:
            live.update(_render(sample), refresh=True)
    return Exit.OK


def _samples(
    admin: Admin, token_file: Path | None, interval_s: float, count: int, topics: tuple[str, ...]
) -> Iterator[dict[str, Any]]:
    previous, done = PreviousSample(), 0
    while True:
        nodes = admin.get("/admin/nodes")
        values = [_node(node, token_file, previous) for node in nodes["nodes"]]
        total = {f"{name}_s": sum(node.get(f"{name}_s") or 0.0 for node in values) for name in RATES}
        yield {
            "time_ms": time.time_ns() // 1_000_000,
            "leader": nodes["leader"],
            "term": nodes["term"],
            "nodes": values,
            "total": total,
            "partitions": _partitions(admin, topics, previous),
            **_rebalance(admin, previous, {node["node"] for node in values if _is_silent(node)}),
        }
        done += 1
        if count and done >= count:
            return
        time.sleep(interval_s)


def _partitions(admin: Admin, topics: tuple[str, ...], previous: PreviousSample) -> list[dict[str, Any]]:
    """Return rows, bytes and lag of each partition, None if the owner is silent.

    A topic that is deleted meanwhile is left out; RefusedError if it is one of --topic.
    """
    shown = _chosen(admin, topics, previous) if topics else _first(admin)
    partitions = [_partition(topic["name"], part, previous) for topic in shown for part in topic["stats"]]
    previous.stored = {
        number: at
        for number, at in previous.stored.items()
        if number in {part["partition"] for part in partitions}
    }
    return partitions


def _first(admin: Admin) -> Iterator[dict[str, Any]]:
    """Yield the first TOPICS_MAX topics by name."""
    for topic in admin.get(f"/admin/topics?stats=true&limit={TOPICS_MAX}")["topics"]:
        if "stats" in topic:
            yield topic
        else:  # a node of an older program ignores `stats`
            with suppress(RingfenceError):  # the topic is deleted meanwhile
                yield admin.get(topic_path(topic["name"]))


def _chosen(admin: Admin, topics: tuple[str, ...], previous: PreviousSample) -> Iterator[dict[str, Any]]:
    """Yield the topics of --topic whose requests succeed. RefusedError if one does not exist."""
    for path in topics:
        try:
            yield _topic(admin, path, previous)
        except RefusedError:
            raise
        except RingfenceError:
            continue


def _topic(admin: Admin, path: str, previous: PreviousSample) -> Any:
    """Return a topic of --topic. NotFoundError if it does not exist in a linearizable read."""
    try:
        try:
            topic = admin.get(path)
        except NotFoundError:  # a node that lags may not know a new topic
            topic = admin.get(f"{path}?linearizable=true")
    except NotFoundError as error:
        name = shown_topic_name(path.removeprefix(TOPICS_PATH))
        reason = f"there is no topic {name}; `ringfence topic list` shows all topics"
        if path in previous.found_topics:
            reason = f"topic {name} was deleted meanwhile"
        raise NotFoundError(reason, code=error.code) from None
    previous.found_topics.add(path)
    return topic


def _partition(topic: str, part: dict[str, Any], previous: PreviousSample) -> dict[str, Any]:
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
    at_s, end_before, size_before = previous.stored.get(number, (now, end, size))
    previous.stored[number] = now, end, size
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


def _is_silent(node: dict[str, Any]) -> bool:
    """Return whether earlier figures of the node are outdated."""
    return bool(node["state"] == "silent" or node.get("life") == "FAILED")


def _rebalance(admin: Admin, previous: PreviousSample, silent: set[int]) -> dict[str, Any]:
    """Return the run, its running moves, the loads of nodes, and the state of the policy.

    The leader keeps a node's load for half a minute; the loads of the `silent` nodes are shown as unknown.
    """
    try:
        values = admin.get("/admin/rebalance")
    except RingfenceError as error:
        return {"rebalance": None, "moves": [], "loads": [], "policy": str(error)[:200]}
    now, moves = time.monotonic(), []
    for move in values["moves"]:
        if move["state"] in RUNNING:
            at_s, size = previous.copied.get(move["partition"], (now, move["bytes"]))
            rate = round(max(0, move["bytes"] - size) / (now - at_s), 1) if now > at_s else None
            moves.append({**move, "bytes_s": rate})
    previous.copied = {move["partition"]: (now, move["bytes"]) for move in moves}
    run = {name: values[name] for name in ("run", "action", "node", "state", "outcome", "counts", "eta_s")}
    loads = [load if load["node"] not in silent else {**load, **UNKNOWN_LOAD} for load in values["loads"]]
    return {"rebalance": run, "moves": moves, "loads": loads, "policy": values["policy"]}


def _node(node: dict[str, Any], token_file: Path | None, previous: PreviousSample) -> dict[str, Any]:
    """Return a node with its rates, or without them if it does not answer or has no admin API."""
    values: dict[str, Any] = {name: node[name] for name in NODE_FIELDS if name in node}
    if not node["http"]:
        return {**values, "state": "no admin API"}
    try:
        status = Admin(",".join(node["http"]), token_file, ASK_S, quiet=True).get("/admin/status")
    except RingfenceError as error:
        return {**values, "state": "silent", "why": str(error)[:200]}
    number, now, counters = int(node["node"]), time.monotonic(), status["counters"]
    before, since = previous.counters.get(number), now - previous.at_s.get(number, now)
    rates = (
        {f"{name}_s": round(max(0, counters.get(name, 0) - before.get(name, 0)) / since, 1) for name in RATES}
        if before is not None and since > 0
        else {}
    )
    previous.counters[number], previous.at_s[number] = counters, now
    return {
        **values,
        "state": status["state"],
        "reasons": status["reasons"],
        "index": status["index"],
        "connections": counters.get("connections", 0),
        "pool_free_bytes": counters.get("pool_free_bytes", 0),
        "unacknowledged": counters.get("unacknowledged", 0),
        **rates,
    }


def _render(sample: dict[str, Any]) -> Group:
    from rich.console import Group  # noqa: PLC0415 - as above

    return Group(_node_table(sample), *_reasons(sample), *_partition_table(sample), *_move_lines(sample))


def _partition_table(sample: dict[str, Any]) -> Iterator[Table | str]:
    """Yield a table of the first PARTITIONS_SHOWN partitions."""
    from rich.table import Table  # noqa: PLC0415 - as above

    parts = sorted(
        sample["partitions"],
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
            "?" if part["bytes"] is None else format_bytes(part["bytes"]),
            "-" if rows_s is None else f"{rows_s:,.0f}",
            "-" if bytes_s is None else format_bytes(bytes_s),
            "-" if lag is None else f"{lag:,}",
        )
    yield ""
    yield table
    if len(parts) > PARTITIONS_SHOWN:
        yield f"{len(parts) - PARTITIONS_SHOWN} more partitions"


def _reasons(sample: dict[str, Any]) -> Iterator[str]:
    """Yield the reasons of nodes that are degraded or silent."""
    for node in sample["nodes"]:
        for reason in [*node.get("reasons", ()), *([node["why"]] if "why" in node else [])]:
            yield f"node {node['node']}: {reason}"


def _move_lines(sample: dict[str, Any]) -> Iterator[Table | str]:
    from rich.table import Table  # noqa: PLC0415 - as above

    run = sample["rebalance"]
    if run is not None and run["run"]:
        counts = ", ".join(f"{count} {state}" for state, count in run["counts"].items()) or "no moves"
        eta = f", about {run['eta_s']:g} s left" if run["eta_s"] is not None else ""
        yield f"\nrebalance {run['run']}: {run['action']} {run['outcome'] or run['state']}: {counts}{eta}"
    if sample["moves"]:
        table = Table(box=None, pad_edge=False)
        for name in ("partition", "from", "to", "state", "rows", "copied", "bytes/s", "try"):
            table.add_column(name, justify="left" if name in {"from", "to", "state"} else "right")
        for move in sample["moves"][:MOVES_SHOWN]:
            table.add_row(
                str(move["partition"]),
                _list(move["from"]),
                _list(move["to"]),
                move["state"],
                f"{move['rows']:,}",
                format_bytes(move["bytes"]),
                "-" if move["bytes_s"] is None else format_bytes(move["bytes_s"]),
                str(move["attempts"]),
            )
        yield table
    for load in sample["loads"]:
        if load["bytes_s"] is None:
            yield f"node {load['node']}: - appended"
            continue
        busiest = ", ".join(
            f"{each['partition']} {format_bytes(each['bytes_s'])}/s" for each in load["busiest"]
        )
        rate = f"{format_bytes(load['bytes_s'])}/s and {load['requests_s']:,} batches/s appended"
        yield f"node {load['node']}: {rate}" + (f"; busiest {busiest}" if busiest else "")
    if sample["policy"]:
        yield f"policy: {sample['policy']}"


def _list(nodes: list[int]) -> str:
    return ", ".join(map(str, nodes))


def _node_table(sample: dict[str, Any]) -> Table:
    from rich.table import Table  # noqa: PLC0415 - as above

    leader = f"node {sample['leader']} leads term {sample['term']}" if sample["leader"] else "no node leads"
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
    for node in [*sample["nodes"], {"node": "all", **sample["total"]}]:
        rates = [node.get(f"{name}_s") for name in RATES]
        figures = [
            "-" if rate is None else format_bytes(rate) if name == "bytes" else f"{rate:,.0f}"
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
            format_bytes(node["pool_free_bytes"]) if "pool_free_bytes" in node else "",
        )
    return table
