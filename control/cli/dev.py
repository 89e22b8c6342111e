"""`ringfence dev`: a cluster of local processes, to try things out."""

from __future__ import annotations

import contextlib
import shlex
import signal
import threading
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from ringfence.common.address import ADDRESS_VARIABLE
from ringfence.control.cli import admin
from ringfence.control.cli.cluster_story import ClusterStory
from ringfence.control.cli.demo import lacking_for_spark
from ringfence.control.cli.demo_steps import generate
from ringfence.control.cli.dev_story import Scene, Story, StoryError
from ringfence.control.cli.exit_codes import Exit, data_directory
from ringfence.control.cli.local_cluster import LOOK_S, Folder, LocalCluster, temporary
from ringfence.control.cli.output import emit, json_option, show_table, shown_bytes
from ringfence.control.model.text import counted

VOTERS_MIN = 3


@click.command()
@click.option("--nodes", "count", type=click.IntRange(1, 9), default=3, show_default=True, help="Processes.")
@click.option(
    "--data",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder for data and logs that stays; by default a temporary one.",
)
@click.option(
    "--demo", is_flag=True, help="Send lineitem through all nodes, kill -9 the leader meanwhile, compare."
)
@click.option(
    "--demo-cluster",
    is_flag=True,
    help="Rows flow while a node joins, an owner and the leader are killed, a node is drained.",
)
@click.option(
    "--demo-pipeline",
    is_flag=True,
    help="Spark streams TPC-H in, joins and compacts it while its tasks, its driver and a node are killed.",
)
@click.option(
    "--scale",
    type=click.FloatRange(0.001, 100),
    default=0.1,
    show_default=True,
    help="TPC-H scale of a demo: 0.1 is 600,572 rows.",
)
@click.option(
    "--input",
    "file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A lineitem Parquet file for a demo. [default: made by tpchgen-cli]",
)
@json_option
def command(
    *,
    count: int,
    data: Path | None,
    demo: bool,
    demo_cluster: bool,
    demo_pipeline: bool,
    scale: float,
    file: Path | None,
    as_json: bool,
) -> int:
    """Run a cluster of local processes until Ctrl-C.

    One line tells when all nodes serve, with their addresses. A process that ends is told; the others go on,
    and when none is left it ends with 8.
    With --demo, --demo-cluster or --demo-pipeline it tells a story instead, and ends with 0 when no row and
    no command was lost.

    \b
    Example:
      ringfence dev --nodes 3 --data ./cluster
      ringfence dev --nodes 3 --demo
    """  # noqa: D301
    stories = demo + demo_cluster + demo_pipeline
    if stories > 1:
        raise click.UsageError("--demo, --demo-cluster and --demo-pipeline are stories: choose one")
    if demo_pipeline:
        _check_pipeline(file)
    if stories and count < VOTERS_MIN:
        raise click.UsageError(f"the demo kills a node: --nodes {VOTERS_MIN} at least, so a majority is left")
    asked = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: asked.set())
    with contextlib.ExitStack() as stack:
        folder = Folder(data) if data is not None else stack.enter_context(temporary())
        root = folder.path
        with data_directory(root):
            root.mkdir(parents=True, exist_ok=True)
        cluster = stack.enter_context(LocalCluster(root, asked))
        if not as_json:
            click.echo(f"starting {counted(count, 'node')}", err=True)
        with data_directory(root, alone=True):
            cluster.start(count)
        if asked.is_set():
            return Exit.OK
        if stories:
            _interrupt_at(asked)
        if demo_pipeline:
            code = _pipeline(cluster, root, scale, as_json=as_json)
        elif stories:
            source = file if file is not None else generate(scale, root)
            story = Story(cluster).tell(source) if demo else ClusterStory(cluster).tell(source)
            code = _demo(story, root, as_json=as_json)
        else:
            _tell(cluster, stays=data is not None, as_json=as_json)
            _watch(cluster, asked, as_json=as_json)
            code = Exit.OK if asked.is_set() else Exit.NODE_FAILED
        folder.is_kept = code != Exit.OK
    return code


