"""The scripts of quorum/: what majorities and joint majorities have committed and voted."""

from __future__ import annotations

from ringfence.control.consensus import quorum
from ringfence.control.consensus.quorum import VoteResult
from tests.consensus.datadriven import Case

RESULTS = {VoteResult.WON: "VoteWon", VoteResult.LOST: "VoteLost", VoteResult.PENDING: "VotePending"}
COMMANDS = {"committed", "vote"}


def run(case: Case) -> str:
    incoming: list[int] = []
    outgoing: list[int] | None = None
    values: list[str] = []
    for argument in case.arguments:
        if argument.key == "cfg":
            incoming = [int(value) for value in argument.values]
        elif argument.key == "cfgj":
            outgoing = [] if argument.values == ("zero",) else [int(value) for value in argument.values]
        elif argument.key in {"idx", "votes"}:
            values += argument.values
        else:
            return f"unknown arg {argument.key}"
    members = list(dict.fromkeys([*incoming, *(outgoing or [])]))
    if len(values) != len(members):
        return f"error: mismatched input for voters {members}: {values}, check out if you have specified all"
    given = {member: value for member, value in zip(members, values, strict=True) if value != "_"}
    if case.command == "vote":
        return _vote(incoming, outgoing, {member: value == "y" for member, value in given.items()})
    if case.command == "committed":
        return _committed(incoming, outgoing, {member: int(value) for member, value in given.items()})
    return "unknown command"


def _vote(incoming: list[int], outgoing: list[int] | None, votes: dict[int, bool]) -> str:
    result = quorum.majority_vote(incoming, votes)
    text = ""
    if outgoing is None:
        for other, name in (
            (quorum.joint_vote(incoming, [], votes), "zero"),
            (quorum.joint_vote(incoming, incoming, votes), "self"),
        ):
            if other is not result:
                text += f"{RESULTS[other]} <-- via {name} join\n"
    else:
        result = quorum.joint_vote(incoming, outgoing, votes)
        if quorum.joint_vote(outgoing, incoming, votes) is not result:
            text += "<-- via symmetry\n"
    return f"{text}{RESULTS[result]}\n"


def _committed(incoming: list[int], outgoing: list[int] | None, acknowledged: dict[int, int]) -> str:
    text = picture(sorted({*incoming, *(outgoing or [])}), acknowledged)
    index = quorum.majority_committed(incoming, acknowledged)
    if outgoing is None:
        for other, name in (
            (quorum.joint_committed(incoming, [], acknowledged), "zero"),
            (quorum.joint_committed(incoming, incoming, acknowledged), "self"),
        ):
            if other != index:
                text += f"{shown(other)} <-- via {name} join\n"
    else:
        index = quorum.joint_committed(incoming, outgoing, acknowledged)
        if quorum.joint_committed(outgoing, incoming, acknowledged) != index:
            text += "<-- via symmetry\n"
    for member, value in acknowledged.items():
        # Who is below the result already does not hold it up: less of it changes nothing.
        for lower in {value - 1, 0}:
            if 0 <= lower < value < index:
                lowered = quorum.joint_committed(incoming, outgoing or [], {**acknowledged, member: lower})
                if lowered != index:
                    text += f"{shown(lowered)} <-- overlaying {member}->{lower}\n"
    return f"{text}{shown(index)}\n"


def shown(index: int) -> str:
    return "∞" if index == quorum.INFINITY else str(index)


def picture(members: list[int], acknowledged: dict[int, int]) -> str:
    """A line per member with a bar as long as the number of members that are strictly behind it."""
    count = len(members)
    if not count:
        return "<empty majority quorum>"
    lines = [" " * count + "    idx"]
    for member in members:
        index = acknowledged.get(member)
        if index is None:
            bar = "?" + " " * count
        else:
            behind = sum(acknowledged.get(other, 0) < index for other in members)
            bar = "x" * behind + ">" + " " * (count - behind)
        lines.append(f"{bar} {index or 0:5d}    (id={member:x})")
    return "".join(line + "\n" for line in lines)
