"""Format values as text for traces, debugging and scripts, as etcd's interaction scripts do."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from ringfence.control.consensus.configuration import Configuration
from ringfence.control.consensus.configuration_changes import Change, Operation, Transition, from_entry
from ringfence.control.consensus.core import Core, Role
from ringfence.control.consensus.messages import (
    APPEND_THREAD,
    APPLY_THREAD,
    NOBODY,
    ConfigurationState,
    Entry,
    EntryType,
    HardState,
    Message,
    MessageType,
    Snapshot,
    StorageMessage,
)
from ringfence.control.consensus.progress import Progress, ProgressState
from ringfence.control.consensus.quoting import quoted

_TYPES: Final = {
    MessageType.HUP: "MsgHup",
    MessageType.BEAT: "MsgBeat",
    MessageType.PROPOSE: "MsgProp",
    MessageType.APPEND: "MsgApp",
    MessageType.APPEND_ANSWER: "MsgAppResp",
    MessageType.VOTE: "MsgVote",
    MessageType.VOTE_ANSWER: "MsgVoteResp",
    MessageType.SNAPSHOT: "MsgSnap",
    MessageType.HEARTBEAT: "MsgHeartbeat",
    MessageType.HEARTBEAT_ANSWER: "MsgHeartbeatResp",
    MessageType.UNREACHABLE: "MsgUnreachable",
    MessageType.SNAPSHOT_STATUS: "MsgSnapStatus",
    MessageType.CHECK_QUORUM: "MsgCheckQuorum",
    MessageType.TRANSFER: "MsgTransferLeader",
    MessageType.TIMEOUT_NOW: "MsgTimeoutNow",
    MessageType.READ_INDEX: "MsgReadIndex",
    MessageType.READ_INDEX_ANSWER: "MsgReadIndexResp",
    MessageType.PRE_VOTE: "MsgPreVote",
    MessageType.PRE_VOTE_ANSWER: "MsgPreVoteResp",
    MessageType.STORAGE_APPEND: "MsgStorageAppend",
    MessageType.STORAGE_APPEND_ANSWER: "MsgStorageAppendResp",
    MessageType.STORAGE_APPLY: "MsgStorageApply",
    MessageType.STORAGE_APPLY_ANSWER: "MsgStorageApplyResp",
    MessageType.FORGET_LEADER: "MsgForgetLeader",
}
_ROLES: Final = {
    Role.FOLLOWER: "StateFollower",
    Role.CANDIDATE: "StateCandidate",
    Role.LEADER: "StateLeader",
    Role.PRE_CANDIDATE: "StatePreCandidate",
}
_PROGRESS: Final = {
    ProgressState.PROBE: "StateProbe",
    ProgressState.REPLICATE: "StateReplicate",
    ProgressState.SNAPSHOT: "StateSnapshot",
}
_ENTRIES: Final = {
    EntryType.NORMAL: "EntryNormal",
    EntryType.CHANGE_V1: "EntryConfChange",
    EntryType.CHANGE: "EntryConfChangeV2",
}
_LETTERS: Final = {Operation.VOTER: "v", Operation.LEARNER: "l", Operation.REMOVE: "r", Operation.UPDATE: "u"}
_OPERATIONS: Final = {
    Operation.VOTER: "ConfChangeAddNode",
    Operation.REMOVE: "ConfChangeRemoveNode",
    Operation.UPDATE: "ConfChangeUpdateNode",
    Operation.LEARNER: "ConfChangeAddLearnerNode",
}
_TRANSITIONS: Final = {
    Transition.AUTO: "ConfChangeTransitionAuto",
    Transition.JOINT_IMPLICIT: "ConfChangeTransitionJointImplicit",
    Transition.JOINT_EXPLICIT: "ConfChangeTransitionJointExplicit",
}
_THREADS: Final = {NOBODY: "None", APPEND_THREAD: "AppendThread", APPLY_THREAD: "ApplyThread"}
# Message types by name in scripts.
TYPE_NAMES: Final = {name: kind for kind, name in _TYPES.items()}


def type_of(kind: MessageType) -> str:
    return _TYPES[kind]


def role(of: Role) -> str:
    return _ROLES[of]


def soft_state(lead: int, of: Role) -> str:
    return f"Lead:{lead} State:{_ROLES[of]}"


def hard_state(state: HardState) -> str:
    vote = f" Vote:{state.vote}" if state.vote else ""
    return f"Term:{state.term}{vote} Commit:{state.commit}"


def configuration_state(state: ConfigurationState) -> str:
    return (
        f"Voters:{_listed(state.voters)} VotersOutgoing:{_listed(state.voters_outgoing)} "
        f"Learners:{_listed(state.learners)} LearnersNext:{_listed(state.learners_next)} "
        f"AutoLeave:{str(state.auto_leave).lower()}"
    )


def snapshot(of: Snapshot) -> str:
    return f"Index:{of.index} Term:{of.term} ConfState:{configuration_state(of.configuration)}"


def operations(change: Change) -> str:
    return " ".join(f"{_LETTERS[each.operation]}{each.node}" for each in change.operations)


def change(of: Change) -> str:
    parts = [f"transition:{_TRANSITIONS[of.transition]}"]
    parts += [f"changes:{{type:{_OPERATIONS[c.operation]} node_id:{c.node}}}" for c in of.operations]
    return " ".join(parts)


def entry(of: Entry) -> str:
    payload = quoted(of.data) if of.type is EntryType.NORMAL else operations(from_entry(of))
    return f"{of.term}/{of.index} {_ENTRIES[of.type]}{' ' if payload else ''}{payload}"


def message(of: Message, indent: str = "") -> str:
    """One line, or several with entries, snapshot and responses; without a final newline."""
    text = f"{indent}{_node(of.sender)}->{_node(of.to)} {_TYPES[of.type]} Term:{of.term} "
    text += f"Log:{of.log_term}/{of.index}"
    if of.reject:
        text += f" Rejected (Hint: {of.reject_hint})"
    if of.commit:
        text += f" Commit:{of.commit}"
    if of.vote:
        text += f" Vote:{of.vote}"
    if len(of.entries) == 1:
        text += f" Entries:[{entry(of.entries[0])}]"
    elif of.entries:
        text += " Entries:[" + "".join(f"\n{indent}  {entry(each)}" for each in of.entries) + f"\n{indent}]"
    if of.snapshot is not None and of.snapshot.index:
        text += f"\n{indent}  Snapshot: {snapshot(of.snapshot)}"
    if isinstance(of, StorageMessage) and of.responses:
        text += " Responses:["
        text += "".join(f"\n{message(each, indent + '  ')}" for each in of.responses) + f"\n{indent}]"
    return text


def configuration(of: Configuration) -> str:
    text = f"voters={_ids(of.incoming)}"
    if of.outgoing:
        text += f"&&{_ids(of.outgoing)}"
    if of.learners:
        text += f" learners={_ids(of.learners)}"
    if of.learners_next:
        text += f" learners_next={_ids(of.learners_next)}"
    return text + (" autoleave" if of.auto_leave else "")


def progress(of: Progress) -> str:
    text = f"{_PROGRESS[of.state]} match={of.match} next={of.next}"
    if of.is_learner:
        text += " learner"
    if of.is_paused():
        text += " paused"
    if of.pending_snapshot:
        text += f" pendingSnap={of.pending_snapshot}"
    if not of.recent_active:
        text += " inactive"
    if len(of.window):
        text += f" inflight={len(of.window)}{'[full]' if of.window.full() else ''}"
    return text


def progress_map(of: dict[int, Progress]) -> str:
    return "".join(f"{member}: {progress(of[member])}\n" for member in sorted(of))


def node_line(core: Core) -> str:
    """A node's state in one line: id, role, voter or not, term, leader."""
    voter = "Voter" if core.id in core.tracker.configuration.voters else "Non-Voter"
    return f"{core.id}: {_ROLES[core.role]} ({voter}) Term:{core.term} Lead:{core.lead}"


def _node(node: int) -> str:
    return _THREADS.get(node) or f"{node:x}"


def _ids(ids: Iterable[int]) -> str:
    return f"({' '.join(f'{each:x}' for each in sorted(ids))})"


def _listed(ids: Sequence[int]) -> str:
    return f"[{' '.join(map(str, ids))}]"
