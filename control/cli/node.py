"""`ringfence node`: the members of a cluster, who of them votes on the metadata, and who takes partitions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import msgspec

from ringfence.control.cli.admin import Admin, http_options
from ringfence.control.cli.connection import NODE_ID
from ringfence.control.cli.exit_codes import Exit
from ringfence.control.cli.output import emit, json_option, show_table
from ringfence.control.cli.rebalance_api import (
    RebalanceApi,
    control_option,
    door_options,
    questioned,
    timeout_option,
)
from ringfence.control.runtime.rpc import messages

COLUMNS = (
    "node",
    "life",
    "role",
    "vote",
    "draining",
    "in_ring",
    "zone",
    "weight",
    "partitions",
    "replicas",
    "addresses",
    "control",
    "http",
)
HEADINGS = ["owned" if name == "partitions" else name for name in COLUMNS]
# What is said of a change that was made; of the others their names.
SAID = {"remove": "removed; now stop its process", "undrain": "undrain; a drain of it that ran is cancelled"}


@click.group(no_args_is_help=True)
def command() -> None:
    """List, promote, demote, drain and remove nodes of a cluster.

    \b
    Example:
      ringfence node list --http http://127.0.0.1:7412
    """  # noqa: D301 - click's \b keeps the lines


@command.command("list")
@control_option
@http_options
@timeout_option
@json_option
def list_nodes(
    *, control: str | None, http: str | None, token_file: Path | None, timeout_s: float, as_json: bool
) -> int:
    """List the members as the node that is asked knows them: life, role, partitions owned, replicas in all.

    \b
    Example:
      ringfence node list --control tcp://127.0.0.1:7421
    """  # noqa: D301
    if control is not None:
        told = _by_control(control, timeout_s)
    else:
        told = _by_http(Admin(http, token_file, timeout_s))
    if as_json:
        emit(told)
        return Exit.OK
    # A node of an older program, in the middle of a rolling restart, does not tell of replicas.
    rows = [[_shown(node.get(name)) for name in COLUMNS] for node in told["nodes"]]
    show_table(f"cluster {told['cluster']}", HEADINGS, rows, ids=("node",))
    leader = f"node {told['leader']} leads" if told["leader"] else "nobody leads"
    click.echo(f"{leader} in term {told['term']}; metadata index {told['index']}, hash {told['hash']}")
    return Exit.OK


def _by_control(control: str, timeout_s: float) -> dict[str, Any]:
    reply = questioned(control, messages.ListNodes(), timeout_s)
    assert isinstance(reply, messages.Nodes), reply
    return {
        **msgspec.structs.asdict(reply),
        "cluster": reply.cluster.hex(),
        "nodes": [msgspec.structs.asdict(node) for node in reply.nodes],
    }


def _by_http(admin: Admin) -> dict[str, Any]:
    status, told = admin.get("/admin/status"), admin.get("/admin/nodes")
    return {
        "cluster": status["cluster"],
        "node": status["node"],
        "leader": told["leader"],
        "term": told["term"],
        "index": status["hash_index"],
        "hash": status["hash"],
        "nodes": told["nodes"],
    }


def _change(name: str, text: str) -> None:
    example = f"\n\n\b\nExample:\n  ringfence node {name} 4 --http http://127.0.0.1:7412"

    @command.command(name, help=text + example)
    @click.argument("node", type=NODE_ID)
    @control_option
    @http_options
    @timeout_option
    @json_option
    def change(
        *,
        node: int,
        control: str | None,
        http: str | None,
        token_file: Path | None,
        timeout_s: float,
        as_json: bool,
    ) -> int:
        if control is not None:
            questioned(control, messages.ChangeNode(node=node, change=name), timeout_s)
        else:
            admin = Admin(http, token_file, timeout_s)
            if name == "remove":
                admin.change("DELETE", f"/admin/nodes/{node}")
            else:
                admin.change("POST", f"/admin/nodes/{node}/{name}")
        if as_json:
            emit({"node": node, "change": name})
        else:
            click.echo(f"node {node}: {SAID.get(name, name)}")
        return Exit.OK


_change("promote", "Prefer a node as a voter; the cluster changes its voters when the node has caught up.")
_change("demote", "Let a node only learn; another one votes in its place.")
_change("auto", "Leave it to the cluster whether a node votes.")
_change("undrain", "Let a drained node get partitions again; a drain that is under way is cancelled.")
_change("remove", "Take a node that has no replicas out of the ring and of the cluster, for good.")


@command.command("drain")
@click.argument("node", type=NODE_ID)
@click.option("--wait", is_flag=True, help="Return when it is over; exit code 9 if not all was moved.")
@door_options
@json_option
def drain(*, node: int, wait: bool, door: RebalanceApi, as_json: bool) -> int:
    """Move everything off a node, which gets nothing new; producers notice nothing.

    `undrain` is its opposite. `ringfence node remove` takes the node out of the cluster afterwards,
    `rebalance start add_node` fills it again.

    \b
    Example:
      ringfence node drain 4 --http http://127.0.0.1:7412 --wait
    """  # noqa: D301
    from ringfence.control.cli.rebalance import started  # noqa: PLC0415 - only this command needs it

    return started(door, lambda: door.drain(node), as_json=as_json, wait=wait)


def _shown(value: Any) -> Any:
    return ", ".join(value) if isinstance(value, tuple | list) else value
