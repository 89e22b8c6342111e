"""`ringfence fsck --cluster`: a running cluster through one of its nodes, stopped nodes by directories."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from ringfence.control.cli.admin import Admin
from ringfence.control.cli.exit_codes import Exit, data_directory
from ringfence.control.cli.output import emit, show_table
from ringfence.control.cli.rebalance_api import asked
from ringfence.control.invariants import metadata as invariants
from ringfence.control.model.ids import NodeId
from ringfence.control.model.state import MetadataState, digest
from ringfence.control.model.text import counted
from ringfence.control.runtime.data_plane.recovery import holds_files
from ringfence.control.runtime.handlers.inspections import shown
from ringfence.control.runtime.rpc import messages
from ringfence.control.state_machines.inspection import Inspection, Seen
from ringfence.control.store.directory import DataDirectory, open_existing
from ringfence.control.store.identity import check_segments
from ringfence.control.store.raft_store import RaftStore
from ringfence.native import _node
from ringfence.native.errors import ConfigError, RecordError

COLUMNS = ("invariant", "node", "topic", "partition", "what")


def running(
    control: str | None, http: str | None, token_file: Path | None, timeout_s: float
) -> dict[str, Any]:
    """What a node tells after it has asked all."""
    if control is not None:
        return asked(control, messages.InspectAll(), timeout_s)
    told: dict[str, Any] = Admin(http, token_file, timeout_s).get("/admin/fsck")
    return told


def stopped(roots: Sequence[Path]) -> dict[str, Any]:
    """What the data directories of stopped nodes show together; nothing in them is changed.

    Raises:
        ConfigError: they are not of one cluster. StorageError as `open_existing`.
    """
    seen: dict[NodeId, Seen] = {}
    newest: tuple[int, MetadataState] | None = None
    first: DataDirectory | None = None
    for root in roots:
        with data_directory(root), contextlib.closing(open_existing(root)) as directory:
            first = first or directory
            _check_same(first, directory)
            node = NodeId(directory.identity.node)
            if node in seen:
                raise ConfigError(f"{root}: another directory of node {node} is named, too", key="data")
            found, state = _of(directory)
        seen[node] = found
        if state is not None and (newest is None or state[0] > newest[0]):
            newest = state
    if newest is None:
        raise ConfigError("none of the directories has sound metadata: nothing can be judged", key="data")
    return shown(Inspection(is_live=False).round(newest[1], seen))


def _check_same(first: DataDirectory, other: DataDirectory) -> None:
    if (first.identity.cluster, first.identity.history) != (other.identity.cluster, other.identity.history):
        raise ConfigError(
            f"{other.root} is of cluster {other.identity.cluster.hex()}, {first.root} of "
            f"{first.identity.cluster.hex()}: name the directories of one cluster",
            key="data",
        )


def _of(directory: DataDirectory) -> tuple[Seen, tuple[int, MetadataState] | None]:
    """One store; its metadata with the index where it ends, if it is sound."""
    broken, at, state = _metadata(directory)
    parts: dict[tuple[int, int], dict[str, Any]] = {}
    if holds_files(directory.log):
        check_segments(directory.log, directory.identity)
        report = _node.fsck(os.fspath(directory.log))
        parts = {(int(one["topic"]), int(one["partition"])): dict(one) for one in report["partitions"]}
        for damage in report["damage"]:
            place = (int(damage["topic"] or 0), int(damage["partition"] or 0))
            if place in parts:
                where = f"{damage['file']} at {damage['position']}: {damage['why']}"
                parts[place]["quarantined"] = parts[place].get("quarantined") or where
            else:
                broken = broken or f"{damage['file']} at {damage['position']}: {damage['why']}"
    hashed = None if state is None else (at, digest(state))
    found = Seen(NodeId(directory.identity.node), directory.identity.store, broken, hashed, parts)
    return found, None if state is None else (at, state)


def _metadata(directory: DataDirectory) -> tuple[str | None, int, MetadataState | None]:
    """What is broken, where it ends, and the state; None for one that cannot be read."""
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


def tell(report: dict[str, Any], *, as_json: bool) -> int:
    """The report on stdout, and the exit code: 6 if something is wrong, 9 if something is not proven."""
    if as_json:
        emit(report)
    else:
        for title, name in (("wrong", "findings"), ("not proven", "unproven")):
            if report[name]:
                rows = [[one[column] for column in COLUMNS] for one in report[name]]
                show_table(title, COLUMNS, rows, ids=("node", "partition"))
        silent = f"; nodes {', '.join(map(str, report['silent']))} not heard" if report["silent"] else ""
        click.echo(
            f"{counted(len(report['nodes']), 'node')}, {counted(report['partitions'], 'partition')}, "
            f"replicas of {report['compared']} compared{silent}"
        )
        click.echo("sound" if report["sound"] else counted(len(report["findings"]), "finding"))
    if report["findings"]:
        return Exit.DAMAGE
    return Exit.OK if report["sound"] else Exit.DEGRADED
