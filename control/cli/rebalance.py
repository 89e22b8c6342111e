"""`ringfence rebalance`: move partitions between nodes; show, pause, resume, cancel and reverse runs."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any, Final

import click

from ringfence.control.cli.connection import NODE_ID, PARTITION
from ringfence.control.cli.exit_codes import Exit
from ringfence.control.cli.output import emit, format_bytes, show_table
from ringfence.control.cli.rebalance_api import Moves, RebalanceApi, api_options
from ringfence.control.model.text import counted, listed
from ringfence.native.errors import RingfenceError

# Seconds between two status requests of `--wait`.
POLL_S: Final = 0.5
# Seconds between two progress lines of `--wait` without a terminal: twelve lines a minute in a log.
REPORT_S: Final = 5.0
WAITS_SHOWN: Final = 5
# Partition numbers on one line; `--json` has all.
REVERSIBLE_SHOWN: Final = 8
COLUMNS: Final = ("partition", "from", "to", "state", "rows", "bytes", "gap_us", "attempts", "error")
ACTIONS: Final = ("add_node", "remove_node", "balance", "move", "drain")


@click.group()
def command() -> None:
    """Move partitions onto a new node, off a node, or until all nodes have their share.

    \b
    Example:
      ringfence rebalance start balance --http http://127.0.0.1:7412 --wait
    """  # noqa: D301


def start_run(api: RebalanceApi, begin: Callable[[], int], *, as_json: bool, wait: bool) -> int:
    """Start a run. With `wait`, return after its end: 0 if all was moved, 9 if not."""
    run = begin()
    if not wait:
        status = _status_of(api, run)
        waits = status["waits"] if status else []
        if as_json:
            emit({"run": run, "waits": waits})
        elif status and not (status["moves"] or waits or status["held"]):
            click.echo(f"rebalance {run}: nothing is to be moved")
        else:
            click.echo(f"rebalance {run} is running; `ringfence rebalance status` shows its progress")
            if waits:
                click.echo(_waits_line(waits))
        return Exit.OK
    progress = _Progress(quiet=as_json)
    status = api.show()
    while status["run"] < run or (status["run"] == run and status["state"] != "IDLE"):
        progress.report(status if status["run"] == run else None)
        time.sleep(POLL_S)
        status = api.show()
    if status["run"] != run:
        # A later run has begun, and the status is that of the later run: take the outcome from the history.
        entries = [entry for entry in api.history()["runs"] if entry["run"] == run]
        end = entries[0] if entries else {"run": run, "outcome": ""}
        status = {**status, **end, "moves": [], "held": 0, "waits": []}
    progress.end()
    _show(status, as_json=as_json)
    return Exit.OK if status["outcome"] == "DONE" and not status["held"] else Exit.DEGRADED


def _status_of(api: RebalanceApi, run: int) -> dict[str, Any] | None:
    """Return the status of a run that has just begun; None if no node answers with it."""
    try:
        status = api.show()
    except RingfenceError:
        return None
    return status if status["run"] == run else None


def _waits_line(waits: list[str]) -> str:
    return f"waiting for: {listed(waits, WAITS_SHOWN, '; ')}"


class _Progress:
    """Progress of a run on stderr: one updated line on a terminal, otherwise a line every REPORT_S."""

    def __init__(self, *, quiet: bool) -> None:
        """`quiet`: report only on a terminal; programs that read JSON lines expect no other lines."""
        self._is_terminal = sys.stderr.isatty()
        self._quiet = quiet and not self._is_terminal
        self._next_s = 0.0

    def report(self, status: dict[str, Any] | None) -> None:
        """Report a status; None if the asked node does not have the run in its metadata yet."""
        line = (
            "waiting until the node has the run in its metadata" if status is None else _progress_line(status)
        )
        if self._is_terminal:
            click.echo(f"\r\x1b[K{line}", nl=False, err=True)
        elif not self._quiet and time.monotonic() >= self._next_s:
            self._next_s = time.monotonic() + REPORT_S
            click.echo(line, err=True)

    def end(self) -> None:
        if self._is_terminal:
            click.echo("\r\x1b[K", nl=False, err=True)


def _progress_line(status: dict[str, Any]) -> str:
    moves = status["moves"]
    committed = sum(move["state"] == "COMMITTED" for move in moves)
    size = sum(move["bytes"] for move in moves)
    eta = f", about {status['eta_s']:g} s left" if status["eta_s"] is not None else ""
    waits = f", waiting for: {status['waits'][0]}" if status["waits"] else ""
    return f"{status['state']}: {committed} of {len(moves)} moved, {format_bytes(size)}{eta}{waits}"


def _moves(texts: tuple[str, ...]) -> Moves:
    """Parse PARTITION:NODE[,NODE...], the owner first."""
    moves = []
    for text in texts:
        partition, _, nodes = text.partition(":")
        try:
            moves.append((int(partition), tuple(int(node) for node in nodes.split(","))))
        except ValueError:
            message = f"{text!r}: expected PARTITION:NODE, with commas between the nodes of replicas"
            raise click.BadParameter(message) from None
    return tuple(moves)


def _start_options(function: Any) -> Any:
    for option in (
        click.argument("action", type=click.Choice(ACTIONS)),
        click.option("--node", type=NODE_ID, default=None, help="Node of the action."),
        click.option(
            "--move",
            "moves",
            multiple=True,
            metavar="PARTITION:NODE[,NODE...]",
            help="With `move`: target nodes of a partition, the owner first. May be repeated.",
        ),
        api_options,
    ):
        function = option(function)
    return function


# Extra arguments reach the command, so that its error can name the option that was meant.
_EXTRA: Final = {"allow_extra_args": True}


def _check_extra(action: str, extra: list[str]) -> None:
    """UsageError that names the option for an extra argument."""
    if not extra:
        return
    option = "--move" if action == "move" else "--node"
    message = f"got unexpected extra argument{'s' * (len(extra) > 1)} ({' '.join(extra)})"
    meant = f"; try `{action} {option} {extra[0]}`" if action != "balance" and extra[0][:1].isdigit() else ""
    raise click.UsageError(message + meant)


def _checked(action: str, node: int | None, moves: tuple[str, ...]) -> tuple[str, int, Moves]:
    """Return the arguments of a run. UsageError if they do not fit the action."""
    _check_extra(action, click.get_current_context().args)
    if (node is None) != (action in {"balance", "move"}):
        raise click.UsageError(f"{action} {'needs' if node is None else 'takes no'} --node")
    if bool(moves) != (action == "move"):
        raise click.UsageError("`move` needs --move, the other actions do not take it")
    return action, node or 0, _moves(moves)


@command.command("start", context_settings=_EXTRA)
@_start_options
@click.option("--wait", is_flag=True, help="Return when the run has ended; exit code 9 if not all was moved.")
def start(
    *, action: str, node: int | None, moves: tuple[str, ...], api: RebalanceApi, as_json: bool, wait: bool
) -> int:
    """Start to move partitions. Only one rebalance runs at a time.

    \b
    Example:
      ringfence rebalance start remove_node --node 4 --http http://127.0.0.1:7412 --wait
    """  # noqa: D301
    run = _checked(action, node, moves)
    return start_run(api, lambda: api.start(*run), as_json=as_json, wait=wait)


@command.command("preview", context_settings=_EXTRA)
@_start_options
def preview(
    *, action: str, node: int | None, moves: tuple[str, ...], api: RebalanceApi, as_json: bool
) -> int:
    """Print the moves that a start would make, without starting them.

    \b
    Example:
      ringfence rebalance preview balance --http http://127.0.0.1:7412
    """  # noqa: D301
    return _show_plan(api.preview(*_checked(action, node, moves)), as_json=as_json)


@command.command("reverse")
@click.argument("partitions", type=PARTITION, nargs=-1)
@click.option("--preview", "is_preview", is_flag=True, help="Dry run: print what would move back.")
@click.option("--wait", is_flag=True, help="Return when the run has ended; exit code 9 if not all was moved.")
@api_options
def reverse(
    *, partitions: tuple[int, ...], is_preview: bool, api: RebalanceApi, as_json: bool, wait: bool
) -> int:
    """Move PARTITIONS back to their nodes before the last change, without loss of rows.

    Without PARTITIONS, reverse the newest rebalance. The old replicas are kept for `reverse_hold_s` after the
    end of a rebalance, so only newer rows are copied. `status` lists the changes that can be reversed.

    \b
    Example:
      ringfence rebalance reverse --http http://127.0.0.1:7412 --wait
    """  # noqa: D301
    if is_preview:
        return _show_plan(api.preview_reverse(partitions), as_json=as_json)
    return start_run(api, lambda: api.reverse(partitions), as_json=as_json, wait=wait)


def _show_plan(plan: dict[str, Any], *, as_json: bool) -> int:
    if as_json:
        emit(plan)
        return Exit.OK
    columns = ("partition", "from", "to")
    show_table(
        counted(plan["count"], "move"),
        columns,
        [[_cell(move[name]) for name in columns] for move in plan["moves"]],
        ids=columns,
    )
    return Exit.OK


@command.command("status")
@api_options
def status(*, api: RebalanceApi, as_json: bool) -> int:
    """Show the current or last run with all moves.

    \b
    Example:
      ringfence rebalance status --http http://127.0.0.1:7412
    """  # noqa: D301
    _show(api.show(), as_json=as_json)
    return Exit.OK


@command.command("history")
@api_options
def history(*, api: RebalanceApi, as_json: bool) -> int:
    """List the ended runs, the newest first.

    `rows/s` and `p99 ms` are those of all nodes before, during and after the run. A latency is the time from
    a batch's arrival at its owner to its acknowledgement.

    \b
    Example:
      ringfence rebalance history --http http://127.0.0.1:7412
    """  # noqa: D301
    values = api.history()
    if as_json:
        emit(values)
        return Exit.OK
    columns = ("run", "action", "node", "outcome", "counts", "longest gap", "rows/s", "p99 ms", "why")
    runs = [
        {
            **run,
            "longest gap": _longest(run["gaps"]),
            "rows/s": _around(run.get("rates"), "rows_s"),
            "p99 ms": _around(run.get("rates"), "p99_ms"),
        }
        for run in values["runs"]
    ]
    rows = [[_cell(run[name]) for name in columns] for run in runs]
    show_table("rebalances", columns, rows, ids=("run", "node"))
    return Exit.OK


def _steer(name: str, text: str) -> None:
    example = f"\n\n\b\nExample:\n  ringfence rebalance {name} --http http://127.0.0.1:7412"

    @command.command(name, help=text + example)
    @api_options
    def steer(*, api: RebalanceApi, as_json: bool) -> int:
        api.steer(name)
        _show(api.show(), as_json=as_json)
        return Exit.OK


_steer("pause", "Finish the running moves and start no others.")
_steer("resume", "Continue after a pause.")
_steer("cancel", "Abort the running moves. Committed moves stay; the ring does not change.")


def _show(values: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        emit(values)
        return
    if not values["run"]:
        click.echo("no rebalance has run yet")
        return
    rows = [[_cell(move[name]) for name in COLUMNS] for move in values["moves"]]
    show_table(
        f"rebalance {values['run']}: {values['action']}", COLUMNS, rows, ids=("partition", "from", "to")
    )
    counts = ", ".join(f"{count} {state}" for state, count in values["counts"].items()) or "nothing to move"
    outcome = f" ({values['outcome']})" if values["outcome"] else ""
    eta = f"; about {values['eta_s']:g} s left" if values["eta_s"] is not None else ""
    click.echo(f"{values['state']}{outcome}: {counts}{eta}")
    remaining = (
        f"node {values['node']} still has {counted(values['held'], 'replica')}" if values["held"] else ""
    )
    waits = _waits_line(values["waits"]) if values["waits"] else ""
    for line in (
        values["why"],
        waits,
        remaining,
        _gaps(values["gaps"]),
        _reversible(values["reversible"]),
        values["policy"],
    ):
        if line:
            click.echo(line)


def _gaps(gaps: dict[str, int]) -> str:
    """Return a line about how long no batch was acknowledged while owners changed."""
    if not gaps:
        return ""
    longest = _longest(gaps)
    if gaps["count"] == 1:
        return f"1 partition changed its owner: no batch was acknowledged there for {longest}"
    half = f"{gaps['p50_us'] / 1_000:,.1f} ms"
    return (
        f"{gaps['count']:,} partitions changed their owners: no batch was acknowledged for {half} (median), "
        f"{longest} (maximum)"
    )


def _around(rates: dict[str, Any] | None, name: str) -> str:
    """Return a figure before, during and after a run; empty if no live node has measured the run."""
    if rates is None:
        return ""
    windows = (rates["before"], rates["during"], rates["after"])
    figures = (None if window is None else window[name] for window in windows)
    return " / ".join("-" if figure is None else f"{figure:,}" for figure in figures)


def _longest(gaps: dict[str, int]) -> str:
    return f"{gaps['max_us'] / 1_000:,.1f} ms" if gaps else ""


def _reversible(changes: list[dict[str, Any]]) -> str:
    """Return a line with the changes that `reverse` reverts, without arguments or by number."""
    moved = [each for each in changes if each["from"] != each["to"]]
    if not moved:
        return ""
    newest = max(each["run"] for each in changes)
    others = [each["partition"] for each in moved if each["run"] != newest]
    last = len(moved) - len(others)
    parts = [f"`rebalance reverse` reverts {counted(last, 'change')} of rebalance {newest}"] if last else []
    if others:
        numbers = listed(others, REVERSIBLE_SHOWN)
        parts.append(
            f"{counted(len(others), 'change')} of earlier rebalances by number, for example `rebalance "
            f"reverse {others[0]}`: partitions {numbers}"
        )
    return "; ".join(parts)


def _cell(value: Any) -> Any:
    if isinstance(value, dict):
        return ", ".join(f"{count} {name}" for name, count in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else value
