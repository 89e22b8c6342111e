"""Which rows a member asks for, and where. Pure.

One FETCH waits at the owner of each gate, so a member hears of new rows and of the end of its hold by the
same request. Rows of a sealed partition come from its own owner, and the gate is at the owner of its heir.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ringfence.consumer.calls import Fetch, Fetched, Read, Why
from ringfence.consumer.gate import FETCHING, WITH_HOLD, Gate, Phase
from ringfence.consumer.values import Point, TaskKind
from ringfence.native.errors import TruncatedError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ringfence.consumer.calls import Refusal
    from ringfence.consumer.holding import Holding
    from ringfence.consumer.state import State

POLL_S: Final = 5.0
POLL_SHORT_S: Final = 0.05  # if there are more partitions than requests at a time
POLL_PAUSED_S: Final = 0.5  # of a partition that is opened, and not read
FETCHES_MAX: Final = 512
BYTES_MIN, BYTES_MAX = 65_536, 4_194_304  # of one answer
ANSWERS_MAX: Final = 2  # of one partition, so that one is given while the next one comes
RETRY_S, RETRY_S_MAX = 0.05, 1.0


class Fetching:
    """Asks for rows while there is room for them."""

    def __init__(self, state: State, holding: Holding) -> None:
        self._state, self._holding = state, holding
        self._due: set[Gate] = set()  # something may be asked for
        self._later: set[Gate] = set()  # at their `retry_at`
        self._waiting: dict[Gate, None] = {}  # for room, who waits longest first
        self._pending = 0

    def look(self, gate: Gate) -> None:
        """Something about the partition has changed."""
        self._due.add(gate)

    def pump(self, now: float) -> None:
        """Make the requests that are due."""
        ripe = {gate for gate in self._later if gate.retry_at <= now}
        self._later -= ripe
        due, self._due = self._due | ripe, set()
        for gate in sorted(due, key=lambda one: one.partition):
            self._ask(gate, now)
        for _ in range(len(self._waiting)):
            if not self._has_room():
                return
            gate = next(iter(self._waiting))
            del self._waiting[gate]
            self._ask(gate, now)

    def _bytes(self) -> int:
        share = self._state.options.bytes_max // (2 * max(1, min(len(self._state.gates), FETCHES_MAX)))
        return max(BYTES_MIN, min(BYTES_MAX, share))

    def _has_room(self) -> bool:
        state = self._state
        if self._pending >= FETCHES_MAX:
            return False
        return (
            self._pending == 0 or state.bytes + (self._pending + 1) * self._bytes() <= state.options.bytes_max
        )

    def _ask(self, gate: Gate, now: float) -> None:
        state = self._state
        if state.gates.get(gate.partition) is not gate or gate.phase not in FETCHING or state.is_closing:
            return
        if gate.retry_at > now:
            self._later.add(gate)
            return
        node = state.node_of(gate)
        if gate.fetch is None and node is not None and self._wants_answer(gate):
            # A sealed partition's request brings no rows.
            if gate.end is None and not self._has_room():
                self._waiting.setdefault(gate)
            else:
                self._fetch(gate, node, now)
        is_behind = gate.end is not None and gate.fetched.offset < gate.end
        if is_behind and gate.read is None and not gate.is_paused and len(gate.answers) < ANSWERS_MAX:
            read = state.call(lambda number: Read(number, gate.partition, *gate.fetched, self._bytes()), now)
            gate.read = read.number

    @staticmethod
    def _wants_answer(gate: Gate) -> bool:
        if gate.phase is Phase.OPENING or gate.end is not None:
            return True
        return len(gate.answers) < ANSWERS_MAX and not gate.is_paused

    def _fetch(self, gate: Gate, node: int, now: float) -> None:
        state = self._state
        poll_s = POLL_PAUSED_S if gate.is_paused and gate.end is None else POLL_S
        if len(state.gates) > FETCHES_MAX:
            poll_s = POLL_SHORT_S
        point: Point | None = gate.fetched
        if gate.phase is Phase.OPENING:
            point = gate.position if gate.skip is None else Point(gate.skip, 0)
        offset, epoch = (None, 0) if point is None else point
        call = state.call(
            lambda number: Fetch(
                number,
                node,
                gate.partition,
                hold=gate.hold or gate.newest,
                reopen=gate.hold == 0,
                offset=offset,
                epoch=epoch,
                generation=max(0, state.generation),
                bytes_max=self._bytes(),
                poll_s=poll_s,
            ),
            now,
        )
        gate.fetch = call.number
        self._pending += 1

    # ---- outcomes ----------------------------------------------------------------------------------------

    def _gate_of(self, call: Fetch | Read) -> Gate | None:
        """The partition that still waits for this call."""
        gate = self._state.gates.get(call.partition)
        if isinstance(call, Fetch):
            self._pending -= 1
            if gate is None or gate.fetch != call.number:
                return None
            gate.fetch = None
        else:
            if gate is None or gate.read != call.number:
                return None
            gate.read = None
        self._due.add(gate)
        return gate

    def fetched(self, call: Fetch, reply: Fetched, made_at: float, now: float) -> None:
        """The owner of the gate answered."""
        gate = self._gate_of(call)
        if gate is None:
            self._give_back(call, reply)
            return
        gate.retries = 0
        if reply.hold == 0 or reply.is_blocked:
            gate.retry_at = now + (RETRY_S if reply.hold == 0 else 0.0)
            return
        lease_until = made_at + self._state.lease_s
        if gate.phase is Phase.OPENING:
            gate.opened(reply, lease_until)
            self._holding.settling.told(gate)
            if self._state.is_closing:
                # Its owner would keep the partition for the lease, as if the member had died.
                self._holding.release(gate)
                return
        elif reply.hold != gate.hold:
            return  # of a hold that is over
        gate.lease_until, gate.mark = max(gate.lease_until, lease_until), max(gate.mark, reply.mark)
        if reply.sealed_end is not None:
            self._sealed(gate, reply.sealed_end)
        else:
            self._store(gate, reply)

    def _give_back(self, call: Fetch, reply: Fetched) -> None:
        """A hold was given to a member that does not want it any more: it is released, nothing is settled."""
        gate = self._state.gates.get(call.partition)
        if gate is None and call.reopen and reply.hold and not reply.is_blocked:
            gate = self._state.add_gate(Gate(call.partition, Phase.OPENING))
            gate.opened(reply, 0.0)
            self._holding.release(gate)

    def _store(self, gate: Gate, reply: Fetched) -> None:
        before = len(gate.answers)
        gate.store(reply)
        if len(gate.answers) > before:
            self._state.bytes += reply.bytes
            self._state.arrived.append(gate.partition)
            self._state.ring()

    def _sealed(self, gate: Gate, end: int) -> None:
        """The partition is sealed, and ends there."""
        gate.end = end
        if gate.settled.offset >= end and not gate.tells_beginning:
            self._holding.released(gate)
        elif gate.is_given_to_its_end:
            self.given_to_its_end(gate)

    def given_to_its_end(self, gate: Gate) -> None:
        """All rows of a sealed partition are given: its children wait until they are acknowledged."""
        if gate.has_unacknowledged and not gate.is_drain_told:
            gate.is_drain_told = True
            if TaskKind.DRAIN in self._state.options.tells:
                self._state.tell(TaskKind.DRAIN, [gate.partition])

    def read(self, call: Read, reply: Fetched, now: float) -> None:
        """Rows of a sealed partition arrived."""
        gate = self._gate_of(call)
        if gate is None or gate.phase is not Phase.HELD:
            return
        if reply.end <= gate.fetched.offset:
            gate.retry_at = now + RETRY_S_MAX  # an owner of before does not have its end
        self._store(gate, reply)

    def refused(self, call: Fetch | Read, refusal: Refusal, made_at: float, now: float) -> None:
        """The owner refused."""
        gate = self._gate_of(call)
        if gate is None:
            return
        gate.retries += 1
        gate.retry_at = now + max(
            refusal.retry_after_s, min(RETRY_S_MAX, RETRY_S * 2.0 ** min(gate.retries, 9))
        )
        self._state.heard(refusal.generation)
        match refusal.why:
            case Why.NOT_ASSIGNED if gate.phase in WITH_HOLD and refusal.hold > gate.hold:
                self._holding.lost(gate)
            case Why.REDIRECT:
                self._state.needs_table = max(self._state.needs_table or 0, refusal.version)
            case Why.TRUNCATED:
                self._truncated(gate, refusal, made_at)
            case Why.POSITION if gate.phase is Phase.OPENING:
                self._holding.ask_position(gate, refusal.details)
            case Why.FINAL:
                assert refusal.error is not None
                self._state.fail(refusal.error)
            case _:
                pass

    def _truncated(self, gate: Gate, refusal: Refusal, made_at: float) -> None:
        """Rows after the settled position are gone: the application hears it, or they are skipped."""
        state = self._state
        begin = int(refusal.details.get("begin", refusal.start))
        # The owner of a gate raises a first position to the log start. Of a sealed log it does not know it.
        is_first = gate.end is not None and gate.is_untouched and "pruned" not in refusal.details
        if not state.options.skips and not is_first:
            error = refusal.error or TruncatedError("rows were removed", partition=gate.partition)
            state.fail(error)
            return
        is_here = gate.phase is Phase.HELD and gate.end is None and "pruned" not in refusal.details
        if is_here and begin <= gate.given.offset:
            # The log begins before, so it was no retention: an operator accepted the loss of the log's end.
            # Its new rows are others, and come from where the cohort stands now.
            self._holding.lost(gate)
            return
        gate.retry_at = 0.0
        if "pruned" in refusal.details and gate.phase is Phase.OPENING and refusal.hold:
            # The hold is there, and the owner gives no row before it knows that the member was told.
            gate.opened(Fetched(refusal.hold, begin, begin, 0), made_at + state.lease_s)
        if gate.phase is Phase.HELD:
            gate.tells_beginning |= "pruned" in refusal.details
            state.bytes -= gate.drop_fetched()
            after = Point(max(begin, gate.given.offset), 0)
            if gate.has_unacknowledged and not state.options.is_auto:
                gate.fetched = gate.given = after  # rows before it may be discarded, and come again
            else:
                gate.fetched = gate.given = gate.told = after
            self._holding.settling.told(gate)
        else:
            gate.skip = begin

    def unanswered(self, call: Fetch | Read, now: float) -> None:
        """The request got no answer."""
        gate = self._gate_of(call)
        if gate is not None:
            gate.retries += 1
            gate.retry_at = now + RETRY_S

    def faults(self) -> Iterator[str]:
        """What must never hold; tests look after each event."""
        under_way = [call for call, _ in self._state.calls.values() if isinstance(call, Fetch)]
        if len(under_way) != self._pending:
            yield f"{self._pending} requests are counted, {len(under_way)} are under way"
