"""`ringfence serve`: run a node in this process until Ctrl-C, SIGTERM or SIGHUP."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from ringfence.control.cli.exit_codes import Exit, storage_errors
from ringfence.control.cli.output import emit, json_option
from ringfence.control.runtime.node_process import Node
from ringfence.control.runtime.process import logs
from ringfence.control.runtime.process.settings import Settings, flag_name, load
from ringfence.control.runtime.serve import NodeFailedError, Sidecar, no_sidecar, serve
from ringfence.control.runtime.wiring import PROGRAM

_FLAGS = frozenset({"insecure"})
_HIDDEN = frozenset({"faults"})
_ALIASES = {"budget_bytes": ["--budget"], "data_dir": ["--data-dir"]}


def _settings_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add a flag for every setting; the help text is the setting's description."""
    for key, field in reversed(Settings.model_fields.items()):
        names = [f"--{flag_name(key)}", *_ALIASES.get(key, []), key]
        options: dict[str, Any] = {"default": None, "help": _help(field), "hidden": key in _HIDDEN}
        if key in _FLAGS:
            options |= {"is_flag": True, "flag_value": True}
        elif key == "direct":
            names = ["--direct/--no-direct", key]
        elif key in {"listen", "advertise", "join"}:
            options |= {"multiple": True, "metavar": "ADDRESS"}
        else:
            options |= {
                "type": str,
                "metavar": "DIR" if key == "data_dir" else key.rpartition("_")[2].upper(),
            }
        function = click.option(*names, **options)(function)
    return function


def _help(field: Any) -> str:
    default = field.default
    text = str(field.description)
    if field.is_required() or default in {None, (), False}:
        return text
    value = ", ".join(default) if isinstance(default, tuple) else default
    return f"{text}  [default: {value}]"


@click.command()
@click.option("--config", type=click.Path(path_type=Path, dir_okay=False), help="TOML file with settings.")
@_settings_options
@json_option
def command(config: Path | None, as_json: bool, **flags: Any) -> int:  # noqa: FBT001 - click's
    """Run a node until Ctrl-C, SIGTERM or SIGHUP.

    Settings come from defaults, --config, RINGFENCE_* variables and flags; later sources override earlier
    ones. Unknown settings are errors. When the node serves, one line on stdout has its addresses; the log
    goes to stderr.

    \b
    Example:
      ringfence serve --data ./data --listen tcp://127.0.0.1:7411 --http 127.0.0.1:7412
    """  # noqa: D301
    values = {key: value for key, value in flags.items() if value is not None and value != ()}
    settings = load(values, config)
    logs.configure(settings.log_format, settings.log_level)

    def announce(node: Node, http: str | None) -> None:
        if as_json:
            emit(_serving_values(node, http))
        else:
            addresses = ", ".join(node.addresses) + (f", {http}" if http else "")
            click.echo(f"{PROGRAM} serves {settings.data_dir} at {addresses}")

    try:
        with storage_errors(settings.data_dir):
            asyncio.run(serve(settings, announce=announce, sidecar=_sidecar(settings)))
    except NodeFailedError as error:
        click.echo(f"ringfence: the node failed: {error}", err=True)
        return Exit.NODE_FAILED
    return Exit.OK


def _sidecar(settings: Settings) -> Sidecar:
    if settings.http is None:
        return no_sidecar
    from ringfence.control.http.endpoint import beside  # noqa: PLC0415 - half of the imports of a start

    return beside


def _serving_values(node: Node, http: str | None) -> dict[str, Any]:
    status = node.status()
    return {
        "event": "serving",
        "address": node.addresses[0],
        "addresses": node.addresses,
        "http": http,
        "control": node.control_address,
        "cluster": status.cluster.hex(),
        "history": status.history.hex(),
        "store": status.store.hex(),
        "node": status.node,
        "program": status.program,
        "state": status.state,
        "reasons": status.reasons,
        "index": status.index,
        "topics": status.topics,
        "partitions": status.partitions,
    }
