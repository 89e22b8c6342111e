"""`ringfence topic`: create, list, show, truncate, delete."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click
import pyarrow as pa

from ringfence.control.cli.connection import address_option, connected, timeout_option
from ringfence.control.cli.exits import Exit
from ringfence.control.cli.output import emit, json_option, show_table, shown_bytes
from ringfence.control.cli.schema_text import parse_column, parse_duration_ms
from ringfence.control.model.names import full_topic_prefix, shown_topic_name
from ringfence.control.runtime.settings import parse_size
from ringfence.native.errors import ConfigError

if TYPE_CHECKING:
    from ringfence.native.messages import PartitionStats, TopicInfo


@click.group(no_args_is_help=True)
def command() -> None:
    """Create, list, show, truncate and delete topics.

    \b
    Example:
      ringfence topic create events --column id:int64! --column name:string --key id --partitions 8
    """  # noqa: D301 - click's \b keeps the lines


@command.command()
@click.argument("name")
@click.option("--column", "columns", multiple=True, metavar="NAME:TYPE[!]",
              help="A column, in order; ! means not nullable. Types as pyarrow names them.")  # fmt: skip
@click.option("--schema-of", metavar="FILE", help="Take the columns of a Parquet or Arrow file.")
@click.option("--key", "keys", multiple=True, metavar="COLUMN", help="Key columns, repeated or with commas.")
@click.option("--partitions", type=int, default=1, show_default=True, help="Partitions.")
@click.option(
    "--retention-bytes", metavar="SIZE", help="Keep about this much a partition, as 10GiB. [default: all]"
)
@click.option("--retention", metavar="TIME", help="Keep rows this long, as 7d, 12h. [default: for ever]")
@click.option("--property", "properties", multiple=True, metavar="KEY=VALUE", help="A label of yours.")
@click.option("--exist-ok", is_flag=True, help="An equal topic that exists is no error.")
@address_option
@timeout_option
@json_option
def create(name: str, *, address: str, timeout_s: float, as_json: bool, **options: Any) -> int:
    """Create topic NAME.

    \b
    Example:
      ringfence topic create lineitem --schema-of lineitem.parquet --key l_orderkey --partitions 8
    """  # noqa: D301
    schema = _schema(options["columns"], options["schema_of"])
    keys = [key.strip() for text in options["keys"] for key in text.split(",") if key.strip()]
    with connected(address, timeout_s) as client:
        info = client.create_topic(
            name,
            schema=schema,
            key=keys,
            partitions=options["partitions"],
            retention_bytes=_size(options["retention_bytes"]),
            retention_ms=None if options["retention"] is None else parse_duration_ms(options["retention"]),
            properties=_properties(options["properties"]),
            exist_ok=options["exist_ok"],
        )
    if as_json:
        emit(topic_values(info))
    else:
        what = "created" if info.created else "exists"
        click.echo(f"{shown_topic_name(info.name)} {what}: topic {info.topic}, {_partitions(info)}")
    return Exit.OK


@command.command("list")
@click.argument("prefix", default="")
@address_option
@timeout_option
@json_option
def list_topics(prefix: str, *, address: str, timeout_s: float, as_json: bool) -> int:
    """List topics, those that begin with PREFIX.

    \b
    Example:
      ringfence topic list
      ringfence topic list acme/sales/
    """  # noqa: D301
    with connected(address, timeout_s) as client:
        topics = client.topics(prefix=full_topic_prefix(prefix))
    if as_json:
        for info in topics:
            emit(topic_values(info))
        return Exit.OK
    rows = [
        [shown_topic_name(info.name), info.topic, len(info.partitions), _rows(info.partitions),
         shown_bytes(sum(part.bytes for part in info.partitions)), ",".join(info.key) or None,
         len(info.schemas)]
        for info in topics
    ]  # fmt: skip
    show_table("", ("topic", "id", "partitions", "rows", "bytes", "key", "schemas"), rows)
    return Exit.OK


@command.command()
@click.argument("name")
@address_option
@timeout_option
@json_option
def show(name: str, *, address: str, timeout_s: float, as_json: bool) -> int:
    """Show topic NAME: its columns and its partitions.

    \b
    Example:
      ringfence topic show lineitem
    """  # noqa: D301
    with connected(address, timeout_s) as client:
        info = client.topic(name)
    if as_json:
        emit(topic_values(info))
        return Exit.OK
    click.echo(f"{info.name}  (topic {info.topic}, version {info.version}, replication {info.replication})")
    keeps = [f"retention {info.retention_bytes:,} bytes a partition"] if info.retention_bytes else []
    keeps += [f"retention {info.retention_ms:,} ms"] if info.retention_ms else []
    keeps += [f"{key}={value}" for key, value in sorted(info.properties.items())]
    for line in keeps:
        click.echo(line)
    fields = [
        [
            field.name,
            str(field.type),
            field.nullable,
            (info.key.index(field.name) + 1) if field.name in info.key else None,
        ]
        for field in _newest(info)
    ]
    show_table("", ("column", "type", "nullable", "key"), fields)
    click.echo()
    parts = [
        [
            part.name,
            part.state,
            part.epoch,
            part.start_offset,
            part.end_offset,
            shown_bytes(part.bytes),
            part.quarantined,
        ]
        for part in info.partitions
    ]
    show_table("", ("partition", "state", "epoch", "start", "end", "bytes", "quarantined"), parts)
    return Exit.OK


@command.command()
@click.argument("name")
@click.option("--partition", type=int, help="Only this one. [default: each]")
@click.option(
    "--before",
    "before_offset",
    type=click.IntRange(min=0),
    help="Give up rows below this offset. [default: all]",
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@address_option
@timeout_option
@json_option
def truncate(name: str, *, partition: int | None, before_offset: int | None, yes: bool, address: str,
             timeout_s: float, as_json: bool) -> int:  # fmt: skip
    """Give up rows of topic NAME from the front.

    \b
    Example:
      ringfence topic truncate events --partition 131072 --before 1000000 --yes
    """  # noqa: D301
    what = "all rows" if before_offset is None else f"rows below offset {before_offset:,}"
    _confirm(
        f"Give up {what} of {'each partition' if partition is None else f'partition {partition}'} of {name}?",
        yes=yes,
    )
    with connected(address, timeout_s) as client:
        client.truncate(name, partition=partition, before_offset=before_offset)
        info = client.topic(name)
    if as_json:
        emit(topic_values(info))
    else:
        click.echo(f"{name}: {_rows(info.partitions):,} rows are left")
    return Exit.OK


@command.command()
@click.argument("name")
@click.option("--missing-ok", is_flag=True, help="A topic that does not exist is no error.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@address_option
@timeout_option
@json_option
def delete(name: str, *, missing_ok: bool, yes: bool, address: str, timeout_s: float, as_json: bool) -> int:
    """Delete topic NAME and its rows.

    \b
    Example:
      ringfence topic delete events --yes
    """  # noqa: D301
    _confirm(f"Delete topic {name} and all its rows?", yes=yes)
    with connected(address, timeout_s) as client:
        client.delete_topic(name, missing_ok=missing_ok)
    if as_json:
        emit({"deleted": name})
    else:
        click.echo(f"{name} {'is gone' if missing_ok else 'deleted'}")
    return Exit.OK


def topic_values(info: TopicInfo) -> dict[str, Any]:
    """A topic as JSON; the schema as columns, not as bytes."""
    return {
        "topic": info.topic,
        "name": info.name,
        "created": info.created,
        "version": info.version,
        "key": info.key,
        "columns": [
            {"name": field.name, "type": str(field.type), "nullable": field.nullable}
            for field in _newest(info)
        ],
        "schemas": len(info.schemas),
        "replication": info.replication,
        "retention_bytes": info.retention_bytes,
        "retention_ms": info.retention_ms,
        "properties": info.properties,
        "rows": _rows(info.partitions),
        "bytes": sum(part.bytes for part in info.partitions),
        "partitions": [
            {name: getattr(part, name) for name in part.__struct_fields__} for part in info.partitions
        ],
    }  # fmt: skip


def _partitions(info: TopicInfo) -> str:
    count = len(info.partitions)
    return f"{count:,} partition{'' if count == 1 else 's'}"


def _newest(info: TopicInfo) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(info.schemas[-1]))


def _rows(partitions: list[PartitionStats]) -> int:
    return sum(part.end_offset - part.start_offset for part in partitions)


def _schema(columns: tuple[str, ...], file: str | None) -> pa.Schema:
    if bool(columns) == (file is not None):
        raise click.UsageError("name the columns with --column, or a file that has them with --schema-of")
    if file is None:
        return pa.schema([parse_column(text) for text in columns])
    from ringfence.control.cli.tables import Source  # noqa: PLC0415 - loads Parquet; only here

    with Source(file) as source:
        return source.schema


def _size(text: str | None) -> int | None:
    size = parse_size(text)
    if size is None or isinstance(size, int):
        return size
    raise ConfigError(f"--retention-bytes {text!r}: a size, as 10GiB", key="retention_bytes")


def _properties(texts: tuple[str, ...]) -> dict[str, str]:
    pairs = [text.partition("=") for text in texts]
    if not all(key and separator for key, separator, _ in pairs):
        raise click.UsageError(f"--property {' '.join(texts)}: KEY=VALUE")
    return {key: value for key, _, value in pairs}


def _confirm(question: str, *, yes: bool) -> None:
    if yes:
        return
    try:
        agreed = click.confirm(question, err=True)
    except click.Abort:
        if sys.stdin.isatty():
            raise
        click.echo(err=True)  # ends the question's line
        raise click.UsageError("nobody answered, nothing was changed; pass --yes") from None
    if not agreed:
        click.echo("nothing was changed", err=True)
        raise click.exceptions.Exit(Exit.INTERRUPTED)
