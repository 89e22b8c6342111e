"""`ringfence topic`: create, list, show, truncate and delete topics; `layout` has what changes layouts."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import click
import pyarrow as pa

from ringfence.control.cli import layout
from ringfence.control.cli.connection import PARTITION
from ringfence.control.cli.endpoint import Endpoint, address_options
from ringfence.control.cli.escape_control import printable
from ringfence.control.cli.exit_codes import Exit
from ringfence.control.cli.missing_counts import UNKNOWN, check_counts, format_rows, format_size
from ringfence.control.cli.output import confirm, emit, emit_rows, format_bytes, show_table
from ringfence.control.cli.schema_text import parse_column, parse_duration_ms
from ringfence.control.cli.topic_api import open_topic_api
from ringfence.control.model.names import full_topic_prefix, shown_topic_name
from ringfence.control.model.text import counted
from ringfence.control.runtime.process.sizes import parse_size
from ringfence.native.errors import ConfigError
from ringfence.native.messages import COMPACTED, RETENTION


@click.group(no_args_is_help=True)
def command() -> None:
    """Create, list, show, truncate and delete topics; change the number of their partitions.

    \b
    Example:
      ringfence topic create events --column id:int64! --column name:string --key id --partitions 8
    """  # noqa: D301 - click's \b keeps the lines


for one in layout.OF_TOPIC:
    command.add_command(one)


@command.command()
@click.argument("name")
@click.option(
    "--column",
    "columns",
    multiple=True,
    metavar="NAME:TYPE[!]",
    help="Column, in order; ! means not nullable. Type names are those of pyarrow.",
)
@click.option("--schema-of", metavar="FILE", help="Use the columns of a Parquet or Arrow file.")
@click.option(
    "--key",
    "keys",
    multiple=True,
    metavar="COLUMN",
    help="Key columns; repeat the option or separate names with commas.",
)
@click.option("--partitions", type=int, default=1, show_default=True, help="Number of partitions.")
@click.option(
    "--replication", type=int, default=1, show_default=True, help="Replicas on different nodes: 1, 3 or 5."
)
@click.option(
    "--retention-bytes",
    metavar="SIZE",
    help="Keep about this size per partition, for example 10GiB. [default: all]",
)
@click.option(
    "--retention", metavar="TIME", help="Keep rows this long, for example 7d or 12h. [default: forever]"
)
@click.option(
    "--retain-until-compacted",
    "until_compacted",
    is_flag=True,
    help="Retention deletes a row only after `ringfence compact` has written it to a file.",
)
@click.option(
    "--property",
    "properties",
    multiple=True,
    metavar="KEY=VALUE",
    help="Label of the topic; may be repeated.",
)
@click.option("--exist-ok", is_flag=True, help="Succeed if an equal topic exists.")
@address_options
def create(name: str, *, endpoint: Endpoint, as_json: bool, **options: Any) -> int:
    """Create topic NAME.

    \b
    Example:
      ringfence topic create lineitem --schema-of lineitem.parquet --key l_orderkey --partitions 8
    """  # noqa: D301
    schema = _schema(options["columns"], options["schema_of"])
    keys = [key.strip() for text in options["keys"] for key in text.split(",") if key.strip()]
    settings = {
        "key": keys,
        "partitions": options["partitions"],
        "replication": options["replication"],
        "retention_bytes": _size(options["retention_bytes"]),
        "retention_ms": None if options["retention"] is None else parse_duration_ms(options["retention"]),
        "properties": _properties(options["properties"], until_compacted=options["until_compacted"]),
    }
    with closing(open_topic_api(endpoint)) as api:
        topic = api.create(name, schema, settings, exist_ok=options["exist_ok"])
    if as_json:
        emit(topic)
    else:
        result = "created" if topic["created"] else "exists"
        click.echo(
            f"{shown_topic_name(topic['name'])} {result}: topic {topic['topic']}, "
            f"{counted(len(topic['partitions']), 'partition')}"
        )
    return Exit.OK


@command.command("list")
@click.argument("prefix", default="")
@address_options
def list_topics(prefix: str, *, endpoint: Endpoint, as_json: bool) -> int:
    """List topics whose names begin with PREFIX.

    \b
    Example:
      ringfence topic list
      ringfence topic list acme/sales/
    """  # noqa: D301
    with closing(open_topic_api(endpoint)) as api:
        topics = api.topics(full_topic_prefix(prefix))
    if as_json:
        emit_rows(topics)
    else:
        rows = [
            [
                shown_topic_name(topic["name"]),
                topic["topic"],
                len(topic["partitions"]),
                format_rows(topic),
                format_size(topic),
                ",".join(topic["key"]) or None,
                topic["schemas"],
                topic["quarantined"] or None,
            ]
            for topic in topics
        ]
        columns = ("topic", "id", "partitions", "rows", "bytes", "key", "schemas", "quarantined")
        show_table("", columns, rows, ids=("id",))
    check_counts(topics, api.stale_reason)
    return Exit.OK


@command.command()
@click.argument("name")
@address_options
def show(name: str, *, endpoint: Endpoint, as_json: bool) -> int:
    """Show the columns and partitions of topic NAME.

    \b
    Example:
      ringfence topic show lineitem
    """  # noqa: D301
    with closing(open_topic_api(endpoint)) as api:
        topic = api.topic(name)
    if as_json:
        emit(topic)
        check_counts([topic], api.stale_reason)
        return Exit.OK
    click.echo("{name}  (topic {topic}, version {version}, replication {replication})".format(**topic))
    limits = (
        [f"retention {topic['retention_bytes']:,} bytes per partition"] if topic["retention_bytes"] else []
    )
    limits += [f"retention {topic['retention_ms']:,} ms"] if topic["retention_ms"] else []
    limits += [f"{key}={value}" for key, value in sorted(topic["properties"].items())]
    for line in limits:
        click.echo(printable(line))
    key = topic["key"]
    fields = [
        [
            column["name"],
            column["type"],
            column["nullable"],
            key.index(column["name"]) + 1 if column["name"] in key else None,
        ]
        for column in topic["columns"]
    ]
    show_table("", ("column", "type", "nullable", "key"), fields)
    click.echo()
    has_replicas = all("replicas" in part for part in topic["partitions"])
    parts = [
        [
            part["name"],
            part["partition"],
            part["state"],
            part["owner"],
            part["epoch"],
            *_figures(part),
            part["quarantined"],
            *([", ".join(map(str, part["replicas"]))] if has_replicas else []),
        ]
        for part in topic["partitions"]
    ]
    columns = (
        "partition",
        "number",
        "state",
        "owner",
        "epoch",
        "start",
        "end",
        "bytes",
        "quarantined",
        *(["replicas"] if has_replicas else []),
    )
    show_table("", columns, parts, ids=("number", "owner"))
    if topic["replication"] > 1 and not has_replicas:
        click.echo("to show the nodes of the replicas, use the admin API: `ringfence topic show --http URL`")
    check_counts([topic], api.stale_reason)
    return Exit.OK


@command.command()
@click.argument("name")
@click.option("--partition", type=PARTITION, help="Truncate only this partition. [default: all]")
@click.option(
    "--before",
    "before_offset",
    type=click.IntRange(min=0),
    help="Delete rows below this offset. [default: all rows]",
)
@click.option("--yes", is_flag=True, help="Skip the confirmation.")
@address_options
def truncate(
    name: str,
    *,
    partition: int | None,
    before_offset: int | None,
    yes: bool,
    endpoint: Endpoint,
    as_json: bool,
) -> int:
    """Delete rows of topic NAME from the start of its partitions.

    \b
    Example:
      ringfence topic truncate events --partition 131072 --before 1000000 --yes
    """  # noqa: D301
    rows = "all rows" if before_offset is None else f"rows below offset {before_offset:,}"
    confirm(
        f"Delete {rows} of {'each partition' if partition is None else f'partition {partition}'} of {name}?",
        yes=yes,
    )
    with closing(open_topic_api(endpoint)) as api:
        api.truncate(name, partition, before_offset)
        topic = api.topic(name)
    if as_json:
        emit(topic)
    else:
        left = format_rows(topic)
        click.echo(f"{name}: {left if isinstance(left, str) else counted(left, 'row')} left")
    return Exit.OK


@command.command()
@click.argument("name")
@click.option("--missing-ok", is_flag=True, help="Succeed if the topic does not exist.")
@click.option("--force", is_flag=True, help="Delete it even if members of cohorts read it: they end.")
@click.option("--yes", is_flag=True, help="Skip the confirmation.")
@address_options
def delete(name: str, *, missing_ok: bool, force: bool, yes: bool, endpoint: Endpoint, as_json: bool) -> int:
    """Delete topic NAME and its rows.

    \b
    Example:
      ringfence topic delete events --yes
    """  # noqa: D301
    confirm(f"Delete topic {name} and all its rows?", yes=yes)
    with closing(open_topic_api(endpoint)) as api:
        api.delete(name, missing_ok=missing_ok, force=force)
    if as_json:
        emit({"deleted": name})
    else:
        click.echo(f"{name} {'does not exist' if missing_ok else 'deleted'}")
    return Exit.OK


def _figures(part: dict[str, Any]) -> list[Any]:
    """Return start offset, end offset and size of a partition."""
    if part.get("unknown") is not None:
        return [UNKNOWN] * 3
    return [part["start_offset"], part["end_offset"], format_bytes(part["bytes"])]


def _schema(columns: tuple[str, ...], file: str | None) -> pa.Schema:
    if bool(columns) == (file is not None):
        raise click.UsageError(
            "pass the columns with --column, or a file with these columns with --schema-of"
        )
    if file is None:
        return pa.schema([parse_column(text) for text in columns])
    from ringfence.control.cli.tables import Source  # noqa: PLC0415 - loads Parquet

    with Source(file) as source:
        return source.schema


def _size(text: str | None) -> int | None:
    size = parse_size(text)
    if size is None or isinstance(size, int):
        return size
    raise ConfigError(
        f"--retention-bytes {text!r}: expected a size, for example 10GiB", key="retention_bytes"
    )


def _properties(texts: tuple[str, ...], *, until_compacted: bool) -> dict[str, str]:
    pairs = [text.partition("=") for text in texts]
    if not all(key and separator for key, separator, _ in pairs):
        raise click.UsageError(f"--property {' '.join(texts)}: expected KEY=VALUE")
    labels = {key: value for key, _, value in pairs}
    return {**labels, RETENTION: COMPACTED} if until_compacted else labels
