"""`ringfence demo`: TPC-H lineitem through Spark, a node and back, compared row for row by hash."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ringfence.control.cli import demo_steps as steps
from ringfence.control.cli.connection import connected
from ringfence.control.cli.demo_steps import Step
from ringfence.control.cli.embedded import embedded_node
from ringfence.control.cli.exit_codes import Exit
from ringfence.control.cli.output import emit, json_option, show_table, shown_bytes

if TYPE_CHECKING:
    from ringfence import Client

TOPIC = "lineitem"


@click.command()
@click.option(
    "--scale",
    type=click.FloatRange(0.001, 100),
    default=0.1,
    show_default=True,
    help="TPC-H scale: 0.1 is 600,572 rows.",
)
@click.option(
    "--input",
    "file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A lineitem Parquet file. [default: made by tpchgen-cli]",
)
@click.option("--partitions", type=click.IntRange(1, 1024), default=8, show_default=True, help="Partitions.")
@click.option(
    "--spark/--no-spark",
    default=None,
    help="Write and read by Spark. [default: if pyspark and Java are there]",
)
@click.option("--data", type=click.Path(path_type=Path, file_okay=False), help="Keep the node's data here.")
@json_option
def command(
    *, scale: float, file: Path | None, partitions: int, spark: bool | None, data: Path | None, as_json: bool
) -> int:
    """Start a node, send TPC-H lineitem to it through Spark, read it back by Python and by Spark, compare.

    Ends with 0 when every way gives the same number of rows and the same content hash.

    \b
    Example:
      ringfence demo --scale 0.1
    """  # noqa: D301
    lacking = None if spark is False else lacking_for_spark()
    if spark and lacking:
        raise click.UsageError(f"--spark: {lacking}")
    if lacking and not as_json:
        click.echo(f"without Spark: {lacking}", err=True)
    with_spark = spark is not False and lacking is None
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ringfence-demo-")))
        _say("making lineitem", quiet=as_json or file is not None)
        source = file if file is not None else steps.generate(scale, folder)
        _say("starting a node", quiet=as_json)
        address = stack.enter_context(embedded_node(data=data))
        client = stack.enter_context(connected(address))
        steps.create_topic(client, TOPIC, source, partitions)
        ways = _by_spark if with_spark else _by_python
        done = [steps.read_file(source), *ways(stack, client, address, source, quiet=as_json)]
    return _tell(done, as_json=as_json)


def _by_python(_: ExitStack, client: Client, __: str, source: Path, *, quiet: bool) -> Iterator[Step]:
    _say("Python writes", quiet=quiet)
    yield steps.write(client, TOPIC, source)
    _say("Python reads", quiet=quiet)
    yield steps.read(client, TOPIC)


def _by_spark(stack: ExitStack, client: Client, address: str, source: Path, *, quiet: bool) -> Iterator[Step]:
    from ringfence.control.cli import demo_spark  # noqa: PLC0415 - needs pyspark

    _say("starting Spark", quiet=quiet)
    session = stack.enter_context(demo_spark.session())
    _say("Spark writes through mapInArrow", quiet=quiet)
    yield demo_spark.write(session, address, TOPIC, source)
    _say("Python reads", quiet=quiet)
    yield steps.read(client, TOPIC)
    _say("Spark reads", quiet=quiet)
    yield demo_spark.read(session, address, TOPIC)


def lacking_for_spark() -> str | None:
    """What Spark needs and does not find here, in a few words."""
    if find_spec("pyspark") is None:
        return "pyspark is not installed: pip install 'ringfence[spark]'"
    if "JAVA_HOME" not in os.environ and shutil.which("java") is None:
        return "Java is missing: install 17 or newer, or set JAVA_HOME"
    return None


def _tell(done: list[Step], *, as_json: bool) -> int:
    first = done[0]
    same = all(step.rows == first.rows and step.digest in {None, first.digest} for step in done)
    if as_json:
        for step in done:
            emit(step.values())
        emit({"equal": same, "rows": first.rows, "hash": f"{first.digest:016x}"})
    else:
        show_table(
            "", ("step", "rows", "bytes", "hash", "seconds", "rows/s", "rate"), [_row(step) for step in done]
        )
        click.echo(
            f"equal: {first.rows:,} rows and content hash {first.digest:016x} everywhere"
            if same
            else "NOT equal: rows or hashes differ"
        )
    return Exit.OK if same else Exit.DAMAGE


def _row(step: Step) -> list[Any]:
    hashed = None if step.digest is None else f"{step.digest:016x}"
    rate = None if not step.size else f"{shown_bytes(step.size / step.seconds)}/s"
    size = shown_bytes(step.size) if step.size else None
    per_second = f"{step.rows / step.seconds:,.0f}"
    return [step.name, step.rows, size, hashed, f"{step.seconds:.2f}", per_second, rate]


def _say(text: str, *, quiet: bool) -> None:
    if not quiet:
        click.echo(f"{text} ...", err=True)
