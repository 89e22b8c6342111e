"""`ringfence read`: print rows of a topic, or write them to a pipe or file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click
import pyarrow as pa

from ringfence.control.cli.cohort_read import batches_of, check_options
from ringfence.control.cli.connection import (
    PARTITION,
    address_option,
    open_client,
    timeout_option,
    token_option,
)
from ringfence.control.cli.exit_codes import Exit
from ringfence.control.cli.output import emit_rows, json_option, progress, show_table
from ringfence.control.cli.tables import Sink
from ringfence.control.cli.values import rows_of

if TYPE_CHECKING:
    from ringfence import Client

# Rows of a table without --limit.
LIMIT_SHOWN = 20
# Rows converted to text together. Small, so that the first rows of a large batch appear immediately.
TEXT_ROWS = 1000


@click.command()
@click.argument("topic")
@click.option(
    "--partition",
    "partitions",
    type=PARTITION,
    multiple=True,
    help="Read only this partition; may be repeated.",
)
@click.option(
    "--start",
    metavar="OFFSET|TIME|earliest|latest",
    default="earliest",
    show_default=True,
    help="Start position. An offset needs one --partition, a time needs a time zone.",
)
@click.option("--follow", is_flag=True, help="Continue with new rows until Ctrl-C, SIGTERM or SIGHUP.")
@click.option("--limit", type=click.IntRange(min=1), help="Maximum number of rows.")
@click.option("--columns", metavar="A,B", help="Read only these columns, in this order.")
@click.option(
    "--output", metavar="FILE.parquet|FILE.arrow|-", help="Write to a file; - is an Arrow stream on stdout."
)
@click.option("--cohort", help="Read as a member of this cohort, and acknowledge what was written.")
@click.option(
    "--mode", type=click.Choice(("stream", "queue")), help="With --cohort: its mode; stream if not given."
)
@click.option("--member", help="With --cohort: a name that keeps its partitions over restarts.")
@click.option("--no-ack", is_flag=True, help="With --cohort: acknowledge nothing; the rows come again.")
@address_option
@token_option
@timeout_option
@json_option
def command(topic: str, *, address: str, timeout_s: float, as_json: bool, **options: Any) -> int:
    """Read rows of TOPIC up to its current end, or continuously with --follow.

    With --cohort, the members of the cohort share the partitions, and reading goes on after what was
    acknowledged. It is created if it does not exist. Without --follow it ends when nothing came for 2 s.

    Without --output, print a table (20 rows without --limit); with --json, print one line per row. Instants
    are ISO 8601 in UTC, durations ISO 8601, bytes base64 (in tables hexadecimal), decimals strings; NaN and
    infinities are "NaN", "Infinity" and "-Infinity". A table shows control characters as escapes. An Arrow
    file has the values of dictionary columns.

    \b
    Example:
      ringfence read lineitem --columns l_orderkey,l_comment --limit 5
      ringfence read lineitem --output lineitem.parquet
      ringfence read events --follow --json | jq .id
      ringfence read events --cohort audit --follow --json
    """  # noqa: D301
    if options["output"] is not None and as_json:
        raise click.UsageError("--json prints rows to stdout, --output writes a file: pass one of them")
    partitions = list(options["partitions"])
    columns = None if options["columns"] is None else [name.strip() for name in options["columns"].split(",")]
    if columns is not None and len(set(columns)) != len(columns):
        raise click.BadParameter(f"a column is named twice: {options['columns']}", param_hint="--columns")
    of_members = (options["member"], options["mode"], options["no_ack"] or None)
    if options["cohort"] is None and any(given is not None for given in of_members):
        raise click.UsageError("--member, --mode and --no-ack belong to --cohort")
    if options["cohort"] is not None:
        check_options(partitions=partitions, start=options["start"])
    start = _start(options["start"], partitions)
    # Check the file name before the first request to a node.
    sink = None if options["output"] is None else Sink(options["output"])
    with (
        open_client(address, timeout_s, options["token_file"]) as client,
        _rows(
            client, topic, partitions, start, columns, {**options, "as_json": as_json}, timeout_s
        ) as batches,
    ):
        if sink is not None:
            schema = _schema(client, topic, columns)
            _to_file(batches, schema, sink, _total(client, topic, partitions, options))
        elif as_json:
            for batch in batches:
                emit_rows(rows_of(batch, as_json=True))
        else:
            _to_table(batches, options["limit"], follow=options["follow"])
    return Exit.OK


@contextmanager
def _rows(
    client: Client,
    topic: str,
    partitions: list[int],
    start: Any,
    columns: list[str] | None,
    options: dict[str, Any],
    timeout_s: float,
) -> Iterator[Iterator[pa.RecordBatch]]:
    """At most --limit rows, of a plain reader or of a member."""
    if options["cohort"] is None:
        with client.read(
            topic,
            partition=partitions or None,
            start=start,
            follow=options["follow"],
            columns=columns,
            batch_rows=TEXT_ROWS if options["output"] is None else None,
        ) as reader:
            yield limited(reader, options["limit"])
        return
    limit, follow = options["limit"], options["follow"]
    if limit is None and options["output"] is None and not options["as_json"] and not follow:
        limit = LIMIT_SHOWN  # what a table does not show is not acknowledged
    with client.consumer(
        topic,
        cohort=options["cohort"],
        mode=options["mode"] or "stream",
        member=options["member"],
        start=start,
        ack="manual",
        columns=columns,
    ) as consumer:
        yield batches_of(
            consumer, follow=follow, limit=limit, acknowledges=not options["no_ack"], patience_s=timeout_s
        )


def limited(batches: Iterator[pa.RecordBatch], limit: int | None) -> Iterator[pa.RecordBatch]:
    """Yield the first `limit` rows of the batches; None = all."""
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
            raise click.UsageError(f"--start {text}: an offset belongs to one partition; pass --partition")
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise click.UsageError(
            f"--start {text!r}: expected earliest, latest, an offset, or a time, as 2026-01-31T12:00+00:00"
        ) from None
    if moment.tzinfo is None:
        precision = "auto" if moment.second or moment.microsecond else "minutes"
        zoned = moment.replace(tzinfo=UTC).isoformat(timespec=precision)
        raise click.UsageError(f"--start {text}: a time needs a time zone, for example {zoned}")
    return moment


def _schema(client: Client, topic: str, columns: list[str] | None) -> pa.Schema:
    schema = client.topic(topic).schemas[-1]
    return schema if columns is None else pa.schema([schema.field(name) for name in columns])


def _total(client: Client, topic: str, partitions: list[int], options: dict[str, Any]) -> int | None:
    """Return the number of rows to read, for the progress bar; None if it is unknown."""
    if options["follow"] or options["start"] != "earliest" or options["cohort"] is not None:
        return None
    rows = client.count(topic, partition=partitions or None)
    return rows if options["limit"] is None else min(rows, options["limit"])


def _to_file(batches: Iterator[pa.RecordBatch], schema: pa.Schema, sink: Sink, total: int | None) -> None:
    is_complete = False
    rows = 0
    try:
        sink.begin(schema)
        with progress(sink.path, total) as bar:
            for batch in batches:
                sink.write(batch)
                rows += batch.num_rows
                bar.advance(rows=batch.num_rows, size=batch.nbytes)
        is_complete = True
    except KeyboardInterrupt:
        # Ctrl-C, SIGTERM or SIGHUP ends --follow; keep the rows read so far as a complete file.
        is_complete = rows > 0
        raise
    finally:
        sink.end(is_complete=is_complete)
    if sink.path != "-":
        click.echo(f"{sink.path}: {rows:,} rows", err=True)


def _to_table(batches: Iterator[pa.RecordBatch], limit: int | None, *, follow: bool) -> None:
    """Print one table of all rows; with --follow, print a table for each batch."""
    if follow:
        for batch in batches:
            show_table("", batch.schema.names, [list(row.values()) for row in rows_of(batch)])
        return
    # One more row shows whether there are more.
    pieces = list(batches if limit is not None else limited(batches, LIMIT_SHOWN + 1))
    if not pieces:
        click.echo("no rows", err=True)
        return
    rows = [list(row.values()) for batch in pieces for row in rows_of(batch)]
    show_table("", pieces[0].schema.names, rows[: limit or LIMIT_SHOWN])
    if limit is None and len(rows) > LIMIT_SHOWN:
        more = f"only the first {LIMIT_SHOWN} rows are shown; use --limit N, --json or --output FILE for more"
        click.echo(more, err=True)
