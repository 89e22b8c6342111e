"""Commands about layouts: split, merge, repartition, lineage, and open layout changes.

They belong to `ringfence topic`; split and merge to `ringfence partition`, too, by the partition's id alone.
"""

from __future__ import annotations

from typing import Any, Final

import click

from ringfence.control.cli.connection import PARTITION
from ringfence.control.cli.escape_control import printable
from ringfence.control.cli.exit_codes import Exit
from ringfence.control.cli.layout_api import LayoutApi, Wish, layout_options
from ringfence.control.cli.output import confirm, emit, emit_rows, format_bytes, show_table
from ringfence.control.model.names import full_topic_name, shown_topic_name
from ringfence.control.model.ranges import SLOT_LAST
from ringfence.control.model.text import counted, listed
from ringfence.control.state_machines.metadata.auto_layout import OVERRIDES
from ringfence.native.errors import InvalidArgumentError

WAIT_S: Final = 30.0
# Settings of one topic, as `topic auto` takes them.
AUTO_NAMES: Final = tuple(name.removeprefix("ringfence.auto.") for name in OVERRIDES)
# Texts of one line: reasons of a wait, ids of partitions.
SHOWN: Final = 8

wait_option = click.option(
    "--wait",
    "wait_s",
    type=click.FloatRange(min=0),
    default=WAIT_S,
    show_default=True,
    help="Seconds to wait until the change has taken effect.",
)
no_wait_option = click.option("--no-wait", is_flag=True, help="Return once the change has begun.")
preview_option = click.option("--preview", is_flag=True, help="Dry run: print what would be prepared.")
at_option = click.option(
    "--at",
    "at",
    type=click.IntRange(0, SLOT_LAST),
    multiple=True,
    metavar="SLOT",
    help="Slot at which a part begins; may be repeated.",
)
into_option = click.option(
    "--into", type=click.IntRange(2, 4_096), help="Number of parts. [default: 2, or by --at]"
)


def _change_options(function: Any) -> Any:
    return layout_options(wait_option(no_wait_option(preview_option(function))))


@click.command("split")
@click.argument("topic")
@click.argument("partition")
@at_option
@into_option
@_change_options
def split_of_topic(
    topic: str, partition: str, *, at: tuple[int, ...], into: int | None, api: LayoutApi, **options: Any
) -> int:
    """Split PARTITION of TOPIC, by its id or name, in two or more.

    Rows stay where they are and remain readable. Producers wait some milliseconds.

    \b
    Example:
      ringfence topic split events 655360
      ringfence topic split events 655360 --at 16384 --at 32768
    """  # noqa: D301 - click's \b keeps the lines
    return _split(api, topic, partition, at, into, **options)


@click.command("merge")
@click.argument("topic")
@click.argument("one")
@click.argument("other")
@_change_options
def merge_of_topic(topic: str, one: str, other: str, *, api: LayoutApi, **options: Any) -> int:
    """Merge the adjacent partitions ONE and OTHER of TOPIC.

    \b
    Example:
      ringfence topic merge events 655361 655362
    """  # noqa: D301
    return _merge(api, topic, one, other, **options)


@click.command("split")
@click.argument("partition", type=PARTITION)
@at_option
@into_option
@_change_options
def split_of_partition(
    partition: int, *, at: tuple[int, ...], into: int | None, api: LayoutApi, **options: Any
) -> int:
    """Split a partition in two or more; see `ringfence topic split`.

    \b
    Example:
      ringfence partition split 655360 --into 4
    """  # noqa: D301
    return _split(api, api.topic_of(partition), str(partition), at, into, **options)


@click.command("merge")
@click.argument("one", type=PARTITION)
@click.argument("other", type=PARTITION)
@_change_options
def merge_of_partition(one: int, other: int, *, api: LayoutApi, **options: Any) -> int:
    """Merge two adjacent partitions of a topic.

    \b
    Example:
      ringfence partition merge 655361 655362
    """  # noqa: D301
    return _merge(api, api.topic_of(one), str(one), str(other), **options)


