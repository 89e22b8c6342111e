"""`ringfence rebalance`: move partitions between nodes, watch it, steer it."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any, Final

import click

from ringfence.control.cli.connection import NODE_ID, PARTITION
from ringfence.control.cli.exit_codes import Exit
from ringfence.control.cli.output import emit, json_option, show_table, shown_bytes
from ringfence.control.cli.rebalance_api import Moves, RebalanceApi, door_options
from ringfence.control.model.text import counted, listed
from ringfence.native.errors import RingfenceError

# How often `--wait` looks.
LOOK_S: Final = 0.5
# How often `--wait` says how far it is where lines stay: twelve a minute in a log.
TELL_S: Final = 5.0
WAITS_SHOWN: Final = 5
# Partitions by number, on one line; `--json` has all.
REVERSIBLE_SHOWN: Final = 8
COLUMNS: Final = ("partition", "from", "to", "state", "rows", "bytes", "gap_us", "attempts", "error")
ACTIONS: Final = ("add_node", "remove_node", "balance", "move", "drain")


@click.group()
def command() -> None:
    """Move partitions: onto a new node, off one that leaves, or until all hold their share.

    \b
    Example:
      ringfence rebalance start balance --http http://127.0.0.1:7412 --wait
    """  # noqa: D301


def started(door: RebalanceApi, begin: Callable[[], int], *, as_json: bool, wait: bool) -> int:
    """Start a run, and wait for its end if that is wanted: 0 if all was moved, 9 if not."""
    run = begin()
    if not wait:
        known = _known(door, run)
        waits = known["waits"] if known else []
        if as_json:
            emit({"run": run, "waits": waits})
        elif known and not (known["moves"] or waits or known["held"]):
            click.echo(f"rebalance {run}: nothing is to be moved")
        else:
            click.echo(f"rebalance {run} is under way; `ringfence rebalance status` tells how far it is")
            if waits:
                click.echo(_waits_line(waits))
        return Exit.OK
    progress = _Progress(quiet=as_json)
    shown = door.show()
    while shown["run"] < run or (shown["run"] == run and shown["state"] != "IDLE"):
        progress.tell(shown if shown["run"] == run else None)
        time.sleep(LOOK_S)
        shown = door.show()
    if shown["run"] != run:
        ended = [known for known in door.history()["runs"] if known["run"] == run]
        # Another run has begun meanwhile, and its moves are shown; of this one the history has the end.
        end = ended[0] if ended else {"run": run, "outcome": ""}
        shown = {**shown, **end, "moves": [], "held": 0, "waits": []}
    progress.end()
    _show(shown, as_json=as_json)
    return Exit.OK if shown["outcome"] == "DONE" and not shown["held"] else Exit.DEGRADED


def _known(door: RebalanceApi, run: int) -> dict[str, Any] | None:
    """What is told of a run that has just begun. It has begun, whether or not somebody tells."""
    try:
        shown = door.show()
    except RingfenceError:
        return None
    return shown if shown["run"] == run else None


def _waits_line(waits: list[str]) -> str:
    return f"waits for: {listed(waits, WAITS_SHOWN, '; ')}"


class _Progress:
    """How far a run is, on stderr: one line that changes on a terminal, elsewhere a line now and then."""

    def __init__(self, *, quiet: bool) -> None:
        """`quiet`: only a terminal hears of it; programs that read lines of JSON expect no others."""
        self._changes = sys.stderr.isatty()
        self._quiet = quiet and not self._changes
        self._next_s = 0.0

    def tell(self, shown: dict[str, Any] | None) -> None:
        """None: the node that is asked has not heard of the run yet."""
        line = "waits for the run to be known" if shown is None else _far(shown)
        if self._changes:
            click.echo(f"\r\x1b[K{line}", nl=False, err=True)
        elif not self._quiet and time.monotonic() >= self._next_s:
            self._next_s = time.monotonic() + TELL_S
            click.echo(line, err=True)

    def end(self) -> None:
        if self._changes:
            click.echo("\r\x1b[K", nl=False, err=True)


def _far(shown: dict[str, Any]) -> str:
    over = sum(move["state"] == "COMMITTED" for move in shown["moves"])
    size = sum(move["bytes"] for move in shown["moves"])
    eta = f", about {shown['eta_s']:g} s left" if shown["eta_s"] is not None else ""
    waits = f", waits for: {shown['waits'][0]}" if shown["waits"] else ""
    return f"{shown['state']}: {over} of {len(shown['moves'])} moved, {shown_bytes(size)}{eta}{waits}"


def _moves(texts: tuple[str, ...]) -> Moves:
    """PARTITION:NODE[,NODE...], the owner first."""
    found = []
    for text in texts:
        partition, _, nodes = text.partition(":")
        try:
            found.append((int(partition), tuple(int(node) for node in nodes.split(","))))
        except ValueError:
            message = f"{text!r}: PARTITION:NODE, with more nodes behind commas where there are replicas"
            raise click.BadParameter(message) from None
    return tuple(found)


def _start_options(function: Any) -> Any:
    for option in (
        click.argument("action", type=click.Choice(ACTIONS)),
        click.option("--node", type=NODE_ID, default=None, help="The node that it is about."),
        click.option(
            "--move",
            "moves",
            multiple=True,
            metavar="PARTITION:NODE[,NODE...]",
            help="With `move`: where a partition goes, its owner first. Repeat it for more.",
        ),
        door_options,
        json_option,
    ):
        function = option(function)
    return function


# So that we can say which option is meant.
_EXTRA: Final = {"allow_extra_args": True}


def _check_extra(action: str, extra: list[str]) -> None:
    """UsageError with the option that an argument was meant for."""
    if not extra:
        return
    option = "--move" if action == "move" else "--node"
    message = f"got unexpected extra argument{'s' * (len(extra) > 1)} ({' '.join(extra)})"
    meant = f"; try `{action} {option} {extra[0]}`" if action != "balance" and extra[0][:1].isdigit() else ""
    raise click.UsageError(message + meant)


def _checked(action: str, node: int | None, moves: tuple[str, ...]) -> tuple[str, int, Moves]:
    """UsageError for what no run can be."""
    _check_extra(action, click.get_current_context().args)
    if (node is None) != (action in {"balance", "move"}):
        raise click.UsageError(f"{action} {'needs' if node is None else 'takes no'} --node")
    if bool(moves) != (action == "move"):
        raise click.UsageError("`move` needs --move, the others take none")
    return action, node or 0, _moves(moves)


@command.command("start", context_settings=_EXTRA)
@_start_options
@click.option("--wait", is_flag=True, help="Return when it is over; exit code 9 if not all was moved.")
def start(
    *, action: str, node: int | None, moves: tuple[str, ...], door: RebalanceApi, as_json: bool, wait: bool
) -> int:
    """Begin to move partitions. One rebalance at a time.

    \b
    Example:
      ringfence rebalance start remove_node --node 4 --http http://127.0.0.1:7412 --wait
    """  # noqa: D301
    asked = _checked(action, node, moves)
    return started(door, lambda: door.start(*asked), as_json=as_json, wait=wait)


@command.command("preview", context_settings=_EXTRA)
@_start_options
def preview(
    *, action: str, node: int | None, moves: tuple[str, ...], door: RebalanceApi, as_json: bool
) -> int:
    """Say what a start would move; nothing is changed.

    \b
    Example:
      ringfence rebalance preview balance --http http://127.0.0.1:7412
    """  # noqa: D301
    return _show_plan(door.preview(*_checked(action, node, moves)), as_json=as_json)


@command.command("reverse")
@click.argument("partitions", type=PARTITION, nargs=-1)
@click.option("--preview", "only_look", is_flag=True, help="Say what would move back; nothing is changed.")
@click.option("--wait", is_flag=True, help="Return when it is over; exit code 9 if not all was moved.")
@door_options
@json_option
def reverse(
    *, partitions: tuple[int, ...], only_look: bool, door: RebalanceApi, as_json: bool, wait: bool
) -> int:
    """Move PARTITIONS back to where they were before their last change, without loss.

    Without PARTITIONS: all of the newest rebalance. For `reverse_hold_s` after its end the old copy is kept,
    so only what has come since is copied. `status` lists what can be reversed.

    \b
    Example:
      ringfence rebalance reverse --http http://127.0.0.1:7412 --wait
    """  # noqa: D301
    if only_look:
        return _show_plan(door.preview_reverse(partitions), as_json=as_json)
    return started(door, lambda: door.reverse(partitions), as_json=as_json, wait=wait)


def _show_plan(told: dict[str, Any], *, as_json: bool) -> int:
    if as_json:
        emit(told)
        return Exit.OK
    columns = ("partition", "from", "to")
    show_table(
        counted(told["count"], "move"),
        columns,
        [[_shown(move[name]) for name in columns] for move in told["moves"]],
        ids=columns,
    )
    return Exit.OK


@command.command("status")
@door_options
@json_option
def status(*, door: RebalanceApi, as_json: bool) -> int:
    """Show the run that is under way, or the last one, with every move.

    \b
    Example:
      ringfence rebalance status --http http://127.0.0.1:7412
    """  # noqa: D301
    _show(door.show(), as_json=as_json)
    return Exit.OK


@command.command("history")
@door_options
@json_option
def history(*, door: RebalanceApi, as_json: bool) -> int:
    """List the runs that have ended, the newest first.

    \b
    Example:
      ringfence rebalance history --http http://127.0.0.1:7412
    """  # noqa: D301
    told = door.history()
    if as_json:
        emit(told)
        return Exit.OK
    columns = ("run", "action", "node", "outcome", "counts", "longest gap", "why")
    runs = [{**run, "longest gap": _longest(run["gaps"])} for run in told["runs"]]
    rows = [[_shown(run[name]) for name in columns] for run in runs]
    show_table("rebalances", columns, rows, ids=("run", "node"))
    return Exit.OK


def _steer(name: str, text: str) -> None:
    example = f"\n\n\b\nExample:\n  ringfence rebalance {name} --http http://127.0.0.1:7412"

    @command.command(name, help=text + example)
    @door_options
    @json_option
    def steer(*, door: RebalanceApi, as_json: bool) -> int:
        door.steer(name)
        _show(door.show(), as_json=as_json)
        return Exit.OK


_steer("pause", "Let the moves that run end, and begin none.")
_steer("resume", "Go on after a pause.")
_steer("cancel", "Abort the moves that run. What is committed stays; the ring does not change.")


def _show(told: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        emit(told)
        return
    if not told["run"]:
        click.echo("no rebalance so far")
        return
    rows = [[_shown(move[name]) for name in COLUMNS] for move in told["moves"]]
    show_table(f"rebalance {told['run']}: {told['action']}", COLUMNS, rows, ids=("partition", "from", "to"))
    counts = ", ".join(f"{count} {state}" for state, count in told["counts"].items()) or "nothing to move"
    outcome = f" ({told['outcome']})" if told["outcome"] else ""
    eta = f"; about {told['eta_s']:g} s left" if told["eta_s"] is not None else ""
    click.echo(f"{told['state']}{outcome}: {counts}{eta}")
    held = f"node {told['node']} still has {counted(told['held'], 'replica')}" if told["held"] else ""
    waits = _waits_line(told["waits"]) if told["waits"] else ""
    for line in (told["why"], waits, held, _gaps(told["gaps"]), _back(told["reversible"]), told["policy"]):
        if line:
            click.echo(line)


def _gaps(gaps: dict[str, int]) -> str:
    """How long producers of a partition waited while its owner changed."""
    if not gaps:
        return ""
    longest = _longest(gaps)
    if gaps["count"] == 1:
        return f"1 partition changed its owner: nobody was acknowledged there for {longest}"
    half = f"{gaps['p50_us'] / 1_000:,.1f} ms"
    return (
        f"{gaps['count']:,} partitions changed their owners: nobody was acknowledged for {half} in half of "
        f"them, for {longest} at the longest"
    )


def _longest(gaps: dict[str, int]) -> str:
    return f"{gaps['max_us'] / 1_000:,.1f} ms" if gaps else ""


def _back(kept: list[dict[str, Any]]) -> str:
    """What `reverse` takes without arguments, and what it takes by number only."""
    moved = [one for one in kept if one["from"] != one["to"]]
    if not moved:
        return ""
    newest = max(one["run"] for one in kept)
    others = [one["partition"] for one in moved if one["run"] != newest]
    last = len(moved) - len(others)
    told = [f"`rebalance reverse` takes back {counted(last, 'change')} of rebalance {newest}"] if last else []
    if others:
        numbers = listed(others, REVERSIBLE_SHOWN)
        told.append(
            f"{counted(len(others), 'change')} of earlier ones only by number, as `rebalance reverse "
            f"{others[0]}`: partitions {numbers}"
        )
    return "; ".join(told)


def _shown(value: Any) -> Any:
    if isinstance(value, dict):
        return ", ".join(f"{count} {name}" for name, count in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else value
