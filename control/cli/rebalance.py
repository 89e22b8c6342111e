"""`ringfence rebalance`: move partitions between nodes, watch it, steer it."""

from __future__ import annotations

import time
from typing import Any, Final

import click

from ringfence.control.cli.exits import Exit
from ringfence.control.cli.node import control_option, timeout_option
from ringfence.control.cli.output import emit, json_option, show_table
from ringfence.control.runtime import calls
from ringfence.control.transport.question import put
from ringfence.native.errors import refusal

LOOK_S: Final = 0.5
"""How often `--wait` looks."""
COLUMNS: Final = ("partition", "from", "to", "state", "rows", "bytes", "attempts", "error")
ACTIONS: Final = ("add_node", "remove_node", "balance", "move", "drain")


@click.group()
def command() -> None:
    """Move partitions: onto a new node, off one that leaves, or until all hold their share.

    \b
    Example:
      ringfence rebalance start balance --control tcp://127.0.0.1:7421 --wait
    """  # noqa: D301


def asked(control: str, call: calls.SteerRebalance, timeout_s: float) -> dict[str, Any]:
    """What the cluster tells. Raises the typed error of a refusal."""
    reply = calls.decode_reply(put(control, calls.encode(call), timeout_s))
    if isinstance(reply, calls.Refusal):
        raise refusal(reply.code, reply.message, retry_after_s=reply.retry_after_ms / 1_000)
    assert isinstance(reply, calls.Told), reply
    return reply.value


def started(call: calls.SteerRebalance, control: str, timeout_s: float, *, as_json: bool, wait: bool) -> int:
    """Start a run, and wait for its end if that is wanted: 0 if all was moved."""
    told = asked(control, call, timeout_s)
    if not wait:
        _tell(told, f"rebalance {told['run']}: {told['count']} moves begin", as_json=as_json)
        return Exit.OK
    while True:
        shown = asked(control, calls.SteerRebalance(verb="show"), timeout_s)
        if shown["run"] != told["run"] or shown["state"] == "IDLE":
            break
        time.sleep(LOOK_S)
    _show(shown, as_json=as_json)
    return Exit.OK if shown["outcome"] == "DONE" else Exit.DEGRADED


def _moves(texts: tuple[str, ...]) -> tuple[tuple[int, tuple[int, ...]], ...]:
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
        click.option("--node", type=click.IntRange(min=1), default=None, help="The node that it is about."),
        click.option(
            "--move", "moves", multiple=True, metavar="PARTITION:NODE[,NODE...]",
            help="With `move`: where a partition goes, its owner first. Repeat it for more.",
        ),
        control_option, timeout_option, json_option,
    ):  # fmt: skip
        function = option(function)
    return function


def _call(verb: str, action: str, node: int | None, moves: tuple[str, ...]) -> calls.SteerRebalance:
    if (node is None) != (action in {"balance", "move"}):
        raise click.UsageError(f"{action} {'needs' if node is None else 'takes no'} --node")
    if bool(moves) != (action == "move"):
        raise click.UsageError("`move` needs --move, the others take none")
    return calls.SteerRebalance(verb=verb, action=action, node=node or 0, moves=_moves(moves))


@command.command("start")
@_start_options
@click.option("--wait", is_flag=True, help="Return when it is over; exit code 9 if not all was moved.")
def start(
    *, action: str, node: int | None, moves: tuple[str, ...], control: str, timeout_s: float,
    as_json: bool, wait: bool,
) -> int:  # fmt: skip
    """Begin to move partitions. One rebalance at a time.

    \b
    Example:
      ringfence rebalance start remove_node --node 4 --control tcp://127.0.0.1:7421 --wait
    """  # noqa: D301
    return started(_call("start", action, node, moves), control, timeout_s, as_json=as_json, wait=wait)


@command.command("preview")
@_start_options
def preview(
    *, action: str, node: int | None, moves: tuple[str, ...], control: str, timeout_s: float, as_json: bool
) -> int:
    """Say what a start would move; nothing is changed.

    \b
    Example:
      ringfence rebalance preview balance --control tcp://127.0.0.1:7421
    """  # noqa: D301
    told = asked(control, _call("preview", action, node, moves), timeout_s)
    if as_json:
        emit(told)
        return Exit.OK
    columns = ("partition", "from", "to")
    show_table(
        f"{told['count']} moves",
        columns,
        [[_shown(move[name]) for name in columns] for move in told["moves"]],
    )
    return Exit.OK


@command.command("status")
@control_option
@timeout_option
@json_option
def status(*, control: str, timeout_s: float, as_json: bool) -> int:
    """Show the run that is under way, or the last one, with every move.

    \b
    Example:
      ringfence rebalance status --control tcp://127.0.0.1:7421
    """  # noqa: D301
    _show(asked(control, calls.SteerRebalance(verb="show"), timeout_s), as_json=as_json)
    return Exit.OK


@command.command("history")
@control_option
@timeout_option
@json_option
def history(*, control: str, timeout_s: float, as_json: bool) -> int:
    """List the runs that have ended, the newest first.

    \b
    Example:
      ringfence rebalance history --control tcp://127.0.0.1:7421
    """  # noqa: D301
    told = asked(control, calls.SteerRebalance(verb="history"), timeout_s)
    if as_json:
        emit(told)
        return Exit.OK
    columns = ("run", "action", "node", "outcome", "counts", "why")
    show_table("rebalances", columns, [[_shown(run[name]) for name in columns] for run in told["runs"]])
    return Exit.OK


def _steer(name: str, text: str) -> None:
    example = f"\n\n\b\nExample:\n  ringfence rebalance {name} --control tcp://127.0.0.1:7421"

    @command.command(name, help=text + example)
    @control_option
    @timeout_option
    @json_option
    def steer(*, control: str, timeout_s: float, as_json: bool) -> int:
        _show(asked(control, calls.SteerRebalance(verb=name), timeout_s), as_json=as_json)
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
    show_table(f"rebalance {told['run']}: {told['action']}", COLUMNS, rows)
    counts = ", ".join(f"{count} {state}" for state, count in told["counts"].items()) or "no moves"
    outcome = f" ({told['outcome']})" if told["outcome"] else ""
    eta = f"; about {told['eta_s']:g} s left" if told["eta_s"] is not None else ""
    click.echo(f"{told['state']}{outcome}: {counts}{eta}")
    for line in (told["why"], told["policy"]):
        if line:
            click.echo(line)


def _tell(told: dict[str, Any], line: str, *, as_json: bool) -> None:
    if as_json:
        emit(told)
    else:
        click.echo(line)


def _shown(value: Any) -> Any:
    if isinstance(value, dict):
        return ", ".join(f"{count} {name}" for name, count in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else value
