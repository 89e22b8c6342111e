"""Build the parts of cohorts of one node. Nothing is started here."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from ringfence.control.model.cohorts import CohortId, MemberSession
from ringfence.control.model.ids import NodeId, PartitionId
from ringfence.control.model.state import MetadataState
from ringfence.control.model.topics import Replica
from ringfence.control.runtime.cohorts.engine import CohortEngine
from ringfence.control.runtime.cohorts.figures import GateFigureReader, gate_owners
from ringfence.control.runtime.cohorts.heard import HeardSessions
from ringfence.control.runtime.cohorts.leader import CohortLeader
from ringfence.control.runtime.cohorts.parked import ParkedGates
from ringfence.control.runtime.cohorts.pushes import AssignPushes
from ringfence.control.runtime.cohorts.told import GateWords, OnWords
from ringfence.control.runtime.data_plane.native_node import NativeNode
from ringfence.control.runtime.process.errors import RequestRefused
from ringfence.control.runtime.raft.proposer import RaftProposer
from ringfence.control.runtime.rpc.client import PeerClient
from ringfence.control.runtime.rpc.cohort_messages import (
    GateFigures,
    MembersOf,
    MembersTold,
    PresenceOf,
    PresenceTold,
)
from ringfence.control.state_machines.cohorts.gates import DrainedWords
from ringfence.control.state_machines.cohorts.liveness import Presence

# Wait for the leader's word about members, in seconds.
ASK_S = 1.0


@dataclass(frozen=True, slots=True)
class CohortParts:
    """The parts of one node. `leader` runs on every node, and works on the one that leads."""

    proposer: RaftProposer
    peer_client: PeerClient
    here: NodeId
    engine: CohortEngine
    leader: CohortLeader
    heard: HeardSessions
    words: GateWords
    pushes: AssignPushes
    figures: GateFigureReader
    parked: ParkedGates

    def start(self) -> None:
        """Start what the leader does; every node may become the leader before it serves."""
        self.leader.start()

    def serve(self) -> None:
        """Start what needs this node's own start: its gates are opened by now."""
        self.heard.start()
        self.words.start()

    async def close(self) -> None:
        await self.words.close()
        await self.heard.close()
        await self.leader.close()

    def applied(self, state: MetadataState) -> None:
        """An entry was applied that changed the state."""
        self.leader.applied(state)
        if state.cohorts:
            self.words.wake()

    def installed(self, state: MetadataState, cohorts: Collection[CohortId]) -> None:
        """The engine has the rules of these cohorts as of `state`."""
        self.pushes.installed(state, cohorts)

    def own_figures(self, state: MetadataState) -> dict[CohortId, list[GateFigures]]:
        """Figures of the gates that this node owns, by cohort."""
        found: dict[CohortId, list[GateFigures]] = {}
        for number, topic in state.topics.items():
            cohorts = list(state.cohort_names.get(number, {}).values())
            if cohorts:
                owners = gate_owners(topic)
                for gate in self.engine.figures(number, cohorts):
                    if owners.get(PartitionId(gate.partition)) == self.here:
                        found.setdefault(CohortId(gate.cohort), []).append(gate)
        return found

    async def presence(self, session: MemberSession) -> Presence:
        """Whether the process of a session is there, as the leader knows; UNKNOWN without its answer."""
        leader = self.proposer.replica.leader
        if leader == self.here:
            return self.leader.presence(session)
        if not leader:
            return Presence.UNKNOWN
        try:
            reply = await self.peer_client.ask(NodeId(leader), PresenceOf(session=session), ASK_S)
        except RequestRefused:
            return Presence.UNKNOWN
        words = {presence.name.lower(): presence for presence in Presence}
        return (
            words.get(reply.presence, Presence.UNKNOWN)
            if isinstance(reply, PresenceTold)
            else Presence.UNKNOWN
        )

    async def connected(self, cohort: CohortId) -> MembersTold:
        """Connected members of a cohort, as the leader knows."""
        leader = self.proposer.replica.leader
        if leader == self.here:
            return self.leader.connected(cohort)
        if not leader:
            return MembersTold(is_leader=False)
        try:
            reply = await self.peer_client.ask(NodeId(leader), MembersOf(cohort=cohort), ASK_S)
        except RequestRefused:
            return MembersTold(is_leader=False)
        return reply if isinstance(reply, MembersTold) else MembersTold(is_leader=False)


def build(
    proposer: RaftProposer,
    peer_client: PeerClient,
    engine: CohortEngine,
    native_node: NativeNode,
    here: Replica,
    grace_ms: int,
    words: DrainedWords,
    on_words: OnWords,
) -> CohortParts:
    """`words` are those with which rules are derived; `on_words` gets cohorts of which owners told more."""
    leader = CohortLeader(proposer, grace_ms)
    return CohortParts(
        proposer,
        peer_client,
        here.node,
        engine,
        leader,
        HeardSessions(proposer, peer_client, engine, leader, here.node, grace_ms),
        GateWords(proposer, peer_client, engine, leader, here, words, on_words),
        AssignPushes(engine),
        GateFigureReader(peer_client, engine, here.node),
        ParkedGates(proposer, native_node, engine),
    )
