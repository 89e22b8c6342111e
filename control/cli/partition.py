"""`ringfence partition`: where a partition is, an owner by force, and what is lost with it given up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ringfence.control.cli.admin import Admin, http_options
from ringfence.control.cli.connection import NODE_ID, PARTITION
from ringfence.control.cli.exit_codes import Exit
from ringfence.control.cli.output import confirm, emit, json_option, show_table
from ringfence.control.cli.rebalance_api import asked, control_option, timeout_option
from ringfence.control.runtime.rpc import messages
from ringfence.native.errors import InvalidArgumentError

# Characters of a statement that the log keeps.
WHY_MAX = 1_000


@click.group(no_args_is_help=True)
def command() -> None:
    """Show a partition's owner, replicas and change; force an owner, and give up what is lost with it.

    \b
    Example:
      ringfence partition show 655360 --http http://127.0.0.1:7412
    """  # noqa: D301 - click's \b keeps the lines


class _Door:
    """The admin API, or a node's control address."""

    def __init__(
        self, control: str | None, http: str | None, token_file: Path | None, timeout_s: float
    ) -> None:
        self._control, self._timeout_s = control, timeout_s
        self._admin = Admin(http, token_file, timeout_s) if control is None else None

    def show(self, partition: int) -> dict[str, Any]:
        if self._admin is not None:
            told: dict[str, Any] = self._admin.get(f"/admin/partitions/{partition}")
            return told
        assert self._control is not None
        return asked(self._control, messages.ShowPartition(partition=partition), self._timeout_s)

    def force(self, partition: int, change: int, owner: int, accepts: str, replicas: tuple[int, ...]) -> None:
        if self._admin is not None:
            given = {"change": change, "owner": owner, "accepts": accepts, "replicas": list(replicas)}
            self._admin.change("POST", f"/admin/partitions/{partition}/force-owner", given)
            return
        assert self._control is not None
        call = messages.ForcePartition(
            partition=partition, change=change, owner=owner, accepts=accepts, replicas=replicas
        )
        asked(self._control, call, self._timeout_s)

    def give_up(self, partition: int, scope: int, epoch: int, accepts: str) -> None:
        if self._admin is not None:
            given = {"scope": scope, "epoch": epoch, "accepts": accepts}
            self._admin.change("POST", f"/admin/partitions/{partition}/give-up", given)
            return
        assert self._control is not None
        asked(
            self._control, messages.GiveUpPart(partition=partition, scope=scope, epoch=epoch), self._timeout_s
        )


@command.command("show")
@click.argument("partition", type=PARTITION)
@control_option
@http_options
@timeout_option
@json_option
def show(
    *,
    partition: int,
    control: str | None,
    http: str | None,
    token_file: Path | None,
    timeout_s: float,
    as_json: bool,
) -> int:
    """Show who owns a partition, who has replicas, and what is changing.

    While an owner is sought it tells what each replica answered, and what may be lost by choosing it.

    \b
    Example:
      ringfence partition show 655360 --http http://127.0.0.1:7412
    """  # noqa: D301
    told = _Door(control, http, token_file, timeout_s).show(partition)
    if as_json:
        emit(told)
    else:
        _show(told)
    return Exit.OK


