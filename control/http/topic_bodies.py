"""Build the bodies of topics: one topic with its figures, and pages of topics."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from ringfence.control.http import openapi_bodies
from ringfence.control.model.counts import known_figures, totals
from ringfence.control.model.ids import PartitionId
from ringfence.control.model.topics import Assignment, Topic
from ringfence.control.runtime.handlers.topic_plans import TopicPlans
from ringfence.native import messages

# Bytes of a page after which the next topic goes to the next page. The command line takes four times as many.
PAGE_BYTES: Final = 16 << 20
# Bytes that are encoded before the event loop runs again: a few milliseconds.
TURN_BYTES: Final = 1 << 18


def topic_summary(topic: Topic) -> openapi_bodies.TopicSummary:
    return openapi_bodies.TopicSummary(
        topic=topic.topic,
        name=topic.name,
        version=topic.layout.version,
        partitions=len(topic.layout.partitions),
        replication=topic.replication,
        key=list(topic.key),
        schemas=len(topic.schemas),
        retention_bytes=topic.retention_bytes,
        retention_ms=topic.retention_ms,
        properties=dict(topic.properties),
    )


def topic_shown(topic: Topic, info: messages.TopicInfo, lags: dict[int, int]) -> openapi_bodies.TopicShown:
    """The topic with figures. `lags`: records that the slowest replica lacks, by partition."""
    counts = totals(info)
    return openapi_bodies.TopicShown(
        **topic_summary(topic).model_dump(),
        columns=[
            openapi_bodies.ColumnShown(name=column.name, type=column.type, nullable=column.nullable)
            for column in topic.schemas[-1].columns
        ],
        stats=[
            openapi_bodies.PartitionStats(
                **known_figures(part),
                replicas=_nodes(topic.assignments[PartitionId(part.partition)]),
                lag_records=lags.get(part.partition),
            )
            for part in info.partitions
        ],
        rows=counts["rows"],
        bytes=counts["bytes"],
    )


async def page_with_stats(requests: TopicPlans, topics: Sequence[Topic], limit: int) -> bytes:
    """A `TopicsShown` as JSON: at most `limit` topics, and at least one, however large it is.

    Encoded topic by topic, so that consensus runs meanwhile: 20,000 partitions take a quarter of a second.
    """
    stats = await requests.hosted()
    encoded: list[bytes] = []
    size = turn = 0
    for topic in topics[:limit]:
        body = topic_shown(topic, *requests.shown_with(topic, stats)).model_dump_json().encode()
        size, turn = size + len(body), turn + len(body)
        if encoded and size > PAGE_BYTES:
            break
        encoded.append(body)
        if turn > TURN_BYTES:
            turn = 0
            await asyncio.sleep(0)
    more = b"true" if len(encoded) < len(topics) else b"false"
    return b'{"topics":[%b],"more":%b}' % (b",".join(encoded), more)


def _nodes(assignment: Assignment) -> list[int]:
    """The nodes of the replicas, the owner first."""
    owner = int(assignment.owner.node)
    return [owner, *sorted(int(replica.node) for replica in assignment.replicas if replica.node != owner)]
