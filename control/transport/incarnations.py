"""Which process speaks for a node: one life of it at a time. Pure; times come in as arguments.

A life is a number that a process draws when it starts. A data directory that was copied, or a machine that
was restored while the original goes on, gives two processes with one identity, both with the promises of one
voter: together they could vote twice in a term.

    the life that spoke last keeps the word while it is heard
    another one waits; it takes over when the first was silent for QUIET_MS: that is a restart
    if the first is heard PROOFS more times, PROOF_MS apart, both are alive: the one that waits is fenced
    a life that was taken over from is fenced for good: a paused process that comes back is told to end

What was buffered for a receiver that was stopped itself is read all at once: one moment, so no proof.
"""

from __future__ import annotations

import enum
from collections import OrderedDict, deque
from dataclasses import dataclass, field
from typing import Final

QUIET_MS: Final = 1_000
"""Five heartbeats of 200 ms. A killed node that starts at once waits as long before it is heard again."""
PROOF_MS: Final = 200
PROOFS: Final = 3
CONTEST_MS: Final = 10_000
"""For how long a life that was fenced is told of as a contest."""
FORMER_MAX: Final = 8
"""Lives of one node that are remembered as over."""
NODES_MAX: Final = 4_096
"""Nodes whose lives are known; the one that was heard longest ago gives way."""


class Verdict(enum.Enum):
    """What to do with a message."""

    TAKE = enum.auto()
    WAIT = enum.auto()
    """Drop it: whose life this is is not decided."""
    FENCED = enum.auto()
    """Drop it and say so: another process has this identity."""


@dataclass(slots=True)
class _Known:
    life: int
    heard_ms: int
    challenger: int = 0
    proofs: int = 0
    proof_ms: int = 0
    contested_ms: int = -CONTEST_MS
    former: deque[int] = field(default_factory=lambda: deque(maxlen=FORMER_MAX))


class Incarnations:
    """One receiver's view of all senders."""

    def __init__(self) -> None:
        self._known: OrderedDict[int, _Known] = OrderedDict()

    def judge(self, node: int, life: int, now_ms: int) -> Verdict:
        """Whether a message of this life of `node` counts."""
        known = self._known.get(node)
        if known is None:
            known = self._known[node] = _Known(life, now_ms)
            if len(self._known) > NODES_MAX:
                self._known.popitem(last=False)
        if life == known.life:
            self._known.move_to_end(node)
            self._heard(known, now_ms)
            return Verdict.TAKE
        if life in known.former:
            known.contested_ms = now_ms
            return Verdict.FENCED
        if now_ms - known.heard_ms >= QUIET_MS:
            known.former.append(known.life)
            known.life, known.heard_ms, known.challenger = life, now_ms, 0
            return Verdict.TAKE
        if life != known.challenger:
            known.challenger, known.proofs, known.proof_ms = life, 0, now_ms
        if known.proofs < PROOFS:
            return Verdict.WAIT
        known.contested_ms = now_ms
        return Verdict.FENCED

    def silence_ms(self, node: int, now_ms: int) -> int | None:
        """How long ago the life that speaks for `node` was heard; None if it never was."""
        known = self._known.get(node)
        return None if known is None else now_ms - known.heard_ms

    def contested(self, now_ms: int) -> list[int]:
        """Nodes that two processes have lately spoken for."""
        return [node for node, known in self._known.items() if now_ms - known.contested_ms < CONTEST_MS]

    @staticmethod
    def _heard(known: _Known, now_ms: int) -> None:
        known.heard_ms = now_ms
        if known.challenger and now_ms - known.proof_ms >= PROOF_MS:
            known.proofs, known.proof_ms = known.proofs + 1, now_ms
