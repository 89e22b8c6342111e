"""Coordinate all layout changes of one leader: orders that nodes should have now, and entries to propose.

    observe_answer(order, answer)   note a node's answer
    step(state, now_ms)             the orders, each repeated until it is answered or no longer needed; the
                                    entries
    begin()                         start a leadership without any observations

All state here is soft and is discarded with the leadership: the next leader needs only the log.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from msgspec.structs import replace

from ringfence.control.model.commands import Command
from ringfence.control.model.reassignments import ChangeId, ChangePhase
from ringfence.control.model.state import MetadataState
from ringfence.control.state_machines.layout.adoption import AdoptionBoard
from ringfence.control.state_machines.layout.messages import LayoutAnswer, LayoutOrder
from ringfence.control.state_machines.layout.steps import (
    Observed,
    TransitionStep,
    advance,
    begin_phase,
    observe,
    observe_time,
)

# An entry is not proposed a second time within this time: it is being committed, or was refused.
REPROPOSE_MS: Final = 1_000


class LayoutRound(NamedTuple):
    """Orders that nodes should have now, and entries to propose, after one round."""

    orders: tuple[LayoutOrder, ...] = ()
    entries: tuple[TransitionStep, ...] = ()


class LayoutCoordinator:
    """All transitions of one leader. Times are in ms of one monotonic clock; the class reads no clock.

    `adoption` has what heartbeats told in this leadership; the runtime records them.
    """

    def __init__(self) -> None:
        self._observed: dict[ChangeId, Observed] = {}
        # When a kind of entry was proposed for a transition: texts and times in it may differ.
        self._proposed: dict[tuple[type[Command], ChangeId], int] = {}
        self.adoption = AdoptionBoard()

    def begin(self) -> None:
        """Start a leadership: discard all observations."""
        self.__init__()  # type: ignore[misc]

    def observe_answer(self, order: LayoutOrder, answer: LayoutAnswer) -> None:
        """Note a node's answer to an order."""
        observed = self._observed.get(order.change)
        if observed is not None:
            self._observed[order.change] = observe(observed, order, answer)

    def progress(self, change: ChangeId) -> Observed | None:
        """The observations of a transition, for operators; None without one."""
        return self._observed.get(change)

    def step(self, state: MetadataState, now_ms: int, time_ms: int = 0) -> LayoutRound:
        """Run one round over all transitions. `time_ms` is the time that a proposal would have now: an idle
        log does not tell how old a seal is.
        """
        if time_ms > state.time_ms and state.transitions:
            state = replace(state, time_ms=time_ms)
        orders: list[LayoutOrder] = []
        entries: list[TransitionStep] = []
        observations: dict[ChangeId, Observed] = {}
        for number, transition in state.transitions.items():
            begun = begin_phase(transition, now_ms, self._observed.get(number))
            observed = observations[number] = observe_time(state, transition, begun, now_ms)
            is_adopted = transition.phase is ChangePhase.OPENED and self.adoption.is_adopted(
                state, transition
            )
            more, entry = advance(state, transition, observed, now_ms, is_adopted=is_adopted)
            orders += more
            if entry is not None:
                entries.append(entry)
        self._observed = observations
        return LayoutRound(tuple(orders), self._without_repeats(entries, now_ms))

    def note_refusal(self, command: Command) -> None:
        """The log refused the command: `step` may propose it again immediately, on the newer state."""
        if isinstance(command, TransitionStep):
            self._proposed.pop((type(command), command.change), None)

    def _without_repeats(self, entries: list[TransitionStep], now_ms: int) -> tuple[TransitionStep, ...]:
        self._proposed = {key: at for key, at in self._proposed.items() if now_ms - at < REPROPOSE_MS}
        due = tuple(entry for entry in entries if (type(entry), entry.change) not in self._proposed)
        self._proposed |= {(type(entry), entry.change): now_ms for entry in due}
        return due
