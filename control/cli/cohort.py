"""`ringfence cohort`: create, list, show, change, reset and delete cohorts; evict members; parked rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import click

from ringfence.control.cli.cohort_api import CohortApi, moment_of, positions_at, read_positions
from ringfence.control.cli.cohort_parked import discard, export, parked, retry
from ringfence.control.cli.cohort_tables import note_of, seconds, show_members, show_partitions
from ringfence.control.cli.endpoint import Endpoint, admin_options, data_options
from ringfence.control.cli.exit_codes import Exit
from ringfence.control.cli.output import confirm, emit, emit_rows, show_table
from ringfence.control.cli.schema_text import parse_duration_ms
from ringfence.control.model.cohorts import CohortMode, CohortSettings

DEFAULTS: Final = CohortSettings()
MODES: Final = [mode.lower() for mode in CohortMode]


@click.group(no_args_is_help=True)
def command() -> None:
    """Create, list, show, change, reset and delete cohorts (consumer groups) of topics.

    Cohorts need level 3 of the cluster.

    \b
    Example:
      ringfence cohort list trips
    """  # noqa: D301 - click's \b keeps the lines


@command.command()
@click.argument("topic")
@click.argument("cohort")
@click.option("--mode", type=click.Choice(MODES), required=True, help="How members share the rows.")
@click.option(
    "--start",
    type=click.Choice(["earliest", "latest"]),
    default="earliest",
    show_default=True,
    help="First row of a new cohort: the oldest, or the next one that is written.",
)
@click.option("--handover", metavar="TIME", default="60s", show_default=True, help="See `cohort change`.")
@click.option("--lease", metavar="TIME", default="30s", show_default=True, help="See `cohort change`.")
@click.option("--limit", type=int, default=DEFAULTS.limit, show_default=True, help="See `cohort change`.")
@admin_options
def create(
    topic: str,
    cohort: str,
    *,
    mode: str,
    start: str,
    handover: str,
    lease: str,
    limit: int,
    endpoint: Endpoint,
    as_json: bool,
) -> int:
    """Create COHORT of TOPIC. Repeating the command with the same values is no change.

    \b
    Example:
      ringfence cohort create mails send --mode queue --limit 5 --lease 30s
    """  # noqa: D301
    values = {
        "mode": mode,
        "start": start,
        "handover_ms": parse_duration_ms(handover),
        "lease_ms": parse_duration_ms(lease),
        "limit": limit,
    }
    made = CohortApi(endpoint).declare(topic, cohort, values)
    if as_json:
        emit(made)
    else:
        click.echo(f"{cohort} of {made['topic']}: {made['mode']}, from {made['start']}")
    return Exit.OK


@command.command("list")
@click.argument("topic", required=False)
@admin_options
def list_cohorts(topic: str | None, *, endpoint: Endpoint, as_json: bool) -> int:
    """List cohorts of TOPIC, or of all topics, with members, lag, and what is parked.

    \b
    Example:
      ringfence cohort list
    """  # noqa: D301
    api = CohortApi(endpoint)
    topics = api.topics() if topic is None else [topic]
    cohorts = [cohort for one in topics for cohort in api.cohorts(one)]
    if as_json:
        emit_rows(cohorts)
        return Exit.OK
    columns = ("topic", "cohort", "mode", "members", "lag rows", "lag s", "parked rows", "note")
    rows = [
        [
            one["topic"],
            one["cohort"],
            one["mode"],
            one["members"],
            one["lag_rows"],
            seconds(one["lag_ms"]),
            one["parked_rows"],
            note_of(one),
        ]
        for one in cohorts
    ]
    show_table("", columns, rows)
    return Exit.OK


@command.command()
@click.argument("topic")
@click.argument("cohort")
@click.option("--partitions", "with_partitions", is_flag=True, help="Show each partition, too.")
@admin_options
def show(topic: str, cohort: str, *, with_partitions: bool, endpoint: Endpoint, as_json: bool) -> int:
    """Show COHORT of TOPIC: settings, members and lag.

    \b
    Example:
      ringfence cohort show trips etl --partitions
    """  # noqa: D301
    shown = CohortApi(endpoint).cohort(topic, cohort)
    if as_json:
        emit(shown)
        return Exit.OK
    settings = shown["settings"]
    values = [
        ("mode", shown["mode"]),
        ("start", shown["start"]),
        ("lag rows", shown["lag_rows"]),
        ("lag s", seconds(shown["lag_ms"])),
        ("plan generation", shown["generation"]),
        ("handover", f"{settings['handover_ms'] / 1_000:g}s"),
        ("not begun", ", ".join(map(str, shown["not_begun"])) or "-"),
        ("note", note_of(shown)),
    ]
    if shown["mode"] == "queue":
        values[5:5] = [
            ("lease", f"{settings['lease_ms'] / 1_000:g}s"),
            ("limit", settings["limit"]),
            ("rows on lease", shown["leased_rows"]),
            ("parked rows", shown["parked_rows"]),
        ]
    show_table(f"{shown['topic']} / {shown['cohort']}", ("", ""), values)
    show_members(shown["member_list"])
    if with_partitions:
        show_partitions(shown["partitions"])
    return Exit.OK


@command.command()
@click.argument("topic")
@click.argument("cohort")
@admin_options
def members(topic: str, cohort: str, *, endpoint: Endpoint, as_json: bool) -> int:
    """List members of COHORT: connected ones, and ones that were not heard and may come back (grace).

    \b
    Example:
      ringfence cohort members trips etl
    """  # noqa: D301
    found = CohortApi(endpoint).cohort(topic, cohort)["member_list"]
    if as_json:
        emit_rows(found)
    else:
        show_members(found)
    return Exit.OK


@command.command()
@click.argument("topic")
@click.argument("cohort")
@click.option(
    "--handover",
    metavar="TIME",
    help="Time in which a member that lost a partition may acknowledge its rows.",
)
@click.option("--lease", metavar="TIME", help="Queue: time after which rows go to another member.")
@click.option("--limit", type=int, help="Queue: failed deliveries after which a row is parked; 0: never.")
@admin_options
def change(
    topic: str,
    cohort: str,
    *,
    handover: str | None,
    lease: str | None,
    limit: int | None,
    endpoint: Endpoint,
    as_json: bool,
) -> int:
    """Change settings of COHORT. Settings that are left out stay; a change made meanwhile is an error.

    \b
    Example:
      ringfence cohort change mails send --limit 10
    """  # noqa: D301
    api = CohortApi(endpoint)
    shown = api.cohort(topic, cohort)
    wanted = {
        "handover_ms": None if handover is None else parse_duration_ms(handover),
        "lease_ms": None if lease is None else parse_duration_ms(lease),
        "limit": limit,
    }
    settings = shown["settings"] | {name: value for name, value in wanted.items() if value is not None}
    changed = api.declare(topic, cohort, {"mode": shown["mode"], **settings}, version=shown["version"])
    if as_json:
        emit(changed)
    else:
        text = ", ".join(f"{name} {value}" for name, value in changed["settings"].items())
        click.echo(f"{cohort}: {text}")
    return Exit.OK


@command.command()
@click.argument("topic")
@click.argument("cohort")
@click.argument("to", type=click.Choice(["earliest", "latest"]), required=False)
@click.option(
    "--time", "moment", metavar="TIME", help="Rows of this time or later, as 2026-01-31T12:00+00:00."
)
@click.option(
    "--positions",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help='File with lines as {"partition": 7, "offset": 42, "epoch": 12}.',
)
@click.option(
    "--rest",
    type=click.Choice(["earliest", "latest"]),
    help="With --positions: where partitions begin that the file says nothing of.",
)
@click.option("--forget-parked", is_flag=True, help="Give up what is parked.")
@click.option("--yes", is_flag=True, help="Skip the confirmation.")
@data_options
def reset(
    topic: str,
    cohort: str,
    to: str | None,
    *,
    moment: str | None,
    positions: Path | None,
    rest: str | None,
    forget_parked: bool,
    yes: bool,
    endpoint: Endpoint,
    as_json: bool,
) -> int:
    """Begin COHORT again: at the earliest or latest rows, at a time, or at positions. All members follow.

    `latest` skips all rows that are there. --time asks the node at --data-address.

    \b
    Example:
      ringfence cohort reset trips etl --time 2026-01-31T12:00+00:00
    """  # noqa: D301
    if sum(one is not None for one in (to, moment, positions)) != 1:
        raise click.UsageError("pass exactly one of earliest, latest, --time and --positions")
    if rest is not None and positions is None:
        raise click.UsageError("--rest belongs to --positions")
    values: dict[str, Any] = {"forget_parked": forget_parked}
    if to is not None:
        values["to"] = to
    elif moment is not None:
        values |= {"positions": positions_at(endpoint, topic, moment_of(moment)), "rest": "latest"}
    elif positions is not None:
        values["positions"] = read_positions(positions)
        if rest is not None:
            values["rest"] = rest
    confirm(f"Begin cohort {cohort} of {topic} again?", yes=yes)
    sought = CohortApi(endpoint).seek(topic, cohort, values)
    if as_json:
        emit(sought)
    else:
        waiting = f"; {len(sought['waiting'])} partitions have not begun yet" if sought["waiting"] else ""
        click.echo(f"{cohort} begins again{waiting}")
    return Exit.OK


@command.command()
@click.argument("topic")
@click.argument("cohort")
@click.option("--yes", is_flag=True, help="Skip the confirmation.")
@admin_options
def delete(topic: str, cohort: str, *, yes: bool, endpoint: Endpoint, as_json: bool) -> int:
    """Delete COHORT with its positions. Its members end.

    \b
    Example:
      ringfence cohort delete trips etl
    """  # noqa: D301
    confirm(f"Delete cohort {cohort} of {topic} and its positions?", yes=yes)
    CohortApi(endpoint).delete(topic, cohort)
    if as_json:
        emit({"deleted": cohort})
    else:
        click.echo(f"{cohort} deleted")
    return Exit.OK


@command.command()
@click.argument("topic")
@click.argument("cohort")
@click.argument("member")
@admin_options
def evict(topic: str, cohort: str, member: str, *, endpoint: Endpoint, as_json: bool) -> int:
    """Remove MEMBER from COHORT. Others get its partitions; it may join again.

    \b
    Example:
      ringfence cohort evict trips etl etl-3
    """  # noqa: D301
    CohortApi(endpoint).evict(topic, cohort, member)
    if as_json:
        emit({"evicted": member})
    else:
        click.echo(f"{member} evicted")
    return Exit.OK


for of_parked in (parked, retry, discard, export):
    command.add_command(of_parked)
