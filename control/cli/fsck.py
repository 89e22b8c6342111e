"""`ringfence fsck`: check a stopped node's data directory or a whole cluster, without changes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from ringfence.control.cli.endpoint import Endpoint, control_options
from ringfence.control.cli.exit_codes import Exit, storage_errors
from ringfence.control.cli.output import emit, format_bytes, show_table
from ringfence.control.invariants import metadata as invariants
from ringfence.control.model.text import counted
from ringfence.control.runtime.data_plane.recovery import (
    check_age,
    check_log,
    holds_files,
    unreadable_segments,
)
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
    help="Data directory of a stopped node; with --cluster, repeat it for each node.",
)
@click.option("--cluster", is_flag=True, help="Check all nodes of a cluster against each other.")
@control_options
def command(*, data_dirs: tuple[Path, ...], cluster: bool, endpoint: Endpoint, as_json: bool) -> int:
    """Check identity, metadata and every record of the log, without changing anything.

    Exits with 0 if no damage is found. Exits with 6 if something is damaged, and prints file, position, topic
    and partition of each damage.

    With --cluster, check that metadata is valid and equal on all nodes (I1), only owners take appends (I4),
    their rows are on a majority (I5), replicas have equal chains (I11), and no partition is missing or
    unknown (I16). Name a running cluster by --http or --control, a stopped one by all its directories. Exits
    with 9 if a node did not answer or something could not be checked. Exits with 4 if no majority of a
    running cluster's voters answers, because the valid metadata is then unknown.

    \b
    Example:
      ringfence fsck --data ./data
      ringfence fsck --cluster --http http://127.0.0.1:7412
      ringfence fsck --cluster --data ./a --data ./b --data ./c
    """  # noqa: D301
    if cluster:
        from ringfence.control.cli import fsck_cluster  # noqa: PLC0415 - needed with --cluster only

        if data_dirs and (endpoint.control or is_http_flag()):
            raise click.UsageError(
                "--data names stopped nodes, --http and --control running ones: pass one kind"
            )
        report = fsck_cluster.stopped(data_dirs) if data_dirs else fsck_cluster.running(endpoint)
        return fsck_cluster.report_result(report, as_json=as_json)
    if len(data_dirs) != 1:
        raise click.UsageError("pass one data directory with --data, or check a cluster with --cluster")
    with storage_errors(data_dirs[0]):
        return check_directory(data_dirs[0], as_json=as_json)


def is_http_flag() -> bool:
    """Return whether --http is on the command line; the environment does not count."""
    source = click.get_current_context().get_parameter_source("http")
    return source is click.core.ParameterSource.COMMANDLINE


def check_directory(data_dir: Path, *, as_json: bool) -> int:
    """Check every record of one directory and print the report."""
    directory = open_existing(data_dir)
    try:
        metadata, damage = _metadata(directory)
        report: dict[str, Any] = {}
        if holds_files(directory.log):
            check_segments(directory.log, directory.identity)
            report = _node.fsck(os.fspath(directory.log))
            damage += [
                {"file": os.fspath(directory.log / name), "position": 0, "why": f"it {why}"}
                for name, why in unreadable_segments(directory.log).items()
            ]
        damage += list(report.get("damage", [])) + _age(directory, report, metadata)
    finally:
        directory.close()
    if as_json:
        for entry in damage:
            emit({"damage": entry})
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
        _show(metadata, report, damage)
    return Exit.DAMAGE if damage else Exit.OK


def _metadata(directory: Any) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return a summary of the metadata, and the damage in it."""
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
    """Return damage if the log is missing or the metadata is older than the rows: a node would not start."""
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


def _show(metadata: dict[str, Any], report: dict[str, Any], damage: list[dict[str, Any]]) -> None:
    click.echo(
        f"metadata: entry {metadata['index']}, {counted(metadata['topics'], 'topic')}, "
        f"{counted(metadata['partitions'], 'partition')}"
        if "partitions" in metadata
        else "metadata: not readable"
    )
    click.echo(
        f"log: {counted(report.get('files', 0), 'file')}, {counted(report.get('records', 0), 'record')}, "
        f"{format_bytes(report.get('bytes', 0))}"
    )
    sealed = sum(part.get("sealed") is not None for part in report.get("partitions", ()))
    if sealed:
        click.echo(
            f"{counted(sealed, 'partition')} {'is' if sealed == 1 else 'are'} sealed by layout changes"
        )
    if damage:
        columns = ("file", "position", "record_number", "topic", "partition", "why")
        show_table(
            "damage",
            columns,
            [[entry.get(name) for name in columns] for entry in damage],
            ids=("position", "record_number", "topic", "partition"),
        )
    click.echo(f"{len(damage)} damaged" if damage else "sound")
