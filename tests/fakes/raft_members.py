"""Members of a Raft group over real journals in one loop, and a network that loses and doubles messages."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable
from pathlib import Path

from ringfence.control.consensus import codec, events
from ringfence.control.consensus.errors import ConsensusError
from ringfence.control.consensus.messages import ConfigurationState, Message
from ringfence.control.model.commands import InitCluster
from ringfence.control.model.ids import NodeId
from ringfence.control.runtime.raft.proposer import RaftProposer
from ringfence.control.runtime.raft.replica import Replica
from ringfence.control.store.directory import DataDirectory, open_directory
from ringfence.control.store.identity import Identity
from ringfence.control.store.journal import Journal
from ringfence.control.store.raft_store import RaftStore


class Member:
    """One replica; messages to others go through `net`."""

    def __init__(self, net: Net, directory: DataDirectory, node: int, voters: tuple[int, ...]) -> None:
        self.failures: list[Exception] = []
        self.indexes: list[int] = []
        self.store = RaftStore(directory)
        self.store.configuration = ConfigurationState(voters=voters)
        self.starts: list[str] = []
        self.proposer = RaftProposer(
            on_applied=lambda _, __, index: self.indexes.append(index),
            on_own_start=lambda: self.starts.append("own"),
            on_other_start=lambda _, __: self.starts.append("other"),
        )
        self.replica = Replica(
            self.store, node, listener=self.proposer, send=net.send, on_failed=self.failures.append
        )
        self.proposer.attach(self.replica)


class Net:
    """Delivers messages between members, but for the share that it loses or doubles."""

    def __init__(self, loss: float = 0.0) -> None:
        self.members: dict[int, Member] = {}
        self.random, self.loss = random.Random(7), loss

    def send(self, message: Message) -> None:
        for _ in range(self.random.choice((1, 1, 1, 2)) if self.loss else 1):
            if self.random.random() >= self.loss:
                data = codec.encode(message)
                asyncio.get_running_loop().call_later(0.001, self._deliver, message.to, data)

    def _deliver(self, to: int, data: bytes) -> None:
        member = self.members.get(to)
        if member is not None:
            with contextlib.suppress(ConsensusError):
                member.replica.step(events.Received(codec.decode(data)))

    async def leader(self) -> Member:
        for _ in range(1_000):
            for member in self.members.values():
                if member.replica.leads and member.proposer.applied.term == member.replica.term:
                    return member
            await asyncio.sleep(0.01)
        raise AssertionError("no node leads")


def run(root: Path, count: int, work: Callable[[Net], Awaitable[None]], *, loss: float = 0.0) -> None:
    """`count` members over journals in `root`, and an initialized cluster."""

    async def whole() -> None:
        net = Net()
        numbers = tuple(range(1, count + 1))
        first = open_directory(root / "1")
        for number in numbers:
            directory = first if number == 1 else open_directory(root / str(number))
            own = directory.identity
            same = Identity(first.identity.cluster, first.identity.history, own.store, number)
            if number > 1 and own.history != same.history:
                directory.journal.unlink()
                Journal.create(directory.journal, history=same.history)
            directory = DataDirectory(directory.root, same, directory._lock, is_new=False)
            net.members[number] = Member(net, directory, number, numbers)
        for member in net.members.values():
            member.proposer.start()
        leader = await net.leader()
        if not leader.proposer.state.cluster:
            identity = first.identity
            await leader.proposer.propose(
                InitCluster(
                    cluster=identity.cluster, history=identity.history, node=NodeId(1), store=identity.store
                )
            )
        net.loss = loss
        try:
            await asyncio.wait_for(work(net), 60)
        finally:
            net.loss = 0.0
            await asyncio.gather(*(member.proposer.close() for member in net.members.values()))
            first.close()

    asyncio.run(whole())


async def until(holds: Callable[[], bool]) -> None:
    for _ in range(1_000):
        if holds():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it did not come to hold")
