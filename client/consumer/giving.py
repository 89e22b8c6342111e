"""What the application gets next: a callback, or rows of the partitions in turn. Pure."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from ringfence.consumer.gate import Gate, Phase
from ringfence.consumer.values import ConsumerPlace, Point, TaskKind
from ringfence.native.errors import InvalidArgumentError

if TYPE_CHECKING:
    from ringfence.consumer.beats import Beats
    from ringfence.consumer.consuming import Consuming
    from ringfence.consumer.fetching import Fetching
    from ringfence.consumer.gate import Stored
    from ringfence.consumer.settle import Settling
    from ringfence.consumer.state import State

ACKNOWLEDGED: Final = frozenset({Phase.HELD, Phase.LEAVING})


class Turn(NamedTuple):
    """The application's side takes the next batch of this answer."""

    gate: Gate
    stored: Stored


class Giving:
    """Rows go to the application one batch at a time, and only under a lease that lasts."""

    def __init__(
        self, state: State, beats: Beats, fetching: Fetching, settling: Settling, consuming: Consuming
    ) -> None:
        self._state, self._beats = state, beats
        self._fetching, self._settling, self._consuming = fetching, settling, consuming
        self._turns: deque[int] = deque()  # partitions, the one that waits longest first
        self._in_turns: set[int] = set()
        self._given: set[int] = set()  # partitions with rows that may not be acknowledged
        self._unseen: list[Gate] = []  # with rows that the application has not got

    def turn(self, now: float) -> Turn | None:
        """The partition whose turn it is; None: nothing can be given."""
        gates = self._state.gates
        for partition in self._state.arrived:
            if partition not in self._in_turns:
                self._turns.append(partition)
                self._in_turns.add(partition)
        self._state.arrived.clear()
        for _ in range(len(self._turns)):
            partition = self._turns.popleft()
            gate = gates.get(partition)
            if gate is None or not gate.answers:
                self._in_turns.discard(partition)
                continue
            self._turns.append(partition)
            if self._may_give(gate, now):
                return Turn(gate, gate.answers[0])
        return None

    def _may_give(self, gate: Gate, now: float) -> bool:
        return gate.phase is Phase.HELD and not gate.is_paused and self._beats.is_valid(gate, now)

    def give(
        self, turn: Turn, first: int, rows: int, epoch: int, now: float, *, is_seen: bool = True
    ) -> ConsumerPlace | None:
        """The application gets these rows; None: the hold or its lease is over, they must not be given.

        `is_seen`: it has them when this returns, and not after a call of `seen`.
        """
        gate, stored = turn
        is_next = (
            bool(gate.answers) and gate.answers[0] is stored and self._state.gates.get(gate.partition) is gate
        )
        if not is_next or not self._may_give(gate, now):
            return None
        place = ConsumerPlace(gate.partition, first, first + rows, epoch, gate.hold)
        if not is_seen and gate.unseen_from is None:
            gate.unseen_from = gate.given
            self._unseen.append(gate)
        gate.given = place.end
        gate.is_drain_told = False
        self._given.add(gate.partition)
        self._state.lost_rows.given(gate.partition, (first, first + rows))
        self._consuming.gave(gate)
        return place

    def seen(self) -> bool:
        """The application gets the rows that it has not got. False: they come again, or their hold ended."""
        gates, self._unseen = self._unseen, []
        is_any = False
        for gate in gates:
            is_any |= gate.unseen_from is not None
            gate.unseen_from = None
        return is_any

    def take_back(self) -> None:
        """The application will not get the rows that it has not got: they are fetched again."""
        gates, self._unseen = self._unseen, []
        for gate in gates:
            self._state.bytes -= gate.take_back()
            self._fetching.look(gate)

    def finish(self, turn: Turn) -> None:
        """All rows of an answer were given."""
        gate, stored = turn
        if not gate.answers or gate.answers[0] is not stored:
            return
        gate.answers.popleft()
        if gate.given.offset < stored.end:
            gate.given = Point(stored.end, stored.epoch)  # its last records have no rows for this reader
        if stored.end > gate.told.offset:
            gate.given_sizes.append((stored.end, stored.bytes))
        else:
            self._state.bytes -= stored.bytes
        self._fetching.look(gate)
        if gate.is_given_to_its_end:
            self._fetching.given_to_its_end(gate)

    def rewind(self, turn: Turn) -> None:
        """The rows of an answer cannot be decoded: fetch them again, so that none is skipped."""
        gate = turn.gate
        self._state.bytes -= gate.drop_fetched()
        self._fetching.look(gate)

    # ---- acknowledgements ----------------------------------------------------------------------------------

    def acknowledge(self, place: ConsumerPlace, *, urgent: bool = False) -> bool:
        """Rows through the end of a place are done. False: its hold is over.

        Raises:
            InvalidArgumentError: the place is behind what was given.
        """
        gate = self._state.gates.get(place.partition)
        if gate is None or gate.hold != place.fencing_token or gate.phase not in ACKNOWLEDGED:
            return False
        if place.end_offset > gate.given.offset:
            raise InvalidArgumentError(
                "rows that were not given cannot be acknowledged",
                partition=place.partition,
                end_offset=place.end_offset,
                given=gate.given.offset,
            )
        self._told(gate, place.end, urgent=urgent)
        return True

    def acknowledge_given(self, *, urgent: bool = False) -> None:
        """All rows that the application has got are done."""
        given, self._given = self._given, set()
        for partition in given:
            gate = self._state.gates.get(partition)
            if gate is None or gate.phase not in ACKNOWLEDGED:
                continue
            if gate.seen.offset > gate.told.offset:
                self._told(gate, gate.seen, urgent=urgent)
            if gate.has_unacknowledged:
                self._given.add(partition)

    def _told(self, gate: Gate, through: Point, *, urgent: bool) -> None:
        self._state.bytes -= gate.acknowledge(through)
        self._consuming.acknowledged(gate)
        self._settling.told(gate, urgent=urgent)
        self._fetching.look(gate)

    def waits_for(self) -> list[int]:
        """Sealed partitions of which all rows were given, and not all were acknowledged."""
        return sorted(
            one
            for one, gate in self._state.gates.items()
            if gate.phase is Phase.HELD and gate.is_given_to_its_end and gate.has_unacknowledged
        )

    def drain_due(self) -> None:
        """Tell the application of partitions whose children wait for it, once for each last row."""
        if TaskKind.DRAIN in self._state.options.tells:
            for partition in self.waits_for():
                self._fetching.given_to_its_end(self._state.gates[partition])
