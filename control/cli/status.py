"""`ringfence status`: what a node is and how it fares."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ringfence.control.cli.admin import Admin, http_options
from ringfence.control.cli.connection import address_option, connected, http_meant, timeout_option
from ringfence.control.cli.exit_codes import Exit
from ringfence.control.cli.output import emit, json_option, show_table


@click.command()
@click.option("--counters", is_flag=True, help="Show the counters, too; --json always has them.")
@address_option
@http_options
@timeout_option
@json_option
def command(
    *,
    counters: bool,
    address: str,
    http: str | None,
    token_file: Path | None,
    timeout_s: float,
    as_json: bool,
) -> int:
    """Say what the node at --address, or at --http, is and how it fares; who leads, and what its role is.

    Ends with 0 while all is well and with 9 while there are reasons for worry, which are listed, or a member
    of the cluster is FAILED, even if the node that is asked is well itself.

    \b
    Example:
      ringfence status --address tcp://127.0.0.1:7411
    """  # noqa: D301
    http = http_meant(http)
    if http is not None:
        values: dict[str, Any] = Admin(http, token_file, timeout_s).get("/admin/status")
    else:
        with connected(address, timeout_s, token_file) as client:
            status = client.status()
        values = {name: getattr(status, name) for name in status.__struct_fields__}
        for name in ("cluster", "history", "store"):
            values[name] = values[name].hex()
    is_well = values["state"] == "serving" and not values["failed"]
    if as_json:
        emit(values)
    else:
        figures = values.pop("counters")
        reasons, failed = values.pop("reasons"), _shown(values.pop("failed"))
        if failed:
            values["members"] = f"{values['members']}, FAILED: {failed} (`ringfence node list` shows all)"
        show_table("", ("", ""), [[name, _shown(value)] for name, value in values.items()])
        for reason in reasons:
            click.echo(f"! {reason}")
        if counters:
            show_table("", ("counter", "value"), sorted(figures.items()))
    return Exit.OK if is_well else Exit.DEGRADED


def _shown(value: Any) -> Any:
    return ", ".join(map(str, value)) if isinstance(value, list) else value
