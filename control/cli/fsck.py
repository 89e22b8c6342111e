"""`ringfence fsck`: a stopped node's data directory, or a whole cluster; nothing is changed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from ringfence.control.cli.admin import http_options
from ringfence.control.cli.exit_codes import Exit, data_directory
from ringfence.control.cli.output import emit, json_option, show_table, shown_bytes
from ringfence.control.cli.rebalance_api import control_option, timeout_option
from ringfence.control.invariants import metadata as invariants
from ringfence.control.model.text import counted
from ringfence.control.runtime.data_plane.recovery import check_age, check_log, holds_files, unread
from ringfence.control.store.directory import open_existing
from ringfence.control.store.identity import check_segments
from ringfence.control.store.raft_store import RaftStore
from ringfence.native import _node
from ringfence.native.errors import RecordError, StorageError


@click.command()
@click.option(
    "--data",
    "data_dirs",
    multiple=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="A stopped node's data directory; with --cluster repeat it for each.",
)
@click.option("--cluster", is_flag=True, help="Check what the nodes of a cluster have together.")
@control_option
@http_options
@timeout_option
@json_option
def command(
    *,
    data_dirs: tuple[Path, ...],
    cluster: bool,
    control: str | None,
    http: str | None,
    token_file: Path | None,
    timeout_s: float,
    as_json: bool,
) -> int:
    """Check identity, metadata and every record of the log, changing nothing.

    Ends with 0 when all is sound, with 6 when something is damaged; each damage is named with its file,
    position, topic and partition.

    With --cluster: that metadata is sound and equal everywhere (I1), only owners take appends (I4), what they
    have is on a majority (I5), replicas have equal chains (I11), no partition is missing or unknown (I16). A
    running cluster is asked through --http or --control, a stopped one is named by all its directories. Ends
    with 9 when a node was not heard, or something could not be proven; with 4 when no majority of a running
    cluster's voters answers, for then nobody knows what should be where.

    \b
    Example:
      ringfence fsck --data ./data
      ringfence fsck --cluster --http http://127.0.0.1:7412
      ringfence fsck --cluster --data ./a --data ./b --data ./c
    """  # noqa: D301
    if cluster:
        from ringfence.control.cli import fsck_cluster  # noqa: PLC0415 - only this way needs it

        if data_dirs and (control or http_is_named()):
            raise click.UsageError("--data is for stopped nodes, --http and --control for running ones")
        report = (
            fsck_cluster.stopped(data_dirs)
            if data_dirs
            else fsck_cluster.running(control, http, token_file, timeout_s)
        )
        return fsck_cluster.tell(report, as_json=as_json)
    if len(data_dirs) != 1:
        raise click.UsageError("name one data directory by --data, or check a cluster with --cluster")
    with data_directory(data_dirs[0]):
        return one(data_dirs[0], as_json=as_json)


def http_is_named() -> bool:
    """Whether --http is on the command line, not in the environment."""
    source = click.get_current_context().get_parameter_source("http")
    return source is click.core.ParameterSource.COMMANDLINE


def one(data_dir: Path, *, as_json: bool) -> int:
    """Every record of one directory."""
    directory = open_existing(data_dir)
    try:
        metadata, damage = _metadata(directory)
        report: dict[str, Any] = {}
        if holds_files(directory.log):
            check_segments(directory.log, directory.identity)
            report = _node.fsck(os.fspath(directory.log))
            damage += [
                {"file": os.fspath(directory.log / name), "position": 0, "why": f"it {why}"}
                for name, why in unread(directory.log).items()
            ]
        damage += list(report.get("damage", [])) + _age(directory, report, metadata)
    finally:
        directory.close()
    if as_json:
        for found in damage:
            emit({"damage": found})
        summary = {key: value for key, value in report.items() if key not in {"damage", "partitions"}}
        emit(
            {
                "sound": not damage,
                "damaged": len(damage),
                "metadata": metadata,
                **summary,
                "partitions": report.get("partitions", []),
            }
        )
    else:
        _tell(metadata, report, damage)
    return Exit.DAMAGE if damage else Exit.OK


def _metadata(directory: Any) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """What the metadata holds, and what is damaged in it."""
    try:
        store = RaftStore(directory, read_only=True)
        state = store.end_state()
    except FileNotFoundError as error:
        return {}, [{"file": str(error.filename), "position": 0, "why": "the file is missing"}]
    except RecordError as error:
        return {}, [{"file": str(directory.journal), "position": error.position, "why": str(error)}]
    try:
        invariants.check(state, store.recovered.index)
    except AssertionError as error:
        return {}, [{"file": str(directory.journal), "position": 0, "why": f"broken invariant: {error}"}]
    finally:
        store.close()
    return {
        "index": store.recovered.index,
        "topics": len(state.topics),
        "partitions": sum(len(topic.layout.partitions) for topic in state.topics.values()),
        "torn_bytes": store.journal.cut_bytes,
    }, []


def _age(directory: Any, report: dict[str, Any], metadata: dict[str, Any]) -> list[dict[str, Any]]:
    """Whether the log is gone, or the metadata older than the rows: such a directory does not start."""
    if "index" not in metadata:
        return []
    try:
        check_log(directory.log, metadata["index"])
        check_age(report.get("partitions", []), metadata["index"])
    except StorageError as error:
        return [
            {
                "file": str(directory.journal),
                "position": 0,
                "why": error.message,
                "topic": error.topic,
                "partition": error.partition,
            }
        ]
    return []


def _tell(metadata: dict[str, Any], report: dict[str, Any], damage: list[dict[str, Any]]) -> None:
    click.echo(
        f"metadata: entry {metadata['index']}, {counted(metadata['topics'], 'topic')}, "
        f"{counted(metadata['partitions'], 'partition')}"
        if "partitions" in metadata
        else "metadata: not readable"
    )
    click.echo(
        f"log: {counted(report.get('files', 0), 'file')}, {counted(report.get('records', 0), 'record')}, "
        f"{shown_bytes(report.get('bytes', 0))}"
    )
    if damage:
        columns = ("file", "position", "record_number", "topic", "partition", "why")
        show_table(
            "damage",
            columns,
            [[found.get(name) for name in columns] for found in damage],
            ids=("position", "record_number", "topic", "partition"),
        )
    click.echo(f"{len(damage)} damaged" if damage else "sound")
