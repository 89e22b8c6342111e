"""Figures of partitions for people and programs: an unknown figure is null, never 0."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from ringfence.native.messages import PartitionStats, TopicInfo

FIGURES: Final = ("start_offset", "end_offset", "bytes")


def known_figures(part: PartitionStats) -> dict[str, Any]:
    """All fields of a partition; its figures are None if they are unknown."""
    fields = {name: getattr(part, name) for name in part.__struct_fields__}
    return fields if part.unknown is None else {**fields, **dict.fromkeys(FIGURES)}


def totals(info: TopicInfo) -> dict[str, int | None]:
    """Rows and bytes of a topic; None if those of any partition are unknown."""
    if any(part.unknown is not None for part in info.partitions):
        return {"rows": None, "bytes": None}
    return {
        "rows": sum(part.end_offset - part.start_offset for part in info.partitions),
        "bytes": sum(part.bytes for part in info.partitions),
    }
