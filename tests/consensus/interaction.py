"""The commands of interaction scripts, each a function of the environment and the case."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence

from ringfence.control.consensus import describe, events
from ringfence.control.consensus.configuration_changes import Change, NodeChange, Operation, Transition
from ringfence.control.consensus.errors import ConsensusError
from ringfence.control.consensus.messages import ConfigurationState, Message, MessageType, Snapshot
from ringfence.control.consensus.options import UNLIMITED, Options, ReadMode
from tests.consensus.datadriven import Argument, Case
from tests.consensus.environment import Environment, Member, ScriptError, script_text
from tests.consensus.output import LEVELS

ELECTION_TICKS = 3
_OPERATIONS = {"v": Operation.VOTER, "l": Operation.LEARNER, "r": Operation.REMOVE, "u": Operation.UPDATE}
_TRANSITIONS = {
    "auto": Transition.AUTO,
    "implicit": Transition.JOINT_IMPLICIT,
    "explicit": Transition.JOINT_EXPLICIT,
}
_READ_MODES = {"safe": ReadMode.SAFE, "lease-based": ReadMode.LEASE}
_BOOLEANS = {
    word: value
    for value, words in (
        (True, ("1", "t", "T", "true", "TRUE", "True")),
        (False, ("0", "f", "F", "false", "FALSE", "False")),
    )
    for word in words
}


def run(environment: Environment, case: Case) -> str:
    """The output of one command."""
    environment.out.take()
    error = None
    try:
        COMMANDS.get(case.command, _unknown)(environment, case)
    except ConsensusError as refused:
        error = script_text(refused)
    except ScriptError as refused:
        error = str(refused)
    text = environment.out.take()
    if error is not None:
        text = error if environment.out.quiet else text + error
    return text or "ok"


def _unknown(_environment: Environment, _case: Case) -> None:
    raise ScriptError("unknown command")


def _number(argument: Argument) -> int:
    return int(argument.values[0])


def _boolean(argument: Argument) -> bool:
    return _BOOLEANS[argument.values[0]]


def _ids(case: Case) -> list[int]:
    return [int(argument.key) for argument in case.arguments if not argument.values]


def _members(environment: Environment, case: Case) -> list[Member]:
    return [environment.member(node) for node in _ids(case)]


def _level(name: str) -> int:
    if name.upper() not in LEVELS:
        raise ScriptError(f"log levels must be either of [{' '.join(LEVELS)}]")
    return LEVELS.index(name.upper())


def _add_nodes(environment: Environment, case: Case) -> None:
    options: dict[str, object] = {}
    voters: tuple[int, ...] = ()
    learners: tuple[int, ...] = ()
    index, content = 0, b""
    for argument in case.arguments[1:]:
        key = argument.key
        if key == "voters":
            voters += tuple(map(int, argument.values))
        elif key == "learners":
            learners += tuple(map(int, argument.values))
        elif key == "index":
            index = _number(argument)
        elif key == "content":
            content = argument.values[0].encode()
        elif key == "read-only":
            if argument.values[0] not in _READ_MODES:
                raise ScriptError(f'invalid read-only option "{argument.values[0]}"')
            options["read_mode"] = _READ_MODES[argument.values[0]]
        elif key in _NUMBERS:
            options[_NUMBERS[key]] = _number(argument) or UNLIMITED
        elif key in _FLAGS:
            name, yes = _FLAGS[key]
            options[name] = _boolean(argument) is yes
    snapshot = Snapshot()
    if voters or learners or index or content:
        if index <= 1:
            raise ScriptError("index must be specified as > 1 due to bootstrap")
        snapshot = Snapshot(index, 1, ConfigurationState(voters=voters, learners=learners), content)
    for _ in range(int(case.arguments[0].key)):
        environment.add(_options(len(environment.members) + 1, options), snapshot)


_NUMBERS = {
    "inflight": "inflight_messages_max",
    "max-committed-size-per-ready": "committed_bytes_per_ready_max",
}
_FLAGS = {
    "async-storage-writes": ("async_storage_writes", True),
    "prevote": ("pre_vote", True),
    "checkquorum": ("check_quorum", True),
    "disable-conf-change-validation": ("validate_changes", False),
    "step-down-on-removal": ("step_down_on_removal", True),
}


def _options(node: int, given: dict[str, object]) -> Options:
    """The scripts' defaults: no limits, nothing that etcd's library does not do by default."""
    defaults: dict[str, object] = {
        "id": node,
        "election_ticks": ELECTION_TICKS,
        "heartbeat_ticks": 1,
        "message_bytes_max": UNLIMITED,
        "inflight_messages_max": (1 << 31) - 1,
        "inflight_bytes_max": 0,
        "uncommitted_bytes_max": UNLIMITED,
        "committed_bytes_per_ready_max": UNLIMITED,
        "pre_vote": False,
        "check_quorum": False,
        "step_down_on_removal": False,
        "campaign_after_append": False,
        "commit_by_vote": False,
        "snapshot_timeout_ticks": 0,
    }
    return Options(**{**defaults, **given})  # type: ignore[arg-type]  # names and types are those of the tables


def _campaign(environment: Environment, case: Case) -> None:
    for member in _members(environment, case):
        member.node.step(events.Campaign())


def _compact(environment: Environment, case: Case) -> None:
    node, index = _ids(case)
    environment.member(node).storage.compact(index)
    _print_log(environment, environment.member(node))


def _raft_log(environment: Environment, case: Case) -> None:
    for member in _members(environment, case):
        _print_log(environment, member)


def _print_log(environment: Environment, member: Member) -> None:
    first, last = member.storage.first_index(), member.storage.last_index()
    if last < first:
        environment.out.write(f"log is empty: first index={first}, last index={last}")
        return
    for entry in member.storage.entries(first, last + 1, UNLIMITED):
        environment.out.line(describe.entry(entry))


def _deliver(environment: Environment, case: Case) -> None:
    kind: MessageType | None = None
    recipients: list[tuple[int, bool]] = []
    for argument in case.arguments:
        if argument.key == "type":
            kind = describe.TYPE_NAMES[argument.values[0]]
        elif argument.key == "drop":
            recipients += [(int(value), True) for value in argument.values]
        else:
            recipients.append((int(argument.key), False))
    if not sum([environment.deliver(to, drop=drop, kind=kind) for to, drop in recipients]):
        environment.out.line("no messages")


def _each(
    environment: Environment, members: Sequence[Member], what: str, work: Callable[[Member], None]
) -> None:
    """One member's output as it is; that of several under headers."""
    for member in members:
        if len(members) == 1:
            work(member)
        else:
            _block(environment, member, what, work)


