"""`ringfence node`: the members of a cluster, and who of them votes on the metadata."""

from __future__ import annotations

from typing import Any

import click
import msgspec

from ringfence.control.cli.exits import Exit
from ringfence.control.cli.output import emit, json_option, show_table
from ringfence.control.runtime import calls
from ringfence.control.transport.question import put
from ringfence.native.errors import refusal

control_option = click.option(
    "--control", required=True, metavar="ADDRESS",
    help="The control address of any node; `serve --json` and `dev` print it.",
)  # fmt: skip
timeout_option = click.option(
    "--timeout", "timeout_s", type=click.FloatRange(min=0.1), default=10.0, show_default=True,
    help="Seconds to wait for an answer.",
)  # fmt: skip


@click.group()
def command() -> None:
    """List, promote, demote and remove nodes of a cluster.

    \b
    Example:
      ringfence node list --control tcp://127.0.0.1:7421
    """  # noqa: D301


@command.command("list")
@control_option
@timeout_option
@json_option
def list_nodes(*, control: str, timeout_s: float, as_json: bool) -> int:
    """List the members as the node at --control knows them: life, role, partitions.

    \b
    Example:
      ringfence node list --control tcp://127.0.0.1:7421
    """  # noqa: D301
    reply = _asked(control, calls.ListNodes(), timeout_s)
    assert isinstance(reply, calls.Nodes), reply
    if as_json:
        emit({**msgspec.structs.asdict(reply), "cluster": reply.cluster.hex(),
              "nodes": [msgspec.structs.asdict(node) for node in reply.nodes]})  # fmt: skip
        return Exit.OK
    columns = ("node", "life", "role", "vote", "in_ring", "zone", "partitions", "addresses", "control")
    rows = [[_shown(getattr(node, name)) for name in columns] for node in reply.nodes]
    show_table(f"cluster {reply.cluster.hex()}", columns, rows)
    leader = f"node {reply.leader} leads" if reply.leader else "nobody leads"
    click.echo(f"{leader} in term {reply.term}; metadata index {reply.index}, hash {reply.hash}")
    return Exit.OK


def _change(name: str, text: str) -> None:
    example = f"\n\n\b\nExample:\n  ringfence node {name} 4 --control tcp://127.0.0.1:7421"

    @command.command(name, help=text + example)
    @click.argument("node", type=click.IntRange(min=1))
    @control_option
    @timeout_option
    @json_option
    def change(*, node: int, control: str, timeout_s: float, as_json: bool) -> int:
        _asked(control, calls.ChangeNode(node=node, change=name), timeout_s)
        if as_json:
            emit({"node": node, "change": name})
        else:
            click.echo(f"node {node}: {name}")
        return Exit.OK


_change("promote", "Prefer a node as a voter; the cluster changes its voters when the node has caught up.")
_change("demote", "Let a node only learn; another one votes in its place.")
_change("auto", "Leave it to the cluster whether a node votes.")
_change("remove", "Take a node that owns no partitions out of the ring and of the cluster, for good.")


@command.command("drain")
@click.argument("node", type=click.IntRange(min=1))
@click.option("--wait", is_flag=True, help="Return when it is over; exit code 9 if not all was moved.")
@control_option
@timeout_option
@json_option
def drain(*, node: int, wait: bool, control: str, timeout_s: float, as_json: bool) -> int:
    """Move everything off a node, which gets nothing new; producers notice nothing.

    `ringfence node remove` takes it out of the cluster afterwards, `rebalance start add_node` fills it again.

    \b
    Example:
      ringfence node drain 4 --control tcp://127.0.0.1:7421 --wait
    """  # noqa: D301
    from ringfence.control.cli.rebalance import started  # noqa: PLC0415 - they share their options

    call = calls.SteerRebalance(verb="start", action="drain", node=node)
    return started(call, control, timeout_s, as_json=as_json, wait=wait)


def _asked(control: str, call: calls.Call, timeout_s: float) -> calls.Reply:
    reply = calls.decode_reply(put(control, calls.encode(call), timeout_s))
    if isinstance(reply, calls.Refusal):
        raise refusal(reply.code, reply.message, retry_after_s=reply.retry_after_ms / 1_000)
    return reply


def _shown(value: Any) -> Any:
    return ", ".join(value) if isinstance(value, tuple) else value