@command.command("force-owner")
@click.argument("partition", type=PARTITION)
@click.option("--owner", type=NODE_ID, required=True, help="The node that becomes owner.")
@click.option(
    "--replica",
    "replicas",
    type=click.IntRange(min=1),
    multiple=True,
    help="A node that has a replica from then on; name all of them, the owner too. Needed where "
    "a majority is lost for good: the owner serves only with one.",
)
@click.option("--yes", is_flag=True, help="Do not ask: what may be lost is accepted.")
@control_option
@http_options
@timeout_option
@json_option
def force_owner(
    *,
    partition: int,
    owner: int,
    replicas: tuple[int, ...],
    yes: bool,
    control: str | None,
    http: str | None,
    token_file: Path | None,
    timeout_s: float,
    as_json: bool,
) -> int:
    """Make a replica the owner although no majority answers. ROWS MAY BE LOST, acknowledged ones too.

    Only for a failover that waits for replicas which never come back; it says first what may be lost. Other
    nodes take their place by --replica, and copy what the owner has. Replicas that do come back keep what
    they have, and count for nothing.

    \b
    Example:
      ringfence partition force-owner 655360 --owner 4 --replica 4 --replica 5 --replica 6
    """  # noqa: D301
    door = _Door(control, http, token_file, timeout_s)
    told = door.show(partition)
    change = told["change"] or {}
    chosen = next((known for known in change.get("candidates", ()) if known["node"] == owner), None)
    if chosen is None:
        nodes = [place["node"] for place in told["replicas"]]
        now = f"its change {change['change']} is a {change['kind']}" if change else "no change of it is open"
        raise InvalidArgumentError(
            f"partition {partition} seeks no owner that node {owner} could be: {now}, replicas are on nodes "
            f"{nodes}; an owner is forced only in a failover, and only one with a replica"
        )
    if not as_json:
        _show(told)
    to = f" with replicas on nodes {', '.join(map(str, replicas))}" if replicas else ""
    question = f"{chosen['may_lose']}.\nMake node {owner} the owner of partition {partition}{to}?"
    confirm(question, yes=yes)
    door.force(partition, change["change"], owner, chosen["may_lose"][:WHY_MAX], replicas)
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
@click.option("--scope", type=click.IntRange(min=1), required=True, help="Its number, as `show` lists it.")
@click.option("--epoch", type=click.IntRange(min=1), required=True, help="The epoch, as `show` lists it.")
@click.option("--yes", is_flag=True, help="Do not ask: what is lost is accepted.")
@control_option
@http_options
@timeout_option
@json_option
def give_up(
    *,
    partition: int,
    scope: int,
    epoch: int,
    yes: bool,
    control: str | None,
    http: str | None,
    token_file: Path | None,
    timeout_s: float,
    as_json: bool,
) -> int:
    """Wait no longer for a transaction's rows that are lost in this partition. THEY ARE LOST.

    Only where its owner answers and has fewer rows than were committed, after an owner by force, say. None of
    the transaction's rows of this partition come into the log then; those of other partitions are there.
    Later epochs of the scope go on.

    \b
    Example:
      ringfence partition give-up 655360 --scope 1245184 --epoch 4
    """  # noqa: D301
    door = _Door(control, http, token_file, timeout_s)
    told = door.show(partition)
    waiting = told["unpublished"]
    found = next((one for one in waiting if (one["scope"], one["epoch"]) == (scope, epoch)), None)
    if found is None:
        listed = ", ".join(f"epoch {one['epoch']} of {one['scope']}" for one in waiting[:8]) or "nothing"
        raise InvalidArgumentError(
            f"epoch {epoch} of scope {scope} does not wait in partition {partition}; there waits: {listed}"
        )
    lost = f"{found['rows']} rows that epoch {epoch} of scope {found['name']!r} ({scope}) committed in it"
    confirm(f"Give up in partition {partition} of {told['name']}: {lost}?", yes=yes)
    door.give_up(partition, scope, epoch, lost[:WHY_MAX])
    if as_json:
        emit({"partition": partition, "scope": scope, "epoch": epoch, "lost_rows": found["rows"]})
    else:
        click.echo(f"partition {partition}: epoch {epoch} of scope {scope} is waited for no longer")
    return Exit.OK


def _show(told: dict[str, Any]) -> None:
    click.echo(
        f"partition {told['partition']} of {told['name']}: owner node {told['owner']}, epoch {told['epoch']}"
    )
    show_table(
        "replicas",
        ("node", "life", "store"),
        [[place["node"], place["life"], place["store"]] for place in told["replicas"]],
        ids=("node", "store"),
    )
    if told["unpublished"]:
        fields = ("scope", "name", "epoch", "rows")
        show_table(
            "not published yet",
            fields,
            [[one[name] for name in fields] for one in told["unpublished"]],
            ids=("scope", "epoch"),
        )
    change = told["change"]
    if change is None:
        click.echo("no change is open")
        return
    click.echo(
        f"change {change['change']}: {change['kind']} {change['phase']}, to nodes {change['replicas']}"
    )
    if change["candidates"]:
        columns = ("node", "life", "epoch", "records", "lost_records", "may_lose")
        show_table(
            "an owner is sought",
            columns,
            [[known[name] for name in columns] for known in change["candidates"]],
            ids=("node",),
        )
