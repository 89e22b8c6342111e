"""What the headers of a partition's batches have in common, packed once instead of a batch (1 us)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringfence.common.codec import request_header
from ringfence.native import wire

if TYPE_CHECKING:
    from ringfence.common.routing import Layout
    from ringfence.common.send_effects import Identity


class PublishHeaders:
    """Headers of one layout and one identity; others begin anew."""

    def __init__(self) -> None:
        self._layout: Layout | None = None
        self._identity: Identity | None = None
        self._kept: dict[int, bytes] = {}

    def of(self, layout: Layout, identity: Identity, partition: int) -> bytes:
        """For `Connection.publish`."""
        if self._layout is not layout or self._identity is not identity:
            self._layout, self._identity = layout, identity
            self._kept.clear()
        kept = self._kept.get(partition)
        if kept is None:
            entry = layout.partitions.get(partition)
            header = request_header(
                wire.Opcode.PUBLISH,
                0,
                topic=layout.topic,
                partition=partition,
                layout_version=layout.version,
                owner_epoch=entry.epoch if entry is not None else 0,
                producer_id=identity.producer_id,
                producer_epoch=identity.producer_epoch,
            )
            kept = self._kept[partition] = bytes(header)
        return kept
