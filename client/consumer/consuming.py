"""What a transaction takes of a member: rows that were given and not settled, and locks of their gates. Pure.

    begin -> (rows are given) -> claim -> COMMIT -> committed | aborted

A partition's rows belong to the hold under which the first of them was given. If that hold ended, they come
again elsewhere, and the transaction must not commit them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ringfence.consumer.calls import Claim, ClaimedRange, Why
from ringfence.consumer.gate import Gate, Phase
from ringfence.native.errors import ClosedError, FencedError, InvalidArgumentError, UnknownOutcomeError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ringfence.consumer.calls import NotTaken, Refusal, Settled
    from ringfence.consumer.fetching import Fetching
    from ringfence.consumer.holding import Holding
    from ringfence.consumer.settle import Settling
    from ringfence.consumer.state import State

# Most gates of one claim, and of one COMMIT.
RANGES_MAX: Final = 4096
RETRY_S: Final = 0.05
CLAIMED: Final = frozenset({Phase.HELD, Phase.LEAVING})


class Consuming:
    """One transaction at a time."""

    def __init__(self, state: State, holding: Holding, settling: Settling, fetching: Fetching) -> None:
        self._state, self._holding = state, holding
        self._settling, self._fetching = settling, fetching
        self._holds: dict[int, int] = {}  # by partition with rows that are not settled: of the first ones
        self.is_open = False
        self.is_uncertain = False  # no answer to the COMMIT told what became of it
        self._waiting: dict[int, ClaimedRange] = {}  # by partition: to be claimed
        self._identity = b""
        self._then: Callable[[Exception | None], None] | None = None
        self._under_way: dict[int, int] = {}  # by node: number of the call
        self._not_before: dict[int, float] = {}  # by node

    # ---- rows --------------------------------------------------------------------------------------------

    def gave(self, gate: Gate) -> None:
        """The application got rows."""
        self._holds.setdefault(gate.partition, gate.hold)

    def acknowledged(self, gate: Gate) -> None:
        """The application acknowledged rows without a transaction."""
        if not gate.has_unacknowledged:
            self._holds.pop(gate.partition, None)

    def check_acknowledge(self) -> None:
        """Raises InvalidArgumentError: a transaction settles what was given."""
        if self.is_open:
            raise InvalidArgumentError(
                "a transaction is open with consumed= this consumer: its commit settles all that was given; "
                "end the `with` block instead of calling ack"
            )

    def check_give(self) -> None:
        """Raises UnknownOutcomeError: rows that were given may be committed, or come again."""
        if self.is_uncertain:
            raise UnknownOutcomeError(
                "the outcome of this consumer's last transaction is unknown: call its commit() again, or "
                "close the consumer"
            )

    # ---- a transaction -----------------------------------------------------------------------------------

    def begin(self) -> None:
        """A transaction takes what was given, and what will be given until its end.

        Raises:
            InvalidArgumentError: another one is open.
        """
        if self._state.is_closing:
            raise ClosedError("the consumer is closed; create another one")
        if self.is_open:
            raise InvalidArgumentError(
                "another transaction is open with consumed= this consumer: end it first, a consumer takes "
                "part in one at a time"
            )
        self.is_open = True

    def ranges(self) -> tuple[ClaimedRange, ...]:
        """What is to be settled, ascending.

        Raises:
            FencedError: the hold of some of it is over: these rows come again.
        """
        found = []
        for partition, hold in sorted(self._holds.items()):
            gate = self._state.gates.get(partition)
            if gate is None or gate.hold != hold or gate.phase not in CLAIMED:
                raise lost_error(partition, hold)
            if gate.seen.offset > gate.told.offset:
                found.append(ClaimedRange(partition, hold, gate.told.offset, gate.seen))
        if len(found) > RANGES_MAX:
            raise InvalidArgumentError(
                "a transaction consumed rows of too many partitions; commit more often",
                partitions=len(found),
                partitions_max=RANGES_MAX,
            )
        return tuple(found)

    def claim(
        self, identity: bytes, ranges: Iterable[ClaimedRange], then: Callable[[Exception | None], None]
    ) -> None:
        """Lock the gates. `then` gets None once all are locked, or why one is not.

        `identity`: of the COMMIT, as STAGE has it.
        """
        self._identity, self._then = identity, then
        self._waiting = {one.partition: one for one in ranges}

    def cancel(self) -> None:
        """Claim no more."""
        self._waiting, self._then = {}, None

    def committed(self, ranges: Iterable[ClaimedRange]) -> None:
        """The rows are settled, and what was made of them can be read."""
        for one in ranges:
            gate = self._state.gates.get(one.partition)
            if gate is None or gate.hold != one.hold:
                self._state.lost_rows.given(one.partition, (one.first, one.through.offset))  # not lost
                continue
            if one.through.offset > gate.settled.offset:
                gate.settled = one.through
            self._state.bytes -= gate.acknowledge(one.through)
            for call in gate.settled_callbacks():
                call(None)
            if not gate.owes:
                self._settling.forget(gate)
            self._fetching.look(gate)
            if gate.phase is Phase.HELD and gate.end is not None and gate.settled.offset >= gate.end:
                self._holding.released(gate)
        self._end()
        for partition, gate in self._state.gates.items():
            if gate.unseen_from is not None:  # rows that the application gets later: the next one's
                self._holds[partition] = gate.hold

    def aborted(self) -> None:
        """Nothing was committed: the rows come again, under the same holds where these last."""
        for partition in self._holds:
            gate = self._state.gates.get(partition)
            # Also under a newer hold than that of the first rows: those of the newer one belong to the same
            # transaction.
            if gate is None or gate.phase not in CLAIMED:
                continue
            self._state.bytes -= gate.rewind()
            self._fetching.look(gate)
        self._end()

    def _end(self) -> None:
        self._holds.clear()
        self.cancel()
        self.is_open = self.is_uncertain = False
        self._state.ring()

    # ---- claims ------------------------------------------------------------------------------------------

    def pump(self, now: float) -> None:
        """Make the calls that are due."""
        by_node: dict[int, list[ClaimedRange]] = {}
        for partition, one in self._waiting.items():
            gate = self._state.gates.get(partition)
            if gate is None or gate.hold != one.hold or gate.phase not in CLAIMED:
                self._fail(lost_error(partition, one.hold))
                return
            node = self._state.node_of(gate)
            # What was acknowledged before must be settled first: a claim begins there.
            is_settled = gate.settled.offset >= one.first
            if node is not None and node not in self._under_way and is_settled:
                by_node.setdefault(node, []).append(one)
        for node, ranges in by_node.items():
            if now >= self._not_before.get(node, 0.0):
                self._claim(node, tuple(sorted(ranges)), now)

    def _claim(self, node: int, ranges: tuple[ClaimedRange, ...], now: float) -> None:
        call = self._state.call(lambda number: Claim(number, node, self._identity, ranges), now)
        self._under_way[node] = call.number

    def claimed(self, call: Claim, reply: Settled, now: float) -> None:
        """A node has locked the gates, but for some."""
        self._ended(call)
        if call.identity != self._identity:
            return
        refused = {one.partition: one for one in reply.not_taken}
        for one in call.ranges:
            if self._waiting.get(one.partition) != one:
                continue
            if one.partition not in refused:
                del self._waiting[one.partition]
                continue
            self._not_before[call.node] = now + RETRY_S
            if (error := self._error_of(one, refused[one.partition])) is not None:
                self._fail(error)
                return
        self._tell()

    def _error_of(self, one: ClaimedRange, refused: NotTaken) -> Exception | None:
        """Why the gate will not be locked; None: it may be, later or elsewhere."""
        match refused.why:
            case Why.NOT_ASSIGNED:
                is_of_before = refused.hold < one.hold
                return None if is_of_before else lost_error(one.partition, one.hold)
            case Why.REDIRECT:
                self._state.needs_table = self._state.needs_table or 0
                return None
            case Why.RETRY:
                return None
            case _:
                return refused.error

    def failed(self, call: Claim, refusal: Refusal | None, now: float) -> None:
        """The request was refused as a whole, or got no answer: it is made again."""
        self._ended(call)
        self._not_before[call.node] = now + max(RETRY_S, 0.0 if refusal is None else refusal.retry_after_s)
        if refusal is not None and refusal.why is Why.FINAL and refusal.error is not None:
            self._fail(refusal.error)

    def end_waiting(self, error: Exception) -> None:
        """No owner will answer a claim."""
        self._fail(error)

    def _ended(self, call: Claim) -> None:
        if self._under_way.get(call.node) == call.number:
            del self._under_way[call.node]

    def _tell(self) -> None:
        if not self._waiting and self._then is not None:
            then, self._then = self._then, None
            then(None)

    def _fail(self, error: Exception) -> None:
        then = self._then
        self.cancel()
        if then is not None:
            then(error)

    def down(self, node: int) -> None:
        """The connection ended."""
        self._under_way.pop(node, None)
        self._not_before.pop(node, None)


def lost_error(partition: int, hold: int) -> FencedError:
    """The rows of a partition are not this member's any more."""
    return FencedError(
        "the hold under which rows of the transaction were read is over, so they come again; nothing of the "
        "transaction is or will be stored",
        partition=partition,
        fencing_token=hold,
    )
