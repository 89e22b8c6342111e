"""What a node has written down of how far its logs reach."""

from __future__ import annotations

import struct

from ringfence.control.store import identity
from ringfence.control.store.log_ends import LogEnds
from tests.harness.processes import NodeProcess


def marked_rows(node: NodeProcess, partition: int) -> int:
    """Rows of the partition that were marked on the node, as a file beside the metadata has it."""
    entries = LogEnds(node.data, identity.read(node.data / "store.toml").store).read()
    told: dict[int, int] = {part: end for _, part, _, end in struct.iter_unpack("<QQQQ", entries)}
    return told.get(partition, 0)
