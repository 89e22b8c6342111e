"""The description of a cluster: `Client.cluster` returns it."""

from __future__ import annotations

from typing import NamedTuple


class ClusterInfo(NamedTuple):
    """The nodes of a cluster, and the topics that the client may read.

    Attributes:
        generation: index of the cluster's log that the answer is as of; of several pages, that of the first.
        nodes: addresses by node id.
        topics: ids by full name.
    """

    generation: int
    nodes: dict[int, tuple[str, ...]]
    topics: dict[str, int]
