"""`ringfence cohort parked|retry|discard|export`: rows that a queue has put aside."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from ringfence.control.cli.cohort_api import CohortApi, Shown
from ringfence.control.cli.cohort_tables import age_text
from ringfence.control.cli.connection import address_option, open_client, timeout_option, token_option
from ringfence.control.cli.endpoint import Endpoint, admin_options
from ringfence.control.cli.exit_codes import Exit
from ringfence.control.cli.output import confirm, emit, emit_rows, json_option, show_table

Item = tuple[int, int]
NAMES_MAX = 5
"""Ranges that a line names."""


class ItemType(click.ParamType[Item]):
    """A parked range as PARTITION:NUMBER."""

    name = "parked range"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Item:
        partition, colon, number = str(value).partition(":")
        if not (colon and partition.isascii() and partition.isdigit() and number.isascii()):
            self._fail(value, param, ctx)
        if not number.isdigit():
            self._fail(value, param, ctx)
        return int(partition), int(number)

    def _fail(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> None:
        self.fail(
            f"{value!r} is not a parked range as PARTITION:NUMBER; run `ringfence cohort parked`", param, ctx
        )


def items_argument(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add `PARTITION:NUMBER...` and `--all` to a command."""
    function = click.option("--all", "everything", is_flag=True, help="All that is parked.")(function)
    return click.argument("items", nargs=-1, type=ItemType(), metavar="[PARTITION:NUMBER]...")(function)


def check_items(items: tuple[Item, ...], *, everything: bool) -> None:
    """UsageError unless there are items, or all."""
    if bool(items) == everything:
        raise click.UsageError("pass ranges as PARTITION:NUMBER, or --all")


@click.command()
@click.argument("topic")
@click.argument("cohort")
@admin_options
def parked(topic: str, cohort: str, *, endpoint: Endpoint, as_json: bool) -> int:
    """List what COHORT has parked: rows that failed too often, or that a member put aside.

    \b
    Example:
      ringfence cohort parked mails send
    """  # noqa: D301 - click's \b keeps the lines
    found, unknown = CohortApi(endpoint).parked(topic, cohort)
    if as_json:
        emit_rows(found)
    else:
        columns = ("range", "first", "rows", "failures", "for", "reason", "note")
        rows = [
            [
                name_of((one["partition"], one["number"])),
                one["first"],
                one["rows"],
                one["count"],
                age_text(one["time_ms"]),
                one["reason"] or None,
                note_of(one),
            ]
            for one in found
        ]
        show_table("", columns, rows)
    if unknown:
        names = ", ".join(map(str, unknown[:NAMES_MAX]))
        click.echo(f"owners of {len(unknown)} partitions do not answer: {names}", err=True)
        return Exit.DEGRADED
    return Exit.OK


@click.command()
@click.argument("topic")
@click.argument("cohort")
@items_argument
@click.option("--force", is_flag=True, help="Also where it is not known whether an export was committed.")
@admin_options
def retry(
    topic: str,
    cohort: str,
    items: tuple[Item, ...],
    *,
    everything: bool,
    force: bool,
    endpoint: Endpoint,
    as_json: bool,
) -> int:
    """Deliver parked rows again, with a count of 0.

    An export that is under way is ended first; rows whose copy is out are not delivered.

    \b
    Example:
      ringfence cohort retry mails send --all
    """  # noqa: D301
    check_items(items, everything=everything)
    outcome = CohortApi(endpoint).settle_parked("retry", topic, cohort, items, force=force)
    return show_outcome("delivered again", outcome, as_json=as_json)


