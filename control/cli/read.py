"""`ringfence read`: rows of a topic to a terminal, a pipe or a file."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click
import pyarrow as pa

from ringfence.control.cli.connection import (
    PARTITION,
    address_option,
    connected,
    timeout_option,
    token_option,
)
from ringfence.control.cli.exits import Exit
from ringfence.control.cli.output import emit_rows, json_option, progress, show_table
from ringfence.control.cli.tables import Sink
from ringfence.control.cli.values import rows_of

if TYPE_CHECKING:
    from ringfence import Client

LIMIT_SHOWN = 20
"""Rows of a table on a terminal unless --limit asks for more."""
ROWS_AT_ONCE = 1000
"""Rows that become text together: the first are seen at once, however large the batches were sent."""


@click.command()
@click.argument("topic")
@click.option(
    "--partition", "partitions", type=PARTITION, multiple=True, help="Only this one; may be repeated."
)
@click.option("--start", metavar="OFFSET|TIME|earliest|latest", default="earliest", show_default=True,
              help="Where to begin; an offset needs one --partition, a time its zone.")  # fmt: skip
@click.option("--follow", is_flag=True, help="Go on with new rows until Ctrl-C or SIGTERM.")
@click.option("--limit", type=click.IntRange(min=1), help="End after so many rows.")
@click.option("--columns", metavar="A,B", help="Only these columns, in this order.")
@click.option(
    "--output", metavar="FILE.parquet|FILE.arrow|-", help="Write a file; - is an Arrow stream on stdout."
)
@address_option
@token_option
@timeout_option
@json_option
def command(topic: str, *, address: str, timeout_s: float, as_json: bool, **options: Any) -> int:
    """Read rows of TOPIC up to its end as of now, or on and on with --follow.

    Without --output rows are shown as a table (20 of them unless --limit says otherwise); with --json each
    row is a line. Instants are ISO 8601 in UTC, durations ISO 8601, bytes base64 (in tables hexadecimal),
    decimals strings; NaN and infinities are "NaN", "Infinity" and "-Infinity". A table shows control
    characters as escapes. In an Arrow file dictionaries are written as their values.

    \b
    Example:
      ringfence read lineitem --columns l_orderkey,l_comment --limit 5
      ringfence read lineitem --output lineitem.parquet
      ringfence read events --follow --json | jq .id
    """  # noqa: D301
    if options["output"] is not None and as_json:
        raise click.UsageError("--json writes rows to stdout, --output writes a file: choose one")
    partitions = list(options["partitions"])
    columns = None if options["columns"] is None else [name.strip() for name in options["columns"].split(",")]
    if columns is not None and len(set(columns)) != len(columns):
        raise click.BadParameter(f"a column is named twice: {options['columns']}", param_hint="--columns")
    start = _start(options["start"], partitions)
    # Before the node is asked: a mistake in the name of the file should not cost a connection.
    sink = None if options["output"] is None else Sink(options["output"])
    with connected(address, timeout_s, options["token_file"]) as client:
        reader = client.read(
            topic,
            partition=partitions or None,
            start=start,
            follow=options["follow"],
            columns=columns,
            batch_rows=ROWS_AT_ONCE if sink is None else None,
        )
        with reader:
            if sink is not None:
                schema = _schema(client, topic, columns)
                total = _total(client, topic, partitions, options)
                _to_file(limited(reader, options["limit"]), schema, sink, total)
            elif as_json:
                for batch in limited(reader, options["limit"]):
                    emit_rows(rows_of(batch, as_json=True))
            else:
                _to_table(reader, options["limit"], follow=options["follow"])
    return Exit.OK


def limited(batches: Iterator[pa.RecordBatch], limit: int | None) -> Iterator[pa.RecordBatch]:
    """The first `limit` rows of the batches; None = all."""
    left = limit
    for batch in batches:
        if left is None:
            yield batch
            continue
        yield batch.slice(0, left)
        left -= min(left, batch.num_rows)
        if left == 0:
            return


def _start(text: str, partitions: list[int]) -> Any:
    if text in {"earliest", "latest"}:
        return text
    if text.isdigit():
        if len(partitions) != 1:
            raise click.UsageError(
                f"--start {text}: an offset counts in one partition, name it with --partition"
            )
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise click.UsageError(
            f"--start {text!r}: earliest, latest, an offset, or a time as 2026-01-31T12:00+00:00"
        ) from None
    if moment.tzinfo is None:
        whole = "auto" if moment.second or moment.microsecond else "minutes"
        zoned = moment.replace(tzinfo=UTC).isoformat(timespec=whole)
        raise click.UsageError(f"--start {text}: a time needs its zone, as {zoned}")
    return moment


def _schema(client: Client, topic: str, columns: list[str] | None) -> pa.Schema:
    schema = client.topic(topic).schemas[-1]
    return schema if columns is None else pa.schema([schema.field(name) for name in columns])


def _total(client: Client, topic: str, partitions: list[int], options: dict[str, Any]) -> int | None:
    """How many rows will come, for the progress bar; None where nobody knows."""
    if options["follow"] or options["start"] != "earliest":
        return None
    rows = client.count(topic, partition=partitions or None)
    return rows if options["limit"] is None else min(rows, options["limit"])


def _to_file(batches: Iterator[pa.RecordBatch], schema: pa.Schema, sink: Sink, total: int | None) -> None:
    whole = False
    rows = 0
    try:
        sink.begin(schema)
        with progress(sink.path, total) as bar:
            for batch in batches:
                sink.write(batch)
                rows += batch.num_rows
                bar.advance(rows=batch.num_rows, size=batch.nbytes)
        whole = True
    except KeyboardInterrupt:
        # Following ends by Ctrl-C or SIGTERM, and what was read until then is a file.
        whole = rows > 0
        raise
    finally:
        sink.end(whole=whole)
    if sink.path != "-":
        click.echo(f"{sink.path}: {rows:,} rows", err=True)


def _to_table(batches: Iterator[pa.RecordBatch], limit: int | None, *, follow: bool) -> None:
    """One table of the rows, or with --follow a table of each batch as it comes."""
    if follow:
        for batch in limited(batches, limit):
            show_table("", batch.schema.names, [list(row.values()) for row in rows_of(batch)])
        return
    kept = list(limited(batches, limit or LIMIT_SHOWN + 1))  # one more tells that there are more
    if not kept:
        click.echo("no rows", err=True)
        return
    rows = [list(row.values()) for batch in kept for row in rows_of(batch)]
    show_table("", kept[0].schema.names, rows[: limit or LIMIT_SHOWN])
    if limit is None and len(rows) > LIMIT_SHOWN:
        more = f"the first {LIMIT_SHOWN} rows; there are more: --limit N, --json or --output FILE show them"
        click.echo(more, err=True)
