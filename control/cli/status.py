"""`ringfence status`: show a node's identity and health."""

from __future__ import annotations

from typing import Any

import click

from ringfence.control.cli.connection import open_client
from ringfence.control.cli.endpoint import Endpoint, address_options
from ringfence.control.cli.exit_codes import Exit
from ringfence.control.cli.output import emit, show_table


@click.command()
@click.option("--counters", is_flag=True, help="Also show the counters; --json always has them.")
@address_options
def command(*, counters: bool, endpoint: Endpoint, as_json: bool) -> int:
    """Show identity, role and health of the node at --address or --http, and the leader of its cluster.

    Exits with 0 if the node is healthy. Exits with 9 if it is degraded, with the reasons listed, or if any
    member of the cluster is FAILED.

    \b
    Example:
      ringfence status --address tcp://127.0.0.1:7411
    """  # noqa: D301
    if endpoint.http is not None:
        values: dict[str, Any] = endpoint.admin().get("/admin/status")
    else:
        assert endpoint.address is not None, "the command has --address, with a default"
        with open_client(endpoint.address, endpoint.timeout_s, endpoint.token_file) as client:
            status = client.status()
        values = {name: getattr(status, name) for name in status.__struct_fields__}
        for name in ("cluster", "history", "store"):
            values[name] = values[name].hex()
    is_healthy = values["state"] == "serving" and not values["failed"]
    if as_json:
        emit(values)
    else:
        figures = values.pop("counters")
        reasons, failed = values.pop("reasons"), _cell(values.pop("failed"))
        if failed:
            values["members"] = f"{values['members']}, FAILED: {failed} (run `ringfence node list`)"
        show_table("", ("", ""), [[name, _cell(value)] for name, value in values.items()])
        for reason in reasons:
            click.echo(f"! {reason}")
        if counters:
            show_table("", ("counter", "value"), sorted(figures.items()))
    return Exit.OK if is_healthy else Exit.DEGRADED


def _cell(value: Any) -> Any:
    return ", ".join(map(str, value)) if isinstance(value, list) else value
