"""Explain automatic splits and merges of a topic, and change the topic's settings of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ringfence.control.model.ids import NodeId
from ringfence.control.model.layout_commands import SetAutoLayout
from ringfence.control.model.topics import Topic
from ringfence.control.runtime.handlers.commands import Build, Plan
from ringfence.control.runtime.handlers.topic_plans import topic_named
from ringfence.control.runtime.layout.auto import AutoLayouts
from ringfence.control.runtime.process.errors import RequestRefused
from ringfence.control.runtime.raft.proposer import RaftProposer
from ringfence.control.runtime.rpc import messages
from ringfence.control.runtime.rpc.client import PeerClient
from ringfence.control.runtime.rpc.layout_messages import ExplainLayout
from ringfence.control.state_machines.metadata.auto_layout import settings_of
from ringfence.control.state_machines.metadata.layout_checks import closed_fault

# Timeout for the leader's answer; after it the caller gets this node's view.
SHOW_S: Final = 1.0
OFF: Final = (
    "automatic splits and merges are off: set auto_split or auto_merge of the cluster or of the topic"
)
NO_LOOK: Final = "the leader has not looked at the topic yet, or does not answer; ask again"


class LayoutAuto:
    """Reads and plans of one node. RequestRefused."""

    def __init__(self, proposer: RaftProposer, peer_client: PeerClient, auto: AutoLayouts) -> None:
        self._proposer, self._peer_client, self._auto = proposer, peer_client, auto

    async def explain(self, name: str) -> dict[str, Any]:
        """The leader's last decision; without its answer only the settings."""
        topic = await topic_named(self._proposer, name)
        leader = self._proposer.replica.leader
        if leader and leader != self._peer_client.here:
            call = ExplainLayout(topic=topic.name, here=True)
            try:
                reply = await self._peer_client.ask(NodeId(leader), call, SHOW_S)
            except RequestRefused:
                return self._shown(topic)
            if isinstance(reply, messages.Document):
                return reply.value
        return self._shown(topic)

    async def explain_here(self, name: str) -> dict[str, Any]:
        return self._shown(await topic_named(self._proposer, name))

    def planned(self, name: str, values: Mapping[str, int | None]) -> Build:
        """Plan new settings of a topic."""

        async def build() -> Plan:
            await self._proposer.read_barrier()
            closed = closed_fault(self._proposer.state, is_new=False)
            if closed is not None:
                raise RequestRefused(closed.code, closed.message)
            topic = await topic_named(self._proposer, name)
            return Plan((SetAutoLayout(topic=topic.topic, values=dict(values)),), topic=topic)

        return build

    def _shown(self, topic: Topic) -> dict[str, Any]:
        settings = settings_of(self._proposer.state, topic)
        said = self._auto.said.get(topic.topic) if settings.is_on else None
        decision = None if said is None else said.decision
        first = None if decision is None else next((c for c in decision.candidates if not c.suppressed), None)
        return {
            "topic": topic.topic,
            "name": topic.name,
            "split": settings.split,
            "merge": settings.merge,
            "at_ms": None if said is None else said.at_ms,
            "why": (NO_LOOK if settings.is_on else OFF) if decision is None else decision.why,
            "action": None if first is None else first.kind,
            "settings": {name: int(value) for name, value in settings._asdict().items()},
            "candidates": [
                {
                    "kind": one.kind,
                    "partitions": list(one.sources),
                    "bytes_s": round(one.bytes_s, 1),
                    "rows_s": round(one.rows_s, 1),
                    "for_s": one.for_ms / 1_000,
                    "suppressed": None if one.suppressed is None else str(one.suppressed),
                    "text": one.text,
                }
                for one in (() if decision is None else decision.candidates)
            ],
            "hot_keys": [found._asdict() for found in (() if decision is None else decision.hot_keys)],
        }
