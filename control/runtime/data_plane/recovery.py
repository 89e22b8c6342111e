"""What the log on disk holds, compared with what the metadata says. Reports; removes nothing (I16)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ringfence.control.model.state import MetadataState
from ringfence.control.runtime.process.health import Health
from ringfence.native.errors import RecordError, StorageError


@contextmanager
def with_repair_hint() -> Iterator[None]:
    """Damaged metadata refuses the start; whoever reads why also reads what to do."""
    try:
        yield
    except RecordError as error:
        raise RecordError(
            f"{error}. To repair: restore the whole directory from a backup; or, in a cluster, start with an "
            "empty directory and --join, as a new node, and keep this directory: rows that have no other "
            "replica are only here",
            position=error.details.get("position", 0),
        ) from error


def holds_files(log: Path) -> bool:
    """Whether a log was ever made there. Who only checks leaves such a folder empty."""
    return log.is_dir() and any(entry.name != "lost+found" for entry in log.iterdir())


def unread(log: Path) -> dict[str, str]:
    """Segments that recovery passes over, and why: their records would only be said to be missing.

    To be asked before the log is opened: a new file may take the name of a link.
    """
    links = "is a symbolic link, and is not read: put the file itself there"
    return {
        entry.name: links if entry.is_symlink() else "is no file, and is not read"
        for entry in (sorted(log.iterdir()) if log.is_dir() else ())
        if entry.suffix == ".seg" and (entry.is_symlink() or not entry.is_file())
    }


def check_log(log: Path, last_index: int) -> None:
    """StorageError when metadata was written beside a log that is gone: lost, or its disk is not mounted.

    The log's files are made before the first entry. A node that came back with an empty log would answer a
    fence as one that never had a row, and its acknowledgements would be counted no more (I5).
    """
    if last_index == 0 or holds_files(log):
        return
    raise StorageError(
        f"{log} holds nothing, but the metadata beside it ends at entry {last_index}: the log is lost or its "
        "disk is not mounted. Mount or restore it; or, in a cluster, start with an empty directory and "
        "--join, as a new node. Nothing was changed"
    )


def check_age(partitions: Iterable[Mapping[str, Any]], last_index: int) -> None:
    """StorageError when the log knows epochs that the metadata has not drawn yet.

    Epochs are indexes: metadata that ends before one of them is an old copy, and would draw the same ids
    again.
    """
    for known in partitions:
        newest = max(int(known["owner_epoch"]), int(known["fence"]))
        if newest > last_index:
            raise StorageError(
                f"the metadata ends at entry {last_index}, but partition {known['partition']} of topic "
                f"{known['topic']} was opened at {newest}: the metadata is older than the rows. Restore the "
                "newest metadata, or the log of the same age. No row was changed",
                topic=known["topic"],
                partition=known["partition"],
            )


def report(partitions: Iterable[Mapping[str, Any]], state: MetadataState, health: Health) -> None:
    """Reasons for partitions that are damaged, or that no topic and no tombstone claims."""
    claimed = {
        (number, partition.partition)
        for number, topic in state.topics.items()
        for partition in topic.layout.partitions
    }
    buried = {
        (number, part) for number, tombstone in state.tombstones.items() for part in tombstone.partitions
    }
    for known in partitions:
        place = (known["topic"], known["partition"])
        if known.get("quarantined"):
            quarantined(health, place[0], place[1], str(known["quarantined"]))
        if place not in claimed | buried:
            rows = int(known["end_offset"]) - int(known["start_offset"])
            health.set_reason(
                f"unknown {place}",
                f"data without metadata: {rows} rows of partition {place[1]} of topic {place[0]}; "
                "kept as they are",
            )


def quarantined(health: Health, topic: int, partition: int, why: str) -> None:
    health.set_reason(
        f"quarantined {topic} {partition}", f"partition {partition} of topic {topic} is quarantined: {why}"
    )


def damaged(health: Health, place: tuple[int, int], records: int, why: str) -> None:
    """So many records of (topic, partition) are known to be damaged on disk now; 0 ends the reason."""
    key = f"damaged {place[0]} {place[1]}"
    if not records:
        health.clear_reason(key)
        return
    whose = f"of partition {place[1]} of topic {place[0]}" if place[0] else "that cannot be told apart"
    health.set_reason(key, f"damaged on disk: {records} records {whose}: {why}")


def lifted(health: Health, topic: int, partition: int) -> None:
    """The partition is sound on disk and may be served: its quarantine ended."""
    health.clear_reason(f"quarantined {topic} {partition}")
