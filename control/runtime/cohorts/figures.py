"""Gather figures of gates from the nodes that own them."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import Final

from ringfence.control.model.cohorts import CohortId
from ringfence.control.model.ids import NodeId, PartitionId, TopicId
from ringfence.control.model.topics import Topic
from ringfence.control.runtime.cohorts.engine import CohortEngine, GateKey
from ringfence.control.runtime.process.errors import RequestRefused
from ringfence.control.runtime.rpc.client import PeerClient
from ringfence.control.runtime.rpc.cohort_messages import (
    COHORTS_MAX,
    GateFigures,
    GateFiguresOf,
    GateFiguresTold,
)
from ringfence.control.state_machines.metadata.cohort_lineage import heir

TIMEOUT_S: Final = 1.0


def gate_owners(topic: Topic) -> dict[PartitionId, NodeId]:
    """The node that owns the gates of each partition."""
    parts = topic.layout.by_id()
    return {number: topic.assignments[heir(parts, number)].owner.node for number in parts}


class GateFigureReader:
    """The reader of one node."""

    def __init__(self, peer_client: PeerClient, engine: CohortEngine, here: NodeId) -> None:
        self._peer_client, self._engine, self._here = peer_client, engine, here

    def here(self, call: GateFiguresOf) -> GateFiguresTold:
        """Figures of gates of this node."""
        cohorts = [CohortId(number) for number in call.cohorts]
        return GateFiguresTold(gates=self._engine.figures(TopicId(call.topic), cohorts))

    async def gather(self, topic: Topic, cohorts: Collection[CohortId]) -> Mapping[GateKey, GateFigures]:
        """Figures of the gates of these cohorts. Gates whose owners do not answer are left out."""
        owners = gate_owners(topic)
        owned = defaultdict[NodeId, set[PartitionId]](set)
        for number, node in owners.items():
            owned[node].add(number)
        call = GateFiguresOf(topic=topic.topic, cohorts=tuple(sorted(cohorts))[:COHORTS_MAX])
        answers = await asyncio.gather(*(self._ask(node, call) for node in owned))
        return {
            (CohortId(gate.cohort), PartitionId(gate.partition)): gate
            for node, gates in zip(owned, answers, strict=True)
            for gate in gates
            # What a former owner still has is no figure of the gate.
            if gate.partition in owned[node]
        }

    async def _ask(self, node: NodeId, call: GateFiguresOf) -> tuple[GateFigures, ...]:
        if node == self._here:
            return self.here(call).gates
        try:
            reply = await self._peer_client.ask(node, call, TIMEOUT_S)
        except RequestRefused:
            return ()
        return reply.gates if isinstance(reply, GateFiguresTold) else ()
