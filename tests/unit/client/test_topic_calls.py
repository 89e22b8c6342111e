"""One request without a topic: the nodes, and the topics that the client may read."""

from __future__ import annotations

import asyncio

import pytest

import ringfence
import ringfence.aio
from ringfence import ClusterInfo
from ringfence.native import messages, wire
from ringfence.native.wire import Opcode
from tests.fakes.client_topic import SCHEMA, node_with_topic
from tests.fakes.socket_node import FakeNode


class ListingNode(FakeNode):
    """Lists its cluster, a few names of topics at a time."""

    page = 2

    def _control(self, header: wire.RequestHeader, body: bytes) -> list[bytes]:
        if header.opcode != Opcode.TOPIC_LIST:
            return super()._control(header, body)
        request = messages.decode(messages.TopicList, body)
        assert request.cluster is True
        matching = sorted(name for name in self.topics if name > request.after)
        names = [(self.topics[name].topic, name) for name in matching[: self.page]]
        nodes = [messages.NodeEntry(node=self.node, addresses=[self.address])]
        more = len(names) < len(matching)
        self.generation += 1
        return self._reply(
            header,
            messages.Topics(topics=[], more=more, names=names, nodes=nodes, generation=self.generation),
        )


def test_a_cluster_is_listed_page_by_page() -> None:
    with ListingNode() as node, ringfence.connect(node.address, timeout_s=10) as client:
        assert client.cluster() == ClusterInfo(node.generation, {1: (node.address,)}, {})
        for name in "abcde":
            client.create_topic(name, schema=SCHEMA)
        begun = node.generation
        found = client.cluster()
        assert found.topics == {name: topic.topic for name, topic in node.topics.items()}
        assert (found.generation, node.generation) == (begun + 1, begun + 3), (
            "that of the first of three pages"
        )

        async def listed() -> ClusterInfo:
            async with ringfence.aio.connect(node.address) as asynchronous:
                return await asynchronous.cluster()

        assert asyncio.run(listed()).topics == found.topics


def test_a_node_that_does_not_list_its_cluster_yet_is_told_from_an_empty_one() -> None:
    with (
        node_with_topic() as (_, client),
        pytest.raises(ringfence.RefusedError, match="upgrade it") as caught,
    ):
        client.cluster()
    assert caught.value.code is wire.Code.NOT_SUPPORTED
