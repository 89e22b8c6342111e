"""Compare the recovered log with the metadata. Report differences; remove nothing (I16)."""

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
    """Add a repair hint to the error of damaged metadata, which refuses the start."""
    try:
        yield
    except RecordError as error:
        raise RecordError(
            f"{error}. To repair: restore the whole directory from a backup; or, in a cluster, start a new "
            "node with an empty directory and --join, and keep this directory: rows without another replica "
            "are only here",
            position=error.details.get("position", 0),
        ) from error


def holds_files(log: Path) -> bool:
    """Whether the folder `log` has files of a log. A check of a new store leaves the folder empty."""
    return log.is_dir() and any(entry.name != "lost+found" for entry in log.iterdir())


def unreadable_segments(log: Path) -> dict[str, str]:
    """Segments that recovery skips, with the reason; without it their records would only seem missing.

    Call this before the log is opened: a new segment file may replace a link of its name.
    """
    links = "is a symbolic link, and is not read: put the file itself there"
    return {
        entry.name: links if entry.is_symlink() else "is no file, and is not read"
        for entry in (sorted(log.iterdir()) if log.is_dir() else ())
        if entry.suffix == ".seg" and (entry.is_symlink() or not entry.is_file())
    }


def check_log(log: Path, last_index: int) -> None:
    """Check that the log is there if the metadata beside it has entries.

    The log's files are created before the first entry. A node with an empty log would answer a fence as if it
    had never stored a row. Its acknowledgements would no longer count (I5).

    Raises:
        StorageError: the log is lost, or its disk is not mounted.
    """
    if last_index == 0 or holds_files(log):
        return
    raise StorageError(
        f"{log} is empty, but the metadata beside it ends at entry {last_index}: the log is lost or its disk "
        "is not mounted. Mount or restore it; or, in a cluster, start a new node with an empty directory and "
        "--join. Nothing was changed"
    )


def check_age(partitions: Iterable[Mapping[str, Any]], last_index: int) -> None:
    """Check that the metadata is at least as new as the epochs in the log.

    Epochs are metadata indexes. Metadata that ends before one of them is an old copy, and would draw the same
    ids again.

    Raises:
        StorageError: the log has an epoch above `last_index`.
    """
    for recovered in partitions:
        newest = max(int(recovered["owner_epoch"]), int(recovered["fence"]))
        if newest > last_index:
            raise StorageError(
                f"the metadata ends at entry {last_index}, but partition {recovered['partition']} of topic "
                f"{recovered['topic']} was opened at {newest}: the metadata is older than the rows. Restore "
                "the newest metadata, or a log of the same age. No row was changed",
                topic=recovered["topic"],
                partition=recovered["partition"],
            )


def report_partitions(partitions: Iterable[Mapping[str, Any]], state: MetadataState, health: Health) -> None:
    """Set a reason per quarantined partition, and per partition that no topic and no tombstone lists."""
    live = {
        (number, partition.partition)
        for number, topic in state.topics.items()
        for partition in topic.layout.partitions
    }
    deleted = {
        (number, part) for number, tombstone in state.tombstones.items() for part in tombstone.partitions
    }
    for recovered in partitions:
        topic_id, partition_id = recovered["topic"], recovered["partition"]
        if recovered.get("quarantined"):
            report_quarantine(health, topic_id, partition_id, str(recovered["quarantined"]))
        if (topic_id, partition_id) not in live | deleted:
            rows = int(recovered["end_offset"]) - int(recovered["start_offset"])
            health.set_reason(
                f"unknown {topic_id} {partition_id}",
                f"data without metadata: {rows} rows of partition {partition_id} of topic {topic_id}; "
                "kept as they are",
            )


def report_quarantine(health: Health, topic: int, partition: int, why: str) -> None:
    health.set_reason(
        f"quarantined {topic} {partition}", f"partition {partition} of topic {topic} is quarantined: {why}"
    )


def report_damage(health: Health, key: tuple[int, int], records: int, why: str) -> None:
    """Report the number of damaged records on disk of `key` (topic, partition); 0 clears the reason."""
    topic, partition = key
    reason = f"damaged {topic} {partition}"
    if not records:
        health.clear_reason(reason)
        return
    whose = f"of partition {partition} of topic {topic}" if topic else "of unknown partitions"
    health.set_reason(reason, f"damaged on disk: {records} records {whose}: {why}")


def clear_quarantine(health: Health, topic: int, partition: int) -> None:
    """Clear the reason of a partition whose quarantine has ended: its records on disk are sound again."""
    health.clear_reason(f"quarantined {topic} {partition}")