@click.command()
@click.argument("topic")
@click.argument("cohort")
@items_argument
@click.option("--force", is_flag=True, help="Also where it is not known whether an export was committed.")
@click.option("--yes", is_flag=True, help="Skip the confirmation.")
@admin_options
def discard(
    topic: str,
    cohort: str,
    items: tuple[Item, ...],
    *,
    everything: bool,
    force: bool,
    yes: bool,
    endpoint: Endpoint,
    as_json: bool,
) -> int:
    """Give parked rows up: no member gets them again.

    \b
    Example:
      ringfence cohort discard mails send 7:33554432
    """  # noqa: D301
    check_items(items, everything=everything)
    what = "all that is parked" if everything else f"{len(items)} parked ranges"
    confirm(f"Give up {what} of cohort {cohort} of {topic}?", yes=yes)
    outcome = CohortApi(endpoint).settle_parked("discard", topic, cohort, items, force=force)
    return show_outcome("discarded", outcome, as_json=as_json)


@click.command()
@click.argument("topic")
@click.argument("cohort")
@items_argument
@click.option("--to", required=True, metavar="TOPIC", help="The topic that gets the rows.")
@click.option("--create", is_flag=True, help="Create that topic if it does not exist.")
@click.option("--again", is_flag=True, help="Also where it is not known whether an export was committed.")
@address_option
@token_option
@timeout_option
@json_option
def export(
    topic: str,
    cohort: str,
    items: tuple[Item, ...],
    *,
    everything: bool,
    to: str,
    create: bool,
    again: bool,
    address: str,
    token_file: Path | None,
    timeout_s: float,
    as_json: bool,
) -> int:
    """Copy parked rows to another topic, each range exactly once, and take them off the list.

    The rows have the columns of TOPIC, and parked_topic, parked_cohort, parked_partition, parked_offset,
    parked_count, parked_reason and parked_ms. A command that was killed may be given again. Without ranges
    all that is parked is copied.

    \b
    Example:
      ringfence cohort export mails send --to mails-parked --create
    """  # noqa: D301
    if items and everything:
        raise click.UsageError("pass ranges as PARTITION:NUMBER, or --all")
    with open_client(address, timeout_s, token_file) as client:
        done = client.admin.export_parked(
            topic, cohort, to=to, items=items or None, again=again, create=create, timeout_s=timeout_s
        )
    values = {name: getattr(done, name) for name in done.__struct_fields__}
    if as_json:
        emit(values)
    else:
        click.echo(f"{len(done.exported)} ranges exported, {done.rows} rows copied to {to}")
        if done.gone:
            click.echo(f"{done.gone} rows of them were not in the log any more")
        name_items("not parked any more", done.not_parked)
        name_items("another exporter works on them", done.elsewhere)
        name_items("retry or discard has ended their export: repeat it", done.closed)
    return Exit.UNREACHABLE if done.elsewhere else Exit.REFUSED if done.closed else Exit.OK


def show_outcome(verb: str, outcome: Shown, *, as_json: bool) -> int:
    """Show what became of ranges. Returns the exit code."""
    if as_json:
        emit(outcome)
    else:
        click.echo(f"{outcome['done']} ranges {verb}")
        name_items("rows of them are gone", outcome["gone"])
        name_items("not parked any more", outcome["not_parked"])
        name_items("exported before, and left so", outcome["exported"])
        name_items("an export is under way, give the command again", outcome["exporting"])
        name_items(
            "owners do not answer, or an export has an unknown outcome, which --force disregards",
            outcome["unknown"],
        )
    if outcome["unknown"]:
        return Exit.REFUSED
    return Exit.UNREACHABLE if outcome["exporting"] else Exit.OK


def name_items(text: str, items: list[Any] | tuple[Item, ...]) -> None:
    """One line about ranges, if there are any."""
    if items:
        names = ", ".join(name_of(item) for item in items[:NAMES_MAX])
        click.echo(f"{len(items)} ranges, {text}: {names}{' ..' if items[NAMES_MAX:] else ''}")


def name_of(item: Any) -> str:
    partition, number = item
    return f"{partition}:{number}"


def note_of(one: Shown) -> str:
    """What an operator should know of a range in one line."""
    notes = [f"{one['gone']} rows are gone"] if one["gone"] else []
    if one["state"] == "exporting":
        notes.append("an export is under way")
    return ", ".join(notes) or "-"
