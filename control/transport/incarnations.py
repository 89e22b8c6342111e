"""Accept messages of one process for each node: its current incarnation. Pure; times are arguments.

An incarnation is a random number that a process draws at its start. A copied data directory, or a machine
that was restored while the original still runs, gives two processes with one identity. Both have the
promises of one voter, so together they could vote twice in a term.

    the current incarnation is accepted as long as its messages arrive
    a challenger waits; it replaces the current one after QUIET_MS of silence: that is a restart
    after PROOFS more messages of the current one, PROOF_MS apart, both run: the challenger is fenced
    a former incarnation is fenced forever: a paused process that resumes is told to end

A receiver that was stopped itself reads all buffered messages in one moment, so they count as no proof.
"""

from __future__ import annotations

import enum
from collections import OrderedDict, deque
from dataclasses import dataclass, field
from typing import Final

# Five heartbeats of 200 ms. A killed node that restarts immediately is accepted after this time.
QUIET_MS: Final = 1_000
PROOF_MS: Final = 200
PROOFS: Final = 3
# A node counts as contested for this time after a fenced message.
CONTEST_MS: Final = 10_000
# Former incarnations that are stored for each node.
FORMER_MAX: Final = 8
# Nodes with stored incarnations; above it the node with the oldest message is dropped.
NODES_MAX: Final = 4_096


class Verdict(enum.Enum):
    """The treatment of a message."""

    ACCEPT = enum.auto()
    # Drop the message: it is not decided yet whether the sender replaces the current incarnation.
    WAIT = enum.auto()
    # Drop the message, and tell the sender that another process has its identity.
    FENCE = enum.auto()


@dataclass(slots=True)
class _NodeState:
    """The incarnations of one node. `challenger` 0: there is none."""

    current: int
    # Time of the current incarnation's last message.
    last_ms: int
    challenger: int = 0
    # Messages of the current incarnation since the challenger's first one, PROOF_MS apart.
    proofs: int = 0
    proof_ms: int = 0
    # Time of the last fenced message.
    contested_ms: int = -CONTEST_MS
    former: deque[int] = field(default_factory=lambda: deque(maxlen=FORMER_MAX))


class Incarnations:
    """One receiver's view of all senders."""

    def __init__(self) -> None:
        # By node, the one with the oldest accepted message first.
        self._nodes: OrderedDict[int, _NodeState] = OrderedDict()

    def evaluate(self, node: int, incarnation: int, now_ms: int) -> Verdict:
        """Decide on a message of this incarnation of `node`."""
        state = self._nodes.get(node)
        if state is None:
            state = self._nodes[node] = _NodeState(incarnation, now_ms)
            if len(self._nodes) > NODES_MAX:
                self._nodes.popitem(last=False)
        if incarnation == state.current:
            self._nodes.move_to_end(node)
            self._note_message(state, now_ms)
            return Verdict.ACCEPT
        if incarnation in state.former:
            state.contested_ms = now_ms
            return Verdict.FENCE
        if now_ms - state.last_ms >= QUIET_MS:
            state.former.append(state.current)
            state.current, state.last_ms, state.challenger = incarnation, now_ms, 0
            return Verdict.ACCEPT
        if incarnation != state.challenger:
            state.challenger, state.proofs, state.proof_ms = incarnation, 0, now_ms
        if state.proofs < PROOFS:
            return Verdict.WAIT
        state.contested_ms = now_ms
        return Verdict.FENCE

    def silence_ms(self, node: int, now_ms: int) -> int | None:
        """Time since the last message of the current incarnation of `node`; None if there was none."""
        state = self._nodes.get(node)
        return None if state is None else now_ms - state.last_ms

    def contested(self, now_ms: int) -> list[int]:
        """Nodes with a fenced message in the last CONTEST_MS."""
        return [node for node, state in self._nodes.items() if now_ms - state.contested_ms < CONTEST_MS]

    @staticmethod
    def _note_message(state: _NodeState, now_ms: int) -> None:
        state.last_ms = now_ms
        if state.challenger and now_ms - state.proof_ms >= PROOF_MS:
            state.proofs, state.proof_ms = state.proofs + 1, now_ms