def _block(environment: Environment, member: Member, what: str, work: Callable[[Member], None]) -> None:
    environment.out.line(f"> {member.id} {what}")
    with environment.out.indented():
        work(member)


def _process_ready(environment: Environment, case: Case) -> None:
    _each(environment, _members(environment, case), "handling Ready", environment.process_ready)


def _append_once(environment: Environment) -> Callable[[Member], None]:
    def work(member: Member) -> None:
        if not environment.process_append(member):
            environment.out.write("no append work to perform")

    return work


def _apply_once(environment: Environment) -> Callable[[Member], None]:
    def work(member: Member) -> None:
        if not environment.process_apply(member):
            environment.out.write("no apply work to perform")

    return work


def _process_append(environment: Environment, case: Case) -> None:
    _each(environment, _members(environment, case), "processing append thread", _append_once(environment))


def _process_apply(environment: Environment, case: Case) -> None:
    _each(environment, _members(environment, case), "processing apply thread", _apply_once(environment))


def _stabilize(environment: Environment, case: Case) -> None:
    level = environment.out.level
    for argument in case.arguments:
        if argument.key == "log-level":
            level = _level(argument.values[0])
    members = _members(environment, case) or environment.members
    with environment.out.at_level(level):
        while _round(environment, members):
            pass


def _round(environment: Environment, members: Sequence[Member]) -> bool:
    """One round of everything that can be done; False if there was nothing."""
    busy = False

    def phase(chosen: list[Member], what: str, work: Callable[[Member], object]) -> None:
        nonlocal busy
        for member in chosen:
            busy = True
            _block(environment, member, what, lambda each: (work(each), None)[1])

    def everything(work: Callable[[Member], bool]) -> Callable[[Member], None]:
        def run_all(member: Member) -> None:
            while work(member):
                pass

        return run_all

    for member in members:  # one after the other: what one does may give the next one something to do
        if member.node.has_ready():
            phase([member], "handling Ready", environment.process_ready)
    for member in members:
        if any(message.to == member.id for message in environment.network):
            phase([member], "receiving messages", lambda each: environment.deliver(each.id))
    for member in members:
        if member.append_work:
            phase([member], "processing append thread", everything(environment.process_append))
    for member in members:
        if member.apply_work:
            phase([member], "processing apply thread", everything(environment.process_apply))
    return busy