@click.command("repartition")
@click.argument("topic")
@click.argument("partitions", type=click.IntRange(1, 4_096))
@click.option("--even", is_flag=True, help="Change ranges of other sizes, although the number is right.")
@_change_options
def repartition(topic: str, partitions: int, *, even: bool, api: LayoutApi, **options: Any) -> int:
    """Give TOPIC a number of PARTITIONS of equal ranges, in one step.

    Partitions that have one of these ranges stay as they are. While another change of the topic is open, the
    command tries again until --wait is over.

    \b
    Example:
      ringfence topic repartition events 16 --wait 60
    """  # noqa: D301
    wish = Wish(topic, "repartition", into=partitions, even=even)
    return _run(api, wish, retries=True, **options)


@click.command("layout")
@click.argument("topic")
@click.option("--tree", is_flag=True, help="Show the lineage as a tree.")
@layout_options
def show_layout(topic: str, *, tree: bool, api: LayoutApi, as_json: bool) -> int:
    """Show the partitions of TOPIC with ranges, lineage and ends, sealed ones too.

    \b
    Example:
      ringfence topic layout events --tree
    """  # noqa: D301
    layout = api.layout(topic)
    if as_json:
        emit(layout)
        return Exit.OK
    click.echo(f"{shown_topic_name(layout['name'])}: version {layout['version']}")
    if tree:
        for line in tree_lines(layout["partitions"]):
            click.echo(line)
    else:
        columns = ("partition", "number", "state", "owner", "end", "parents", "children", "open change")
        rows = [
            [
                part["name"],
                part["partition"],
                part["state"],
                part["owner"],
                part["end_offset"],
                _ids(part["parents"]),
                _ids(part["children"]),
                part["change"],
            ]
            for part in layout["partitions"]
        ]
        show_table("", columns, rows, ids=("number", "owner", "open change"))
    for transition in layout["transitions"]:
        click.echo(_transition_line(transition))
    return Exit.OK


@click.command("partition")
@click.argument("topic")
@click.argument("partition")
@layout_options
def show_partition(topic: str, partition: str, *, api: LayoutApi, as_json: bool) -> int:
    """Show one partition of TOPIC, by its id or name, with its lineage.

    \b
    Example:
      ringfence topic partition events 0000-7fff-655360
    """  # noqa: D301
    part = api.partition(topic, partition)
    if as_json:
        emit(part)
    else:
        fields = [[name, _text(value)] for name, value in part.items()]
        show_table("", ("", ""), fields)
    return Exit.OK


@click.command("transitions")
@click.argument("topic", required=False)
@click.option("--ended", "show_ended", is_flag=True, help="Show the newest changes that are over instead.")
@layout_options
def transitions(topic: str | None, *, show_ended: bool, api: LayoutApi, as_json: bool) -> int:
    """Show open layout changes, of TOPIC or of all topics, with what each waits for.

    \b
    Example:
      ringfence topic transitions
      ringfence topic transitions events --ended
    """  # noqa: D301
    answer = api.transitions()
    shown, ended = answer["transitions"], answer.get("ended", [])
    if topic is not None:
        try:
            full = full_topic_name(topic)
        except ValueError as error:
            raise InvalidArgumentError(str(error)) from error
        shown = [one for one in shown if one["name"] == full]
        ended = [one for one in ended if one["topic"] == full]
        if not shown and not ended:
            api.layout(topic)  # NotFoundError: no such topic, and none of its changes is known
    if show_ended:
        return _show_ended(ended, as_json=as_json)
    if as_json:
        emit_rows(shown)
        return Exit.OK
    if not shown:
        click.echo("no layout change is open")
    for one in shown:
        click.echo(f"{shown_topic_name(one['name'])}: {_transition_line(one)}")
        for text in one["waits"]:
            click.echo(f"  waits for: {text}")
        if one["overdue"]:
            click.echo(f"  not waited for any longer: {listed(one['overdue'], SHOWN)}")
    return Exit.OK


@click.command("abort-transition")
@click.argument("change", type=click.IntRange(min=1))
@click.option("--why", default="", help="Reason, for the log and the audit log.")
@click.option("--yes", is_flag=True, help="Skip the confirmation.")
@layout_options
def abort_transition(change: int, *, why: str, yes: bool, api: LayoutApi, as_json: bool) -> int:
    """End layout change CHANGE, which is not committed yet. Nothing is lost.

    \b
    Example:
      ringfence topic abort-transition 1245 --yes
    """  # noqa: D301
    confirm(f"End layout change {change}?", yes=yes)
    api.abort(change, why)
    if as_json:
        emit({"change": change, "aborted": True})
    else:
        click.echo(f"layout change {change} is aborted, the layout is the one before")
    return Exit.OK


