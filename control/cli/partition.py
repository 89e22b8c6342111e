"""`ringfence partition`: show a partition, release it, force an owner, give up lost rows, split and merge."""

from __future__ import annotations

from typing import Any

import click

from ringfence.control.cli import layout
from ringfence.control.cli.connection import NODE_ID, PARTITION
from ringfence.control.cli.endpoint import Endpoint, control_options
from ringfence.control.cli.exit_codes import Exit
from ringfence.control.cli.output import confirm, emit, show_table
from ringfence.control.cli.rebalance_api import ask_values
from ringfence.control.runtime.rpc import messages
from ringfence.native.errors import InvalidArgumentError

# Characters of the accepted loss that the audit log stores.
WHY_MAX = 1_000


@click.group(no_args_is_help=True)
def command() -> None:
    """Show a partition's owner, replicas and change; split and merge; release it, force an owner.

    \b
    Example:
      ringfence partition show 655360 --http http://127.0.0.1:7412
    """  # noqa: D301 - click's \b keeps the lines


for one in layout.OF_PARTITION:
    command.add_command(one)


class _PartitionApi:
    """Access to partitions through the admin API or a node's control address."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._control, self._timeout_s = endpoint.control, endpoint.timeout_s
        self._admin = endpoint.admin() if endpoint.control is None else None

    def show(self, partition: int) -> dict[str, Any]:
        if self._admin is not None:
            values: dict[str, Any] = self._admin.get(f"/admin/partitions/{partition}")
            return values
        assert self._control is not None
        return ask_values(self._control, messages.ShowPartition(partition=partition), self._timeout_s)

    def force(self, partition: int, change: int, owner: int, accepts: str, replicas: tuple[int, ...]) -> None:
        if self._admin is not None:
            body = {"change": change, "owner": owner, "accepts": accepts, "replicas": list(replicas)}
            self._admin.change("POST", f"/admin/partitions/{partition}/force-owner", body)
            return
        assert self._control is not None
        call = messages.ForcePartition(
            partition=partition, change=change, owner=owner, accepts=accepts, replicas=replicas
        )
        ask_values(self._control, call, self._timeout_s)

    def release(self, partition: int) -> None:
        if self._admin is not None:
            self._admin.change("POST", f"/admin/partitions/{partition}/release")
            return
        assert self._control is not None
        ask_values(self._control, messages.ReleasePartition(partition=partition), self._timeout_s)

    def give_up(self, partition: int, scope: int, epoch: int, accepts: str) -> None:
        if self._admin is not None:
            body = {"scope": scope, "epoch": epoch, "accepts": accepts}
            self._admin.change("POST", f"/admin/partitions/{partition}/give-up", body)
            return
        assert self._control is not None
        ask_values(
            self._control, messages.GiveUpPart(partition=partition, scope=scope, epoch=epoch), self._timeout_s
        )


@command.command("show")
@click.argument("partition", type=PARTITION)
@control_options
def show(*, partition: int, endpoint: Endpoint, as_json: bool) -> int:
    """Show a partition's owner, replicas and open change.

    During an election of an owner, also show each replica's answer and the possible loss with it as owner.

    \b
    Example:
      ringfence partition show 655360 --http http://127.0.0.1:7412
    """  # noqa: D301
    values = _PartitionApi(endpoint).show(partition)
    if as_json:
        emit(values)
    else:
        _show(values)
    return Exit.OK


@command.command("force-owner")
@click.argument("partition", type=PARTITION)
@click.option("--owner", type=NODE_ID, required=True, help="Node that becomes the owner.")
@click.option(
    "--replica",
    "replicas",
    type=click.IntRange(min=1),
    multiple=True,
    help="Node with a replica after the change; name all of them, including the owner. Required if a "
    "majority is lost permanently, because the owner serves only with a majority.",
)
@click.option("--yes", is_flag=True, help="Skip the confirmation and accept data loss.")
@control_options
def force_owner(
    *, partition: int, owner: int, replicas: tuple[int, ...], yes: bool, endpoint: Endpoint, as_json: bool
) -> int:
    """Make a replica the owner although no majority answers. ROWS MAY BE LOST, including acknowledged ones.

    Use it only for a failover that waits for replicas that are lost permanently. The command first shows the
    possible loss. With --replica, other nodes replace the lost ones and copy the owner's log. A replica that
    returns later keeps its data, but is no longer a replica of the partition.

    \b
    Example:
      ringfence partition force-owner 655360 --owner 4 --replica 4 --replica 5 --replica 6
    """  # noqa: D301
    api = _PartitionApi(endpoint)
    values = api.show(partition)
    change = values["change"] or {}
    candidates = change.get("candidates", ())
    chosen = next((candidate for candidate in candidates if candidate["node"] == owner), None)
    if chosen is None:
        nodes = [place["node"] for place in values["replicas"]]
        state = f"change {change['change']} is a {change['kind']}" if change else "no change is open"
        raise InvalidArgumentError(
            f"node {owner} cannot become owner of partition {partition}: {state}, replicas are on nodes "
            f"{nodes}; force-owner needs an open failover and a node with a replica"
        )
    if not as_json:
        _show(values)
    to = f" with replicas on nodes {', '.join(map(str, replicas))}" if replicas else ""
    question = f"{chosen['may_lose']}.\nMake node {owner} the owner of partition {partition}{to}?"
    confirm(question, yes=yes)
    api.force(partition, change["change"], owner, chosen["may_lose"][:WHY_MAX], replicas)
    if as_json:
        emit(
            {
                "partition": partition,
                "owner": owner,
                "change": change["change"],
                "accepted": chosen["may_lose"],
            }
        )
    else:
        click.echo(f"partition {partition}: node {owner} is the owner")
    return Exit.OK


@command.command("give-up")
@click.argument("partition", type=PARTITION)
@click.option(
    "--scope", type=click.IntRange(min=1), required=True, help="Number of the scope, as `show` lists it."
)
@click.option(
    "--epoch", type=click.IntRange(min=1), required=True, help="Epoch of the scope, as `show` lists it."
)
@click.option("--yes", is_flag=True, help="Skip the confirmation and accept data loss.")
@control_options
def give_up(*, partition: int, scope: int, epoch: int, yes: bool, endpoint: Endpoint, as_json: bool) -> int:
    """Stop waiting for lost rows of a transaction in this partition. THE ROWS ARE LOST.

    Allowed only if the owner answers and has fewer rows than were committed, for example after force-owner.
    No row of the transaction in this partition is published; its rows in other partitions are. Later epochs
    of the scope continue.

    \b
    Example:
      ringfence partition give-up 655360 --scope 1245184 --epoch 4
    """  # noqa: D301
    api = _PartitionApi(endpoint)
    values = api.show(partition)
    epochs = values["unpublished"]
    unpublished = next((each for each in epochs if (each["scope"], each["epoch"]) == (scope, epoch)), None)
    if unpublished is None:
        numbers = ", ".join(f"epoch {each['epoch']} of {each['scope']}" for each in epochs[:8]) or "none"
        raise InvalidArgumentError(
            f"epoch {epoch} of scope {scope} is not waiting to be published in partition {partition}; "
            f"waiting epochs: {numbers}"
        )
    rows, name = unpublished["rows"], unpublished["name"]
    lost = f"{rows} rows that epoch {epoch} of scope {name!r} ({scope}) committed"
    confirm(f"Give up in partition {partition} of {values['name']}: {lost}?", yes=yes)
    api.give_up(partition, scope, epoch, lost[:WHY_MAX])
    if as_json:
        emit({"partition": partition, "scope": scope, "epoch": epoch, "lost_rows": rows})
    else:
        click.echo(f"partition {partition}: epoch {epoch} of scope {scope} is given up")
    return Exit.OK


@command.command("release")
@click.argument("partition", type=PARTITION)
@control_options
def release(*, partition: int, endpoint: Endpoint, as_json: bool) -> int:
    """End the quarantine of a partition whose records are sound on disk again.

    Each node with a replica reads all of the partition's sealed files again. A replica that is still damaged
    stays quarantined, and the command names the damage. Nothing is lost.

    \b
    Example:
      ringfence partition release 655360 --http http://127.0.0.1:7412
    """  # noqa: D301
    _PartitionApi(endpoint).release(partition)
    if as_json:
        emit({"partition": partition, "released": True})
    else:
        click.echo(f"partition {partition}: every replica is sound, and no quarantine is left")
    return Exit.OK


def _show(values: dict[str, Any]) -> None:
    click.echo(
        f"partition {values['partition']} of {values['name']}: owner node {values['owner']}, "
        f"epoch {values['epoch']}"
    )
    show_table(
        "replicas",
        ("node", "life", "store"),
        [[place["node"], place["life"], place["store"]] for place in values["replicas"]],
        ids=("node", "store"),
    )
    if values["unpublished"]:
        fields = ("scope", "name", "epoch", "rows")
        show_table(
            "not published yet",
            fields,
            [[each[name] for name in fields] for each in values["unpublished"]],
            ids=("scope", "epoch"),
        )
    change = values["change"]
    if change is None:
        click.echo("no change is open")
        return
    click.echo(
        f"change {change['change']}: {change['kind']} {change['phase']}, to nodes {change['replicas']}"
    )
    if change["candidates"]:
        columns = ("node", "life", "epoch", "records", "lost_records", "may_lose")
        show_table(
            "candidates for owner",
            columns,
            [[candidate[name] for name in columns] for candidate in change["candidates"]],
            ids=("node",),
        )
