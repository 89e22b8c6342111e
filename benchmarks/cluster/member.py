"""One member: the production control plane over its own data directory, driven by lines of JSON.

    python -m benchmarks.cluster.member DIR [--join ADDRESS]

The data plane is not started: what is measured is the metadata log. Each line on stdin is an order, each line
on stdout its answer.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ringfence.control.model.commands import InitCluster, RestartNode
from ringfence.control.model.ids import NodeId
from ringfence.control.model.node_commands import SetNode
from ringfence.control.model.results import NodeRestarted
from ringfence.control.runtime.cluster import Cluster, HeartbeatCalls, build_log
from ringfence.control.runtime.control_server import ControlServer, Question, refusal_of
from ringfence.control.runtime.handlers.member_questions import MemberQuestions
from ringfence.control.runtime.membership.joining import join
from ringfence.control.runtime.membership.own_start import OwnStart
from ringfence.control.runtime.process import logs
from ringfence.control.runtime.process.health import Health
from ringfence.control.runtime.process.settings import Settings
from ringfence.control.runtime.process.start_gate import StartGate, starting
from ringfence.control.runtime.rpc import messages
from ringfence.control.state_machines.reassignment.messages import ReassignmentAnswer, ReassignmentOrder
from ringfence.control.store.directory import JoiningDirectory, open_directory, open_or_join
from ringfence.control.store.raft_store import RaftStore
from ringfence.control.transport.envelope import Envelope
from ringfence.control.transport.hub import Hub


class NoPartitions:
    """A node without a data plane executes no orders: they are refused as while it starts."""

    async def execute(self, _: int, __: ReassignmentOrder) -> ReassignmentAnswer:
        raise starting()

    async def execute_many(
        self, _: int, __: Sequence[ReassignmentOrder]
    ) -> tuple[ReassignmentAnswer | None, ...]:
        raise starting()


class Member:
    """Opened and started as `runtime.node_process` does it."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.hub = Hub(on_message=self._receive, on_question=self._answer)
        self._count = 0

    def _fail(self, error: Exception) -> None:
        sys.exit(f"the member failed: {error}")

    async def start(self) -> None:
        directory = (open_or_join if self.settings.join else open_directory)(self.settings.data_dir)
        peers: dict[int, tuple[str, ...]] = {}
        if isinstance(directory, JoiningDirectory):
            directory, peers = await join(self.hub, self.settings, directory)
        gate = StartGate()
        self.cluster = Cluster(
            self.settings,
            Health(),
            build_log(self.hub, OwnStart(self.hub, self._fail), self._fail),
            directory,
            RaftStore(directory),
            join_peers=peers,
            orders=NoPartitions(),
            gate=gate,
            heartbeats=HeartbeatCalls(
                counters=tuple,
                on_loads=lambda _: None,
                on_time_window=lambda *_: None,
                adopted=lambda _: (),
                on_adopted=lambda *_: None,
                lacking=tuple,
                on_lacking=lambda *_: None,
            ),
            on_failed=self._fail,
        )
        self.server = self._serve(gate)
        await self.cluster.check_joined()
        self.cluster.start()
        await self.cluster.catch_up()
        proposer, identity = self.cluster.proposer, directory.identity
        self.node = NodeId(identity.node)
        if not proposer.state.cluster:
            await proposer.propose(
                InitCluster(
                    cluster=identity.cluster, history=identity.history, node=self.node, store=identity.store
                )
            )
        restart = RestartNode(
            node=self.node,
            store=identity.store,
            addresses=("ipc://none",),
            program="benchmark",
            control=self.cluster.control,
        )
        restarted = (await proposer.propose(restart)).result
        assert isinstance(restarted, NodeRestarted), restarted
        proposer.use_session(restarted.session)

    def _serve(self, gate: StartGate) -> ControlServer:
        """Members join through this one; nothing else is asked."""
        cluster = self.cluster
        members = MemberQuestions(
            cluster.proposer, cluster.members, cluster.levels, cluster.recordings, self.settings
        )
        questions: dict[type[messages.Call], Question] = {
            messages.Join: Question(members.join, while_starting=True),
            messages.ListNodes: Question(members.list_nodes, while_starting=True),
        }
        return ControlServer(questions, gate, cluster.proposer.replica.pulse)

    def _receive(self, envelope: Envelope) -> None:
        if hasattr(self, "cluster"):
            self.cluster.peers.receive(envelope)

    async def _answer(self, envelope: Envelope) -> bytes:
        if hasattr(self, "server"):
            return await self.server.answer(envelope)
        return messages.encode(refusal_of(starting()))

    def status(self) -> dict[str, Any]:
        replica = self.cluster.proposer.replica
        return {
            "node": int(self.node),
            "control": self.cluster.control,
            "leads": replica.leads,
            "leader": replica.leader,
            "term": replica.term,
            "applied": replica.applied.index,
            "voters": replica.configuration.voters,
        }

    async def serial(self, count: int, pause_s: float) -> dict[str, Any]:
        """Commit one command after the other; how long each took, in ns."""
        took = []
        for _ in range(count):
            begin = time.perf_counter_ns()
            await self._one()
            took.append(time.perf_counter_ns() - begin)
            await asyncio.sleep(pause_s)
        return {"took_ns": took}

    async def pipelined(self, window: int, seconds: float) -> dict[str, Any]:
        """Keep `window` commands under way; how many were committed."""
        end = time.perf_counter() + seconds
        begin, cpu = time.perf_counter(), time.process_time()

        async def lane() -> int:
            count = 0
            while time.perf_counter() < end:
                await self._one()
                count += 1
            return count

        counts = await asyncio.gather(*(lane() for _ in range(window)))
        return {
            "commands": sum(counts),
            "seconds": time.perf_counter() - begin,
            "cpu_s": time.process_time() - cpu,
        }

    async def _one(self) -> None:
        """A command that changes the state each time."""
        self._count += 1
        await self.cluster.proposer.propose(SetNode(node=self.node, labels={"count": str(self._count)}))


async def run(settings: Settings) -> None:
    member = Member(settings)
    await member.start()
    loop = asyncio.get_running_loop()
    lines = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    print(json.dumps(member.status()), flush=True)
    while line := await lines.readline():
        order = json.loads(line)
        what = order.pop("do")
        answer = member.status() if what == "status" else await getattr(member, what)(**order)
        print(json.dumps(answer), flush=True)
    await member.cluster.close()
    member.hub.close()


def main() -> None:
    data, join = Path(sys.argv[1]), tuple(sys.argv[3:4])
    logs.configure("json", "warning")
    asyncio.run(run(Settings(data_dir=data, control="tcp://127.0.0.1:0", join=join)))


if __name__ == "__main__":
    main()