@click.command("explain")
@click.argument("topic")
@layout_options
def explain(topic: str, *, api: LayoutApi, as_json: bool) -> int:
    """Explain automatic splits and merges of TOPIC: loads, limits, and what suppresses an action.

    \b
    Example:
      ringfence topic explain events
    """  # noqa: D301
    shown = api.explain(topic)
    if as_json:
        emit(shown)
        return Exit.OK
    switches = ", ".join(f"{name} {'on' if shown[name] else 'off'}" for name in ("split", "merge"))
    click.echo(f"{shown_topic_name(shown['name'])}: {switches}")
    click.echo(printable(shown["why"]))
    columns = ("action", "partitions", "bytes/s", "rows/s", "seconds", "suppressed by", "reason")
    rows = [
        [
            one["kind"],
            _ids(one["partitions"]),
            format_bytes(round(one["bytes_s"])),
            round(one["rows_s"]),
            round(one["for_s"]),
            one["suppressed"],
            one["text"] or None,
        ]
        for one in shown["candidates"]
    ]
    if rows:
        show_table("", columns, rows)
    for hot in shown["hot_keys"]:
        click.echo(
            f"slot {hot['slot']:#06x} takes {hot['percent']} % of partition {hot['partition']}: "
            "splitting does not help"
        )
    return Exit.OK


@click.command("auto")
@click.argument("topic")
@click.argument("pairs", nargs=-1, required=True, metavar="NAME=VALUE...")
@layout_options
def auto(topic: str, pairs: tuple[str, ...], *, api: LayoutApi, as_json: bool) -> int:
    """Set automatic splits and merges of TOPIC: split, merge, partitions_max, partitions_min.

    VALUE `default`: the cluster's limit of that name holds again, with the prefix auto_. Thresholds and times
    are limits of the cluster, see `ringfence config show`.

    \b
    Example:
      ringfence topic auto events split=1 partitions_max=32
      ringfence topic auto events split=default
    """  # noqa: D301
    values = dict(map(_setting, pairs))
    api.set_auto(topic, values)
    shown = {"topic": topic, "values": values}
    if as_json:
        emit(shown)
    else:
        for name, value in values.items():
            click.echo(f"{name.removeprefix('auto_')}: {'the default' if value is None else value}")
    return Exit.OK


def _setting(pair: str) -> tuple[str, int | None]:
    """UsageError: the text is not NAME=NUMBER or NAME=default."""
    name, _, text = pair.partition("=")
    is_number = text.isascii() and text.isdigit() and len(text) < 10
    if not name or not (is_number or text == "default"):
        raise click.UsageError(f"{pair!r}: expected NAME=NUMBER or NAME=default, for example split=1")
    short = name.removeprefix("auto_")
    if short not in AUTO_NAMES:
        raise click.UsageError(f"{pair!r}: no setting is named {name!r}; they are {', '.join(AUTO_NAMES)}")
    return f"auto_{short}", int(text) if is_number else None


def _show_ended(ended: list[dict[str, Any]], *, as_json: bool) -> int:
    if as_json:
        emit_rows(ended)
        return Exit.OK
    columns = ("change", "topic", "kind", "result", "gap ms", "phases ms", "reason")
    rows = [
        [
            one["change"],
            shown_topic_name(one["topic"]),
            one["kind"],
            one["result"],
            _gap(one["gap_us"]),
            _phases(one["phases_ms"]),
            one["why"] or None,
        ]
        for one in ended
    ]
    show_table("", columns, rows, ids=("change",))
    return Exit.OK


OF_TOPIC: Final = (
    split_of_topic,
    merge_of_topic,
    repartition,
    show_layout,
    show_partition,
    transitions,
    abort_transition,
    explain,
    auto,
)
OF_PARTITION: Final = (split_of_partition, merge_of_partition)


