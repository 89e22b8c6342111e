"""`ringfence node`: list, promote, demote, drain and remove the nodes of a cluster."""

from __future__ import annotations

from typing import Any

import click
import msgspec

from ringfence.control.cli.admin import Admin
from ringfence.control.cli.connection import NODE_ID
from ringfence.control.cli.endpoint import Endpoint, control_options
from ringfence.control.cli.exit_codes import Exit
from ringfence.control.cli.output import emit, show_table
from ringfence.control.cli.rebalance_api import RebalanceApi, api_options, ask_node
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
# Result texts of changes; a change that is not listed prints its name.
RESULTS = {
    "remove": "removed; now stop its process",
    "undrain": "undrain; its running drain, if any, is cancelled",
}


@click.group(no_args_is_help=True)
def command() -> None:
    """List, promote, demote, drain and remove nodes of a cluster.

    \b
    Example:
      ringfence node list --http http://127.0.0.1:7412
    """  # noqa: D301 - click's \b keeps the lines


@command.command("list")
@control_options
def list_nodes(*, endpoint: Endpoint, as_json: bool) -> int:
    """List the nodes with life, role, owned partitions and replicas, from the metadata of the asked node.

    \b
    Example:
      ringfence node list --control tcp://127.0.0.1:7421
    """  # noqa: D301
    if endpoint.control is not None:
        values = _by_control(endpoint.control, endpoint.timeout_s)
    else:
        values = _by_http(endpoint.admin())
    if as_json:
        emit(values)
        return Exit.OK
    # During a rolling upgrade, a node of an older program does not report replicas.
    rows = [[_cell(node.get(name)) for name in COLUMNS] for node in values["nodes"]]
    show_table(f"cluster {values['cluster']}", HEADINGS, rows, ids=("node",))
    leader = f"node {values['leader']} leads" if values["leader"] else "no node leads"
    click.echo(f"{leader} in term {values['term']}; metadata index {values['index']}, hash {values['hash']}")
    return Exit.OK


def _by_control(control: str, timeout_s: float) -> dict[str, Any]:
    reply = ask_node(control, messages.ListNodes(), timeout_s)
    assert isinstance(reply, messages.Nodes), reply
    return {
        **msgspec.structs.asdict(reply),
        "cluster": reply.cluster.hex(),
        "nodes": [msgspec.structs.asdict(node) for node in reply.nodes],
    }


def _by_http(admin: Admin) -> dict[str, Any]:
    status, members = admin.get("/admin/status"), admin.get("/admin/nodes")
    return {
        "cluster": status["cluster"],
        "node": status["node"],
        "leader": members["leader"],
        "term": members["term"],
        "index": status["hash_index"],
        "hash": status["hash"],
        "nodes": members["nodes"],
    }


def _change(name: str, text: str) -> None:
    example = f"\n\n\b\nExample:\n  ringfence node {name} 4 --http http://127.0.0.1:7412"

    @command.command(name, help=text + example)
    @click.argument("node", type=NODE_ID)
    @control_options
    def change(*, node: int, endpoint: Endpoint, as_json: bool) -> int:
        if endpoint.control is not None:
            ask_node(endpoint.control, messages.ChangeNode(node=node, change=name), endpoint.timeout_s)
        else:
            admin = endpoint.admin()
            if name == "remove":
                admin.change("DELETE", f"/admin/nodes/{node}")
            else:
                admin.change("POST", f"/admin/nodes/{node}/{name}")
        if as_json:
            emit({"node": node, "change": name})
        else:
            click.echo(f"node {node}: {RESULTS.get(name, name)}")
        return Exit.OK


_change("promote", "Prefer a node as a voter; it becomes one when it has caught up.")
_change("demote", "Make a node a learner; another node votes instead.")
_change("auto", "Let the cluster decide whether a node votes.")
_change("undrain", "Allow partitions on a drained node again; a running drain is cancelled.")
_change("remove", "Remove a node without replicas from the ring and the cluster, permanently.")


@command.command("drain")
@click.argument("node", type=NODE_ID)
@click.option("--wait", is_flag=True, help="Return when the run has ended; exit code 9 if not all was moved.")
@api_options
def drain(*, node: int, wait: bool, api: RebalanceApi, as_json: bool) -> int:
    """Move all partitions off a node and place no new ones on it; producers continue.

    `undrain` reverts it. After a drain, `ringfence node remove` removes the node from the cluster, and
    `rebalance start add_node` moves partitions onto it again.

    \b
    Example:
      ringfence node drain 4 --http http://127.0.0.1:7412 --wait
    """  # noqa: D301
    from ringfence.control.cli.rebalance import start_run  # noqa: PLC0415 - only this command needs it

    return start_run(api, lambda: api.drain(node), as_json=as_json, wait=wait)


def _cell(value: Any) -> Any:
    return ", ".join(value) if isinstance(value, tuple | list) else value
