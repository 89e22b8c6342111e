"""Where the watch listens: around the product's own methods, without changing what they do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from ringfence.control.consensus.raft_node import Node as Consensus
from ringfence.control.runtime import node_process as runtime_node
from ringfence.control.runtime.membership import beats
from ringfence.control.runtime.membership.members import Members
from ringfence.control.runtime.raft import replica as runtime_replica
from ringfence.control.runtime.raft.proposer import RaftProposer
from ringfence.control.runtime.raft.replica import Replica
from ringfence.control.runtime.rpc.peers import Peers
from tests.sim.world import current

Places = list[tuple[Any, str, Any]]


@contextmanager
def observed() -> Iterator[None]:
    """In this block every simulated node is watched. Planted bugs must be in place before."""
    with ExitStack() as stack:
        for place, name, value in [*_consensus(), *_members(), *_metadata()]:
            stack.enter_context(patch.object(place, name, value))
        yield


def _consensus() -> Places:
    step, change, send = Consensus.step, Consensus.apply_change, Peers.send_message
    make_store = vars(runtime_node)["RaftStore"]

    def observed_step(self: Consensus, event: Any) -> None:
        current.machine().world.watch.stepped(self, step, event)

    def observed_change(self: Consensus, what: Any) -> Any:
        return current.machine().world.watch.stepped(self, change, what)

    def observed_send(self: Peers, message: Any) -> None:
        machine = current.machine()
        machine.world.watch.sends(machine, message)
        send(self, message)

    def observed_store(*args: Any, **given: Any) -> Any:
        store = make_store(*args, **given)
        machine = current.machine()
        machine.world.watch.opened(machine, store)
        return store

    return [
        (Consensus, "step", observed_step),
        (Consensus, "apply_change", observed_change),
        (Peers, "send_message", observed_send),
        (runtime_node, "RaftStore", observed_store),
    ]


def _members() -> Places:
    beat, propose = Members.beat, Members._propose

    def observed_beat(self: Members, sender: int, body: bytes) -> None:
        machine = current.machine()
        machine.world.watch.heard_beat(machine, sender, beats.decode(body))
        beat(self, sender, body)

    def observed_propose(self: Members, command: Any) -> None:
        machine = current.machine()
        machine.world.watch.decides(machine, command)
        propose(self, command)

    return [(Members, "beat", observed_beat), (Members, "_propose", observed_propose)]


def _metadata() -> Places:
    read_ready, submit = RaftProposer.read_ready, RaftProposer._submit
    apply_batch, apply = Replica._apply, vars(runtime_replica)["apply"]

    async def observed_submit(self: RaftProposer, wanted: Any) -> Any:
        current.machine().world.proposes(current.machine(), wanted.command)
        applied = await submit(self, wanted)
        current.machine().world.watch.answers(wanted.command, applied)
        return applied

    def observed_read_ready(self: RaftProposer, read: Any) -> None:
        current.machine().world.watch.answers_read(read.context, read.index)
        read_ready(self, read)

    def observed_batch(self: Replica, entries: Any) -> None:
        machine = current.machine()
        machine.world.watch.will_apply(machine, self.id, entries)
        apply_batch(self, entries)

    def observed_apply(state: Any, entry: Any) -> Any:
        after, result = apply(state, entry)
        current.machine().world.watch.applied(state, entry, after, result)
        return after, result

    return [
        (RaftProposer, "read_ready", observed_read_ready),
        (RaftProposer, "_submit", observed_submit),
        (Replica, "_apply", observed_batch),
        (runtime_replica, "apply", observed_apply),
    ]
