"""Build the parts of layout changes of one node. Nothing is started here."""

from __future__ import annotations

from dataclasses import dataclass

from ringfence.control.model.topics import Replica
from ringfence.control.runtime.data_plane.executor import OrderExecutor
from ringfence.control.runtime.data_plane.native_node import NativeNode
from ringfence.control.runtime.layout.auto import AutoLayouts, OnDecision, loads_of_board
from ringfence.control.runtime.layout.counts import LayoutCounts
from ringfence.control.runtime.layout.engine import LayoutEngine, NativeEngine
from ringfence.control.runtime.layout.inheritance import Inheritance, SourceReader
from ringfence.control.runtime.layout.late_inheritance import LateInheritance
from ringfence.control.runtime.layout.leader import LayoutLeader
from ringfence.control.runtime.layout.order_sender import LayoutOrderSender
from ringfence.control.runtime.layout.participant import LayoutParticipant
from ringfence.control.runtime.layout.sources import SourceAnswers
from ringfence.control.runtime.layout.times import LayoutTimes
from ringfence.control.runtime.process.start_gate import StartGate
from ringfence.control.runtime.raft.proposer import RaftProposer
from ringfence.control.runtime.rpc.client import PeerClient
from ringfence.control.state_machines.metadata.drained import lagging_partitions
from ringfence.control.state_machines.rebalance.loads import LoadBoard


@dataclass(frozen=True, slots=True)
class LayoutParts:
    """The parts of one node. `leader` runs on every node, and works on the one that leads."""

    engine: LayoutEngine
    answers: SourceAnswers
    participant: LayoutParticipant
    leader: LayoutLeader
    counts: LayoutCounts
    times: LayoutTimes
    late_inheritance: LateInheritance
    auto: AutoLayouts
    sender: LayoutOrderSender

    def start(self) -> None:
        """Start what the leader does; every node may become the leader before it serves."""
        self.leader.start()
        self.auto.start()

    def serve(self) -> None:
        """Start what needs this node's own start: its partitions have their epochs now."""
        self.late_inheritance.start()

    async def close(self) -> None:
        await self.auto.close()
        await self.late_inheritance.close()
        await self.leader.close()
        await self.participant.close()


def build(
    proposer: RaftProposer,
    executor: OrderExecutor,
    native_node: NativeNode,
    peer_client: PeerClient,
    here: Replica,
    gate: StartGate,
    board: LoadBoard,
    on_decision: OnDecision,
) -> LayoutParts:
    """`gate` is open once this node has applied its own start: its log may be of an earlier time before.

    `board` has the loads from heartbeats, `on_decision` gets what the policy of automatic changes says.
    """
    engine = NativeEngine(native_node)
    answers = SourceAnswers(proposer, executor, engine, here)
    sources = SourceReader(peer_client, answers)
    inheritance = Inheritance(engine, sources)
    participant = LayoutParticipant(proposer, executor, engine, inheritance, here)
    sender = LayoutOrderSender(peer_client, participant, answers, gate)
    times = LayoutTimes()
    leader = LayoutLeader(proposer, sender.send, sender.ask_sealed, times)
    late_inheritance = LateInheritance(proposer, executor, engine, sources, here)
    auto = AutoLayouts(
        proposer,
        loads_of_board(board),
        sender.ask_sketch,
        lagging=lagging_partitions,
        on_decision=on_decision,
    )
    return LayoutParts(
        engine, answers, participant, leader, LayoutCounts(), times, late_inheritance, auto, sender
    )
