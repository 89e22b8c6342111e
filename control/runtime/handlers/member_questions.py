"""Answer questions about members, levels and consensus. These are answered while the node starts, too."""

from __future__ import annotations

from ringfence.control.model.node_commands import RegisterNode
from ringfence.control.model.nodes import WEIGHT_DEFAULT
from ringfence.control.model.results import NodeRegistered
from ringfence.control.runtime.handlers import views
from ringfence.control.runtime.handlers.cluster_levels import ClusterLevels
from ringfence.control.runtime.membership.members import Members
from ringfence.control.runtime.process.errors import RequestRefused
from ringfence.control.runtime.process.settings import Settings
from ringfence.control.runtime.process.start_gate import starting
from ringfence.control.runtime.raft.proposer import RaftProposer
from ringfence.control.runtime.raft.recordings import Recordings
from ringfence.control.runtime.rpc import messages
from ringfence.native.wire import Code


def limits_fault(call: messages.Join, settings: Settings, node: int) -> str:
    """Check the size limits of a joining store against those of `node`, which has `settings`; "": they fit.

    Each node must have room for every body that the other accepts from clients. A larger body could never be
    copied to a replica or a move's target, and its partition would wait forever. Limits may differ otherwise.
    """
    if not call.stored_bytes:
        return ""
    if call.stored_bytes < settings.body_bytes_max:
        return (
            f"node {node} accepts bodies of up to {settings.body_bytes_max} bytes, this node has room for "
            f"{call.stored_bytes}: a partition with larger bodies could not have a replica here. Start this "
            f"node with budget_bytes={settings.budget_bytes} and segment_bytes={settings.segment_bytes}, or "
            "first start the other nodes with a smaller message_bytes"
        )
    if settings.stored_bytes_max < call.body_bytes:
        return (
            f"this node would accept bodies of up to {call.body_bytes} bytes, node {node} has room for "
            f"{settings.stored_bytes_max}: a partition with larger bodies could not have a replica there. "
            f"Start this node with message_bytes={settings.body_bytes_max}"
        )
    return ""


class MemberQuestions:
    """The handlers of one node; they raise RequestRefused."""

    def __init__(
        self,
        proposer: RaftProposer,
        members: Members,
        levels: ClusterLevels,
        recordings: Recordings,
        settings: Settings,
    ) -> None:
        self._proposer, self._members, self._levels = proposer, members, levels
        self._recordings, self._settings = recordings, settings

    async def join(self, call: messages.Join) -> messages.Joined:
        state = self._proposer.state
        if not state.cluster:
            raise starting(retry_after_ms=200)
        fault = limits_fault(call, self._settings, self._proposer.replica.id)
        if fault:
            raise RequestRefused(Code.INVALID_ARGUMENT, fault)
        command = RegisterNode(
            cluster=state.cluster,
            store=call.store,
            control=call.control,
            addresses=call.addresses,
            zone=call.zone,
            weight=call.weight or WEIGHT_DEFAULT,
            program=call.program,
            level=call.level,
        )
        registered = (await self._proposer.propose(command)).result
        assert isinstance(registered, NodeRegistered), registered
        return messages.Joined(
            cluster=state.cluster,
            history=state.history,
            node=registered.node,
            peers={int(number): node.control for number, node in state.nodes.items() if node.control},
            level=state.level,
        )

    async def list_nodes(self, _: messages.ListNodes) -> messages.Nodes:
        replica, state = self._proposer.replica, self._proposer.state
        infos = views.nodes(state, replica.leader, replica.configuration)
        index, digest = self._members.digest
        return messages.Nodes(
            cluster=state.cluster,
            node=replica.id,
            leader=replica.leader,
            term=replica.term,
            index=index,
            hash=digest.hex(),
            nodes=infos,
        )

    async def save_recording(self, _: messages.SaveRecording) -> messages.RecordingSaved:
        path = self._recordings.save(self._proposer.replica.recording("requested by an operator"))
        return messages.RecordingSaved(path=str(path))

    async def show_versions(self, _: messages.ShowVersions) -> messages.Document:
        return messages.Document(value=self._levels.here())

    async def promise_level(self, call: messages.PromiseLevel) -> messages.Done:
        await self._levels.promise(call.level)
        return messages.Done()
