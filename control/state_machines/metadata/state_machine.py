"""Apply metadata entries one after the other, with the same result on every node.

    validate(state, command) -> Refused | None       before a proposal, and again in apply
    apply(state, entry) -> (state', result)

A refused entry returns the same state object (I15). Sessions: an entry (session, sequence) that was
applied before returns its first result and changes nothing. So a proposer that lost an answer may propose
again. Only results of applied commands are kept in the state, for sessions and for keys. A refused command
may be proposed again and is checked on the newer state. Keys of requests work alike and last longer than
their proposers: see `model.requests`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final, Protocol, get_args

from msgspec.structs import replace

from ringfence.control.model.commands import (
    ClusterCommand,
    Command,
    InitCluster,
    ProducerCommand,
    TokenCommand,
    TopicCommand,
)
from ringfence.control.model.entries import Entry, Proposal
from ringfence.control.model.ids import INDEX_MAX, Index
from ringfence.control.model.node_commands import NodeCommand, RingCommand
from ringfence.control.model.reassignment_commands import ChangeCommand
from ringfence.control.model.rebalance_commands import RebalanceCommand
from ringfence.control.model.requests import Answered, RequestKey, caller_of
from ringfence.control.model.results import Refused, Result
from ringfence.control.model.scopes import ScopeCommand
from ringfence.control.model.state import MetadataState, Session
from ringfence.control.state_machines.metadata import (
    cluster,
    nodes,
    producers,
    reassignments,
    rebalances,
    ring_commands,
    scopes,
    tokens,
    topics,
)
from ringfence.control.state_machines.metadata.config import REQUESTS_MAX, SESSION_WINDOW
from ringfence.control.state_machines.metadata.etags import condition_fault
from ringfence.control.state_machines.metadata.refusals import invalid
from ringfence.native.wire import Code


class _Rules(Protocol):
    """The module of one family of commands: checks, and the changes of the state."""

    def validate(self, state: MetadataState, command: Any) -> Refused | None: ...
    def execute(self, state: MetadataState, command: Any, index: Index) -> tuple[MetadataState, Result]: ...


_FAMILIES: Final[tuple[tuple[Any, _Rules], ...]] = (
    (ClusterCommand, cluster),
    (TopicCommand, topics),
    (ProducerCommand, producers),
    (TokenCommand, tokens),
    (NodeCommand, nodes),
    (RingCommand, ring_commands),
    (ChangeCommand, reassignments),
    (RebalanceCommand, rebalances),
    (ScopeCommand, scopes),
)
# The rules of each type of command.
_RULES: Final = {kind: rules for family, rules in _FAMILIES for kind in get_args(family)}

# From this level on, callers with the most keys lose their oldest ones; below it, the oldest key of all is
# dropped.
LEVEL_OF_SHARES: Final = 1


def apply(state: MetadataState, entry: Entry) -> tuple[MetadataState, Result]:
    """The state after `entry`, and the entry's result. Deterministic.

    Entries come in the order of their indexes, each once: the journal and consensus guarantee that.
    """
    assert 0 < entry.index <= INDEX_MAX, f"index {entry.index} is outside of 1..{INDEX_MAX}"
    proposal = entry.proposal
    answer = session_answer(state, proposal)
    if answer is None:
        answer = request_answer(state, proposal.request)
    if answer is not None:
        return state, answer
    refusal = condition_fault(state, proposal.expects) or validate(state, proposal.command)
    if refusal is not None:
        return state, refusal
    # Set the time first: values that the command begins or ends have the time of its own entry.
    changed, result = _execute(_with_time(state, proposal.time_ms), proposal.command, entry.index)
    return _with_result(changed, proposal, entry.index, result), result


def validate(state: MetadataState, command: Command) -> Refused | None:
    """The refusal of `command` in this state; None if it would be applied."""
    if not state.cluster and not isinstance(command, InitCluster):
        return invalid("the cluster is not initialized; `init_cluster` must be its first entry")
    return _RULES[type(command)].validate(state, command)


def session_answer(state: MetadataState, proposal: Proposal) -> Result | None:
    """The result of a proposal that was applied before, or the refusal of an unknown session or sequence;
    else None.
    """
    if proposal.session == 0:
        return None
    session = state.sessions.get(proposal.session)
    if session is None:
        message = f"session {proposal.session} was replaced by newer ones; open another one and propose again"
        return Refused(code=Code.FORGOTTEN, message=message)
    if proposal.sequence in session.results:
        return session.results[proposal.sequence]
    if proposal.sequence <= session.last - SESSION_WINDOW:
        message = (
            f"sequence {proposal.sequence} of session {proposal.session} is too old: the last one is "
            f"{session.last}, results are kept for {SESSION_WINDOW}"
        )
        return Refused(code=Code.TOO_OLD, message=message)
    return None


def request_answer(state: MetadataState, request: RequestKey | None) -> Result | None:
    """The result of a keyed request that was applied before, or a refusal of other content; else None."""
    answered = None if request is None else state.requests.get(request.key)
    if answered is None or request is None:
        return None
    if answered.digest == request.digest:
        return answered.result
    message = f"the key was used at index {answered.index} for a request with other content; use a new key"
    return Refused(code=Code.CONFLICT, message=message)


def _execute(state: MetadataState, command: Command, index: Index) -> tuple[MetadataState, Result]:
    return _RULES[type(command)].execute(state, command, index)


def _with_time(state: MetadataState, time_ms: int) -> MetadataState:
    """The state at the proposer's time. Proposers' clocks may differ; the state's time never decreases."""
    return replace(state, time_ms=time_ms) if time_ms > state.time_ms else state


def _keys_of_busiest_callers(requests: Mapping[str, Answered]) -> list[str]:
    """Keys of the callers that have the most: many keys of one caller do not displace those of another."""
    counts = Counter(map(caller_of, requests))
    most = max(counts.values())
    return [key for key in requests if counts[caller_of(key)] == most]


def _with_result(state: MetadataState, proposal: Proposal, index: Index, result: Result) -> MetadataState:
    """The state with the result of an entry within a session or with a key."""
    if proposal.request is not None:
        answered = Answered(digest=proposal.request.digest, index=index, result=result)
        requests = {**state.requests, proposal.request.key: answered}
        while len(requests) > REQUESTS_MAX:
            among = requests if state.level < LEVEL_OF_SHARES else _keys_of_busiest_callers(requests)
            del requests[min(among, key=lambda key: requests[key].index)]
        state = replace(state, requests=requests)
    if proposal.session == 0:
        return state
    session = state.sessions[proposal.session]
    last = max(session.last, proposal.sequence)
    kept = {sequence: old for sequence, old in session.results.items() if sequence > last - SESSION_WINDOW}
    kept[proposal.sequence] = result
    renewed = Session(last=last, used=index, results=kept)
    return replace(state, sessions={**state.sessions, proposal.session: renewed})