def _log_level(environment: Environment, case: Case) -> None:
    environment.out.level = _level(case.arguments[0].key)


def _raft_state(environment: Environment, _case: Case) -> None:
    for member in environment.members:
        environment.out.line(describe.node_line(member.node.core))


def _set_timeout(environment: Environment, case: Case) -> None:
    (timeout,) = (_number(argument) for argument in case.arguments if argument.key == "timeout")
    assert timeout > 0, case
    for member in _members(environment, case):
        member.node.core.election_timeout_ticks = timeout


def _status(environment: Environment, case: Case) -> None:
    core = environment.member(_ids(case)[0]).node.core
    if core.role.name == "LEADER":
        environment.out.write(describe.progress_map(core.tracker.progress))


def _tick(count: int) -> Callable[[Environment, Case], None]:
    def work(environment: Environment, case: Case) -> None:
        for member in _members(environment, case):
            for _ in range(count):
                member.node.step(events.Tick())

    return work


def _transfer(environment: Environment, case: Case) -> None:
    named = {argument.key: _number(argument) for argument in case.arguments}
    with contextlib.suppress(ConsensusError):
        environment.member(named["from"]).node.step(events.Transfer(named["to"]))


def _forget_leader(environment: Environment, case: Case) -> None:
    with contextlib.suppress(ConsensusError):
        environment.member(_ids(case)[0]).node.step(events.ForgetLeader())


def _send_snapshot(environment: Environment, case: Case) -> None:
    sender, to = _ids(case)
    member = environment.member(sender)
    message = Message(
        type=MessageType.SNAPSHOT,
        sender=sender,
        to=to,
        term=member.node.core.term,
        snapshot=member.storage.history[-1],
    )
    environment.network.append(message)
    environment.out.write(describe.message(message))


def _propose(environment: Environment, case: Case) -> None:
    node, data = case.arguments
    environment.member(int(node.key)).node.step(events.Propose((data.key.encode(),)))


def operations_of(text: str) -> tuple[NodeChange, ...]:
    """`v1 l2 r3 u4` as operations. ValueError or KeyError where a token is none."""
    return tuple(NodeChange(_OPERATIONS[token[0]], int(token[1:])) for token in text.split())


def _propose_change(environment: Environment, case: Case) -> None:
    version_1, transition = False, Transition.AUTO
    for argument in case.arguments[1:]:
        if argument.key == "v1":
            version_1 = _boolean(argument)
        elif argument.key == "transition":
            word = argument.values[0]
            if word not in _TRANSITIONS:
                raise ScriptError(f"unknown transition {word}")
            transition = _TRANSITIONS[word]
        else:
            raise ScriptError(f"unknown command {argument.key}")
    change = Change(operations_of(case.input), transition)
    if version_1 and (len(change.operations) != 1 or transition is not Transition.AUTO):
        raise ScriptError("v1 conf change can only have one operation and no transition")
    node = environment.member(int(case.arguments[0].key)).node
    node.step(events.ProposeChange(change, version_1=version_1))


def _report_unreachable(environment: Environment, case: Case) -> None:
    ids = _ids(case)
    if len(ids) != 2:
        raise ScriptError("must specify exactly two node indexes: node on which to report, and reported node")
    environment.member(ids[0]).node.step(events.Unreachable(ids[1]))


COMMANDS: dict[str, Callable[[Environment, Case], None]] = {
    "_breakpoint": lambda _environment, _case: None,
    "add-nodes": _add_nodes,
    "campaign": _campaign,
    "compact": _compact,
    "deliver-msgs": _deliver,
    "forget-leader": _forget_leader,
    "log-level": _log_level,
    "process-append-thread": _process_append,
    "process-apply-thread": _process_apply,
    "process-ready": _process_ready,
    "propose": _propose,
    "propose-conf-change": _propose_change,
    "raft-log": _raft_log,
    "raft-state": _raft_state,
    "report-unreachable": _report_unreachable,
    "send-snapshot": _send_snapshot,
    "set-randomized-election-timeout": _set_timeout,
    "stabilize": _stabilize,
    "status": _status,
    "tick-election": _tick(ELECTION_TICKS),
    "tick-heartbeat": _tick(1),
    "transfer-leadership": _transfer,
}