def _interrupt_at(asked: threading.Event) -> None:
    """From here on the first signal ends what is done; those behind it leave the cleaning up alone."""

    def interrupt(*_: object) -> None:
        if not asked.is_set():
            asked.set()
            raise KeyboardInterrupt

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, interrupt)


def _check_pipeline(file: Path | None) -> None:
    if file is not None:
        raise click.UsageError("--demo-pipeline needs three tables that fit together: leave --input out")
    if lacking := lacking_for_spark():
        raise click.UsageError(f"--demo-pipeline: {lacking}")
    if find_spec("duckdb") is None:
        raise click.UsageError("--demo-pipeline: duckdb is not installed: pip install duckdb")


def _pipeline(cluster: LocalCluster, root: Path, scale: float, *, as_json: bool) -> int:
    from ringfence.control.cli.pipeline_story import PipelineStory  # noqa: PLC0415 - needs pyarrow's Parquet

    story = PipelineStory(cluster, root)
    code = _demo(story.tell(scale), root, as_json=as_json)
    summary = story.summary
    if as_json:
        emit(summary)
    else:
        kills = ", ".join(f"{kind} {times}" for kind, times in summary["kills"].items())
        equal = "equal answers" if code == Exit.OK else "NOT done"
        click.echo(
            f"{equal}: {summary['rows']:,} rows, {shown_bytes(summary['bytes'])}, "
            f"kills: {kills}; {summary['seconds']:.0f} s"
        )
    return code


def _demo(story: Iterator[Scene], root: Path, *, as_json: bool) -> int:
    scenes = []
    try:
        for scene in story:
            scenes.append(scene)
            if as_json:
                emit({"scene": scene.what, "seen": scene.seen, "seconds": round(scene.seconds, 3)})
            else:
                click.echo(f"{scene.what}: {scene.seen}", err=True)
    except StoryError as error:
        click.echo(f"the demo failed: {error}; logs are in {root}", err=True)
        return Exit.DEFECT
    if not as_json:
        rows = [[scene.what, scene.seen, f"{scene.seconds:.2f}"] for scene in scenes]
        show_table("", ("what", "seen", "seconds"), rows)
        click.echo("no acknowledged row and no command was lost")
    return Exit.OK


def _tell(cluster: LocalCluster, *, stays: bool, as_json: bool) -> None:
    told: list[dict[str, Any]] = [
        {
            "name": node.name,
            "node": node.node,
            "address": node.address,
            "control": node.control,
            "http": node.http,
            "pid": node.pid,
        }
        for node in cluster.nodes.values()
    ]
    if as_json:
        emit({"event": "serving", "data": str(cluster.root), "nodes": told})
        return
    for node in told:
        doors = f"{node['address']}  control {node['control']}  admin {node['http']}"
        click.echo(f"{node['name']}: node {node['node']}  {doors}  pid {node['pid']}")
    for variable, door in ((ADDRESS_VARIABLE, "address"), (admin.ADDRESS_VARIABLE, "http")):
        click.echo(f"export {variable}={','.join(node[door] for node in told)}")
    end = "" if stays else " and removes both (--data DIR keeps them)"
    click.echo(f"{counted(len(told), 'node')}; data and logs in {cluster.root}; Ctrl-C stops the nodes{end}")


def _watch(cluster: LocalCluster, asked: threading.Event, *, as_json: bool) -> None:
    """Until asked to stop, or nobody is left; tell of each process that ends."""
    gone: set[str] = set()
    while not asked.wait(LOOK_S) and len(gone) < len(cluster.nodes):
        for name, code in cluster.ended().items():
            if name not in gone:
                gone.add(name)
                if as_json:
                    emit({"event": "ended", "name": name, "code": code})
                else:
                    again = shlex.join(cluster.serve_command(name))
                    click.echo(f"{name} ended with {code}; `{again}` starts it again")
