"""`ringfence fsck`: every record of a stopped node's data directory, changing nothing."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from ringfence.control.cli.exits import Exit
from ringfence.control.cli.output import emit, json_option, show_table, shown_bytes
from ringfence.control.invariants import metadata as invariants
from ringfence.control.store.directory import open_existing
from ringfence.control.store.raft_store import RaftStore
from ringfence.native import _node
from ringfence.native.errors import RecordError


@click.command()
@click.option("--data", "data_dir", required=True, type=click.Path(path_type=Path, file_okay=False),
              help="The data directory; its node must be stopped.")  # fmt: skip
@json_option
def command(data_dir: Path, as_json: bool) -> int:  # noqa: FBT001 - click's
    """Check identity, metadata and every record of the log, changing nothing.

    Ends with 0 when all is sound, with 6 when something is damaged; each damage is named with its file,
    position, topic and partition.

    \b
    Example:
      ringfence fsck --data ./data
    """  # noqa: D301
    directory = open_existing(data_dir)
    try:
        metadata, damage = _metadata(directory)
        report: dict[str, Any] = {}
        if directory.log.exists():
            report = _node.fsck(os.fspath(directory.log))
        damage += list(report.get("damage", []))
    finally:
        directory.close()
    if as_json:
        for found in damage:
            emit({"damage": found})
        summary = {key: value for key, value in report.items() if key not in {"damage", "partitions"}}
        emit({"sound": not damage, "damaged": len(damage), "metadata": metadata, **summary,
              "partitions": report.get("partitions", [])})  # fmt: skip
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


def _tell(metadata: dict[str, Any], report: dict[str, Any], damage: list[dict[str, Any]]) -> None:
    click.echo(
        f"metadata: entry {metadata.get('index', '?')}, {metadata.get('topics', '?')} topics, "
        f"{metadata.get('partitions', '?')} partitions"
    )
    click.echo(
        f"log: {report.get('files', 0)} files, {report.get('records', 0):,} records, "
        f"{shown_bytes(report.get('bytes', 0))}"
    )
    if damage:
        columns = ("file", "position", "record_number", "topic", "partition", "why")
        show_table("damage", columns, [[found.get(name) for name in columns] for found in damage])
    click.echo(f"{len(damage)} damaged" if damage else "sound")
