"""`ringfence debug`: record steps of consensus at a node, and replay recordings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import msgspec

from ringfence.control.cli.admin import Admin
from ringfence.control.cli.endpoint import Endpoint, control_options
from ringfence.control.cli.exit_codes import Exit
from ringfence.control.cli.output import emit, json_option
from ringfence.control.cli.rebalance_api import ask_node
from ringfence.control.consensus.step_recording import FILE_BYTES_MAX, Recording, Shown, decode, replay
from ringfence.control.runtime.rpc import messages
from ringfence.native.errors import NotFoundError

# Characters of a step in the text output; `--json` prints all.
TEXT_MAX = 160


@click.group(no_args_is_help=True)
def command() -> None:
    """Record steps of consensus and replay them.

    \b
    Example:
      ringfence debug replay data/debug/consensus-1700000000000.events
    """  # noqa: D301


@command.command("events")
@control_options
def events(*, endpoint: Endpoint, as_json: bool) -> int:
    """Make a node write the last steps of its consensus to a file in its data directory.

    The request goes to the node's control address. With --http, the admin API provides that address.

    \b
    Example:
      ringfence debug events --control tcp://127.0.0.1:7421
    """  # noqa: D301
    address = endpoint.control or _control_of(endpoint.admin())
    reply = ask_node(address, messages.SaveRecording(), endpoint.timeout_s)
    assert isinstance(reply, messages.RecordingSaved), reply
    if as_json:
        emit({"path": reply.path})
    else:
        click.echo(reply.path)
    return Exit.OK


def _control_of(admin: Admin) -> str:
    """Return the control address of the node that answers. NotFoundError if it has none."""
    node = admin.get("/admin/status")["node"]
    addresses = admin.get(f"/admin/nodes/{node}")["control"]
    if not addresses:
        raise NotFoundError(f"node {node} has no control address: start it with `serve --control ADDRESS`")
    return str(addresses[0])


@command.command("replay")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--quiet", is_flag=True, help="Print only the summary and errors.")
@json_option
def replay_file(*, file: Path, quiet: bool, as_json: bool) -> int:
    """Replay the steps of FILE and print each step.

    Exits with 0 if no invariant is broken. Exits with 6 otherwise: the last printed step breaks it.

    \b
    Example:
      ringfence debug replay data/debug/consensus-1700000000000.events
    """  # noqa: D301
    recording = _read(file)
    if not as_json:
        click.echo(f"node {recording.node}, ringfence {recording.program}: {recording.why}")
    broken = differs = None
    count = 0
    for shown in replay(recording):
        count += 1
        broken, differs = shown.broken or broken, shown.differs or differs
        if as_json and not quiet:
            emit({**msgspec.to_builtins(shown, builtin_types=(bytes,))})
        elif not as_json and (not quiet or shown.broken or shown.differs):
            click.echo(_line(shown))
    end = {"steps": count, "segments": len(recording.segments), "broken": broken, "differs": differs}
    if as_json:
        emit({"end": end})
    else:
        click.echo(f"{count} steps, {f'broken: {broken}' if broken else 'no invariant is broken'}")
    return Exit.DAMAGE if broken else Exit.OK


def _read(file: Path) -> Recording:
    size = file.stat().st_size
    if size > FILE_BYTES_MAX:
        raise click.UsageError(
            f"{file} has {size} bytes, more than a recording can have ({FILE_BYTES_MAX}); name another file"
        )
    try:
        return decode(file.read_bytes())
    except ValueError as error:
        raise click.UsageError(f"{file}: {error}") from None


def _line(shown: Shown) -> str:
    text = _short(msgspec.to_builtins(shown.step, builtin_types=(bytes,)))
    after = f"{shown.role} term={shown.term} lead={shown.lead} commit={shown.commit} applied={shown.applied}"
    end = "".join(
        f"\n  {label}: {reason}"
        for label, reason in (
            ("refused", shown.refused),
            ("BROKEN", shown.broken),
            ("differs", shown.differs),
        )
        if reason
    )
    return f"{shown.segment}.{shown.number:<5} {text[:TEXT_MAX]:<60} -> {after}{end}"


def _short(step: Any) -> str:
    """Return a step as text, without its empty fields."""
    if isinstance(step, dict):
        inner = step.get("event", step)
        fields = {key: value for key, value in inner.items() if key != "type" and value not in (0, (), None)}
        return f"{inner.get('type', '?')} {fields or ''}"
    return str(step)
