"""`ringfence fsck --cluster`: check a running cluster through a node, or stopped nodes by directories."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from ringfence.control.cli.endpoint import Endpoint
from ringfence.control.cli.exit_codes import Exit, storage_errors
from ringfence.control.cli.output import emit, show_table
from ringfence.control.cli.rebalance_api import ask_values
from ringfence.control.invariants import metadata as invariants
from ringfence.control.model.ids import NodeId
from ringfence.control.model.state import MetadataState, digest
from ringfence.control.model.text import counted
from ringfence.control.runtime.data_plane.recovery import holds_files
from ringfence.control.runtime.handlers.inspections import shown
from ringfence.control.runtime.rpc import messages
from ringfence.control.state_machines.inspection import Inspection, NodeReading
from ringfence.control.store.directory import DataDirectory, open_existing
from ringfence.control.store.identity import check_segments
from ringfence.control.store.raft_store import RaftStore
from ringfence.native import _node
from ringfence.native.errors import ConfigError, RecordError

COLUMNS = ("invariant", "node", "topic", "partition", "what")


def running(endpoint: Endpoint) -> dict[str, Any]:
    """Return the report of a node, which inspects all nodes."""
    if endpoint.control is not None:
        return ask_values(endpoint.control, messages.InspectAll(), endpoint.timeout_s)
    report: dict[str, Any] = endpoint.admin().get("/admin/fsck")
    return report


def stopped(roots: Sequence[Path]) -> dict[str, Any]:
    """Check the data directories of stopped nodes against each other, without changes.

    Raises:
        ConfigError: the directories belong to several clusters. StorageError as `open_existing`.
    """
    by_node: dict[NodeId, NodeReading] = {}
    newest: tuple[int, MetadataState] | None = None
    first: DataDirectory | None = None
    for root in roots:
        with storage_errors(root), contextlib.closing(open_existing(root)) as directory:
            first = first or directory
            _check_same(first, directory)
            node = NodeId(directory.identity.node)
            if node in by_node:
                raise ConfigError(
                    f"{root}: the options name another directory of node {node}, too; pass one per node",
                    key="data",
                )
            inspected, state = _inspect(directory)
        by_node[node] = inspected
        if state is not None and (newest is None or state[0] > newest[0]):
            newest = state
    if newest is None:
        raise ConfigError("none of the directories has valid metadata, so nothing can be checked", key="data")
    return shown(Inspection(is_live=False).round(newest[1], by_node))


def _check_same(first: DataDirectory, other: DataDirectory) -> None:
    if (first.identity.cluster, first.identity.history) != (other.identity.cluster, other.identity.history):
        raise ConfigError(
            f"{other.root} belongs to cluster {other.identity.cluster.hex()}, {first.root} to "
            f"{first.identity.cluster.hex()}; pass the directories of one cluster",
            key="data",
        )


def _inspect(directory: DataDirectory) -> tuple[NodeReading, tuple[int, MetadataState] | None]:
    """Inspect one store. Also return its metadata and last index, if the metadata is readable."""
    broken, index, state = _metadata(directory)
    parts: dict[tuple[int, int], dict[str, Any]] = {}
    if holds_files(directory.log):
        check_segments(directory.log, directory.identity)
        report = _node.fsck(os.fspath(directory.log))
        parts = {(int(each["topic"]), int(each["partition"])): dict(each) for each in report["partitions"]}
        for damage in report["damage"]:
            key = (int(damage["topic"] or 0), int(damage["partition"] or 0))
            if key in parts:
                where = f"{damage['file']} at {damage['position']}: {damage['why']}"
                parts[key]["quarantined"] = parts[key].get("quarantined") or where
            else:
                broken = broken or f"{damage['file']} at {damage['position']}: {damage['why']}"
    index_and_hash = None if state is None else (index, digest(state))
    inspected = NodeReading(
        NodeId(directory.identity.node), directory.identity.store, broken, index_and_hash, parts
    )
    return inspected, None if state is None else (index, state)


def _metadata(directory: DataDirectory) -> tuple[str | None, int, MetadataState | None]:
    """Return the first fault, the last index, and the state, or None if the metadata cannot be read."""
    try:
        store = RaftStore(directory, read_only=True)
        state = store.end_state()
    except (FileNotFoundError, RecordError) as error:
        return str(error), 0, None
    try:
        invariants.check(state, store.recovered.index)
    except AssertionError as error:
        return str(error), store.recovered.index, state
    finally:
        store.close()
    return None, store.recovered.index, state


def report_result(report: dict[str, Any], *, as_json: bool) -> int:
    """Print the report; return 6 if it has findings, 9 if something could not be checked, else 0."""
    if as_json:
        emit(report)
    else:
        for title, name in (("findings", "findings"), ("not checked", "unproven")):
            if report[name]:
                rows = [[each[column] for column in COLUMNS] for each in report[name]]
                show_table(title, COLUMNS, rows, ids=("node", "partition"))
        silent = f"; nodes {', '.join(map(str, report['silent']))} did not answer" if report["silent"] else ""
        click.echo(
            f"{counted(len(report['nodes']), 'node')}, {counted(report['partitions'], 'partition')}, "
            f"replicas of {report['compared']} compared{silent}"
        )
        click.echo("sound" if report["sound"] else counted(len(report["findings"]), "finding"))
    if report["findings"]:
        return Exit.DAMAGE
    return Exit.OK if report["sound"] else Exit.DEGRADED
