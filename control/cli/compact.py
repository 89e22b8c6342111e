"""`ringfence compact`: write the new rows of a topic to Parquet files with a manifest."""

from __future__ import annotations

from typing import Any

import click

from ringfence.compact import ROWS_A_FILE, compact
from ringfence.control.cli.connection import address_option, open_client, timeout_option, token_option
from ringfence.control.cli.exit_codes import Exit, output_errors
from ringfence.control.cli.output import emit, format_bytes, json_option
from ringfence.control.model.text import counted


@click.command()
@click.argument("topic")
@click.argument("directory", type=click.Path(file_okay=False))
@click.option(
    "--rows-per-file",
    type=click.IntRange(min=1),
    default=ROWS_A_FILE,
    show_default=True,
    help="Maximum rows per file.",
)
@click.option("--sort", metavar="A,B", default="", help="Sort the rows of each file by these columns.")
@click.option(
    "--compression",
    default="zstd",
    show_default=True,
    type=click.Choice(["zstd", "snappy", "lz4", "gzip", "none"]),
    help="Compression of the files.",
)
@address_option
@token_option
@timeout_option
@json_option
def command(
    topic: str, directory: str, *, address: str, timeout_s: float, as_json: bool, **options: Any
) -> int:
    """Write the rows of TOPIC since the last run to Parquet files below DIRECTORY.

    Each row is in exactly one file that _manifest.parquet lists, even if a run is killed; the next run
    continues after it. The directory can be read as one data set: the manifest contains no rows.

    \b
    Example:
      ringfence compact events ./events-parquet --sort id
      duckdb -c "select count(*) from './events-parquet/*/*.parquet'"
    """  # noqa: D301 - click's \b keeps the lines
    sort = [name.strip() for name in options["sort"].split(",") if name.strip()]
    with open_client(address, timeout_s, options["token_file"]) as client, output_errors(directory):
        done = compact(
            client,
            topic,
            directory,
            rows_per_file=options["rows_per_file"],
            sort=sort,
            compression=options["compression"],
        )
    if as_json:
        emit(
            {
                "topic": topic,
                "files": done.files,
                "rows": done.rows,
                "bytes": done.bytes,
                "given_up": done.given_up,
            }
        )
    else:
        gone = f"; the topic has already deleted {done.given_up:,} older rows" if done.given_up else ""
        size = format_bytes(done.bytes)
        click.echo(
            f"{directory}: {counted(done.rows, 'row')} in {counted(done.files, 'new file')}, {size}{gone}"
        )
    return Exit.OK
