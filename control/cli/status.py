"""`ringfence status`: what a node is and how it fares."""

from __future__ import annotations

from typing import Any

import click

from ringfence.control.cli.connection import address_option, connected, timeout_option
from ringfence.control.cli.exits import Exit
from ringfence.control.cli.output import emit, json_option, show_table


@click.command()
@click.option("--counters", is_flag=True, help="Show the counters, too; --json always has them.")
@address_option
@timeout_option
@json_option
def command(*, counters: bool, address: str, timeout_s: float, as_json: bool) -> int:
    """Say what the node at --address is and how it fares.

    Ends with 0 while all is well and with 9 while there are reasons for worry, which are listed.

    \b
    Example:
      ringfence status --address tcp://127.0.0.1:7411
    """  # noqa: D301
    with connected(address, timeout_s) as client:
        status = client.status()
    values: dict[str, Any] = {name: getattr(status, name) for name in status.__struct_fields__}
    for name in ("cluster", "history", "store"):
        values[name] = values[name].hex()
    if as_json:
        emit(values)
    else:
        figures = values.pop("counters")
        reasons = values.pop("reasons")
        show_table("", ("", ""), [[name, _shown(value)] for name, value in values.items()])
        for reason in reasons:
            click.echo(f"! {reason}")
        if counters:
            show_table("", ("counter", "value"), sorted(figures.items()))
    return Exit.OK if status.state == "serving" else Exit.DEGRADED


def _shown(value: Any) -> Any:
    return ", ".join(value) if isinstance(value, list) else value