def _split(
    api: LayoutApi, topic: str, partition: str, at: tuple[int, ...], into: int | None, **options: Any
) -> int:
    if at and into is not None:
        raise click.UsageError("--at and --into exclude each other: --at names the slots of all parts")
    return _run(api, Wish(topic, "split", (partition,), at, into or 0), **options)


def _merge(api: LayoutApi, topic: str, one: str, other: str, **options: Any) -> int:
    return _run(api, Wish(topic, "merge", (one, other)), **options)


def _run(
    api: LayoutApi,
    wish: Wish,
    *,
    wait_s: float,
    no_wait: bool,
    preview: bool,
    as_json: bool,
    retries: bool = False,
) -> int:
    if preview:
        shown = api.preview(wish)
    elif retries and not no_wait:
        shown = api.repartition(wish, wait_s)
    else:
        shown = api.change(wish, 0.0 if no_wait else wait_s)
    if as_json:
        emit(shown)
    else:
        _show_change(shown, preview=preview)
    return Exit.OK


def _show_change(shown: dict[str, Any], *, preview: bool) -> None:
    if preview and shown["would"]:
        rows = [[lo, hi, ", ".join(map(str, nodes))] for lo, hi, nodes in shown["would"]]
        sources = _ids(shown["sources"])
        show_table(f"{shown['kind']} of {sources} into", ("from slot", "to slot", "nodes"), rows)
    elif shown["change"] is None:
        click.echo(f"nothing is to be changed: version {shown['version']} has this layout")
    elif shown["phase"] in {"PREPARED", "HELD"}:
        click.echo(
            f"layout change {shown['change']} is {shown['phase']}; `ringfence topic transitions` shows it"
        )
    else:
        children = shown["partitions"] or []
        click.echo(
            f"layout change {shown['change']}: version {shown['version']}, "
            f"{counted(len(children), 'new partition')}"
        )
        columns = ("partition", "number", "owner")
        rows = [[part["name"], part["partition"], part["owner"]] for part in children]
        show_table("", columns, rows, ids=("number", "owner"))
        if shown.get("gap_us") is not None:
            click.echo(f"gap: {_gap(shown['gap_us'])} ms without an acknowledgement")
        if shown.get("phases_ms"):
            click.echo(f"phases: {_phases(shown['phases_ms'])}")


def tree_lines(partitions: list[dict[str, Any]]) -> list[str]:
    """The lineage as lines, each partition below its first parent; a further parent is named in the line."""
    by_id = {part["partition"]: part for part in partitions}
    roots = [part for part in partitions if not part["parents"]]
    lines: list[str] = []
    pending = [(part, 0) for part in sorted(roots, key=_slot, reverse=True)]
    while pending:
        part, depth = pending.pop()
        others = part["parents"][1:]
        also = f", also of {_ids(others)}" if others else ""
        end = f", ends at {part['end_offset']}" if part["state"] == "SEALED" else f", node {part['owner']}"
        lines.append(f"{'  ' * depth}{part['name']} {part['state']}{end}{also}")
        children = [by_id[child] for child in part["children"] if child in by_id]
        below = [child for child in children if child["parents"][0] == part["partition"]]
        pending += [(child, depth + 1) for child in sorted(below, key=_slot, reverse=True)]
    return lines


def _slot(part: dict[str, Any]) -> int:
    return int(part["lo"])


def _transition_line(transition: dict[str, Any]) -> str:
    sources, children = _ids(transition["sources"]), [one["partition"] for one in transition["children"]]
    return (
        f"layout change {transition['change']}: {transition['kind']} {transition['phase']}, {sources} into "
        f"{_ids(children)}"
    )


def _gap(gap_us: int | None) -> float | None:
    return None if gap_us is None else round(gap_us / 1_000, 1)


def _phases(phases_ms: dict[str, int]) -> str | None:
    return ", ".join(f"{phase} {spent_ms} ms" for phase, spent_ms in phases_ms.items()) or None


def _ids(numbers: list[int]) -> str | None:
    return listed(numbers, SHOWN) if numbers else None


def _text(value: Any) -> Any:
    """For a table. Ids and slots are given to other commands, so numbers have no thousands separators."""
    if isinstance(value, list):
        return ", ".join(map(str, value)) or None
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value
