"""Join the cohort, bind connections to the session, and follow the plan. Pure.

JOIN with the same instance is a read, so it is also how a member asks for a newer plan. A plan counts only if
its generation is higher than that of the present plan: an answer that a push has overtaken changes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from ringfence.consumer.calls import HOME, Attach, Join, Leave, Plan, Refresh, Why
from ringfence.native.errors import MemberExistsError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ringfence.consumer.calls import Attached, Joined, Refusal
    from ringfence.consumer.state import State

RETRY_S: Final = 0.2
RETRY_S_MAX: Final = 2.0
TABLE_S: Final = 0.2  # between two requests of a routing table
ABSENT: Final = "absent"  # the member of this name is not there


class Held(Protocol):
    """What a member has, by the plan and under its session."""

    def assign(self, partitions: Iterable[int]) -> None: ...
    def sought(self) -> None: ...
    def all_lost(self) -> None: ...


class Session:
    """The session of a member. `up`: nodes with a connection."""

    def __init__(self, state: State, holding: Held) -> None:
        self._state, self._holding = state, holding
        self.up: set[int] = set()
        self.proof: bytes | None = None
        self._must_join = True
        self._join: int | None = None
        self._join_at = self._table_at = 0.0
        self._after = self._tries = 0
        self._attaching: dict[int, int] = {}  # by node: number of the call
        self._attach_at: dict[int, float] = {}
        self._pages: list[int] = []
        self._pages_of = -1  # generation
        self.has_left = False
        self._leave: int | None = None

    @property
    def nodes(self) -> set[int]:
        """The nodes that the member needs connections to."""
        return {HOME, *self._state.gate_nodes}

    def pump(self, now: float) -> None:
        """Make the calls that are due."""
        state = self._state
        if state.needs_table is not None and now >= self._table_at:
            state.effects.append(Refresh(state.needs_table))
            state.needs_table, self._table_at = None, now + TABLE_S
        asks = self._must_join or (state.session and (state.needs_plan or self._pages))
        if asks and self._join is None and now >= self._join_at and not state.is_closing:
            page = self._pages[-1] if self._pages else 0
            self._join = state.call(lambda number: Join(number, self._after, page), now).number
        if not state.session or self._must_join:
            return
        for node in self.nodes & self.up:
            is_free = node not in state.attached and node not in self._attaching
            if is_free and now >= self._attach_at.get(node, 0.0):
                self._attach(node, now)

    def _attach(self, node: int, now: float) -> None:
        call = self._state.call(lambda number: Attach(number, node, self._state.session, self.proof), now)
        self._attaching[node] = call.number

    # ---- connections -------------------------------------------------------------------------------------

    def down(self, node: int) -> None:
        """The connection to a node ended."""
        self.up.discard(node)
        self._detach(node)

    def _detach(self, node: int) -> None:
        self._state.attached.discard(node)
        self._attaching.pop(node, None)

    def attached(self, call: Attach, reply: Attached) -> bool:
        """A connection is bound. False: to a session of before, or it has ended."""
        state = self._state
        if self._attaching.get(call.node) != call.number:
            return False
        del self._attaching[call.node]
        if call.session != state.session or call.node not in self.up:
            return False
        state.attached.add(call.node)
        state.lease_s = reply.lease_s
        state.heard(reply.generation)
        return True

    def not_attached(self, node: int, now: float) -> None:
        """A node says that the connection is not bound: bind it again."""
        self._detach(node)
        self._attach_at[node] = now + RETRY_S

    def attach_failed(self, call: Attach, refusal: Refusal | None, now: float) -> None:
        """The connection was not bound. If the session is over, joining tells."""
        if self._attaching.get(call.node) != call.number:
            return
        del self._attaching[call.node]
        self._attach_at[call.node] = now + RETRY_S
        if refusal is not None and refusal.why is Why.NOT_ATTACHED:
            self._must_join, self._join_at = True, max(self._join_at, now)
        elif refusal is not None and refusal.why is Why.FINAL and refusal.error is not None:
            self._state.fail(refusal.error, is_final=True)

    # ---- plans -------------------------------------------------------------------------------------------

    def joined(self, call: Join, reply: Joined) -> None:
        """The session, and a page of the plan."""
        state, plan = self._state, reply.plan
        if call.number != self._join:
            return
        self._join, self._tries, self._after = None, 0, 0
        if not state.session and not self._must_join:
            return  # suspended meanwhile
        self._must_join = False
        self.proof, state.lease_s, state.rows_lease_s = reply.proof, reply.lease_s, reply.rows_lease_s
        if plan.session != state.session:
            if state.session:
                self._holding.all_lost()
            state.attached.clear()
            self._attaching.clear()
            state.session, state.generation, state.incarnation = plan.session, -1, 0
            self._pages = []
        if call.after_partition and plan.generation != self._pages_of:
            self._pages = []  # it changed between two pages: from the start
            return
        self._page(plan, is_first=not call.after_partition)

    def _page(self, plan: Plan, *, is_first: bool) -> None:
        pages = [] if is_first else self._pages
        pages += plan.partitions
        self._pages_of = plan.generation
        self._pages = pages if plan.more else []
        if not plan.more:
            self._apply(plan, pages)

    def pushed(self, plan: Plan) -> None:
        """A node told of a new plan by itself."""
        if plan.session != self._state.session:
            return
        self._state.heard(plan.generation)
        if not plan.more:
            self._apply(plan, plan.partitions)

    def _apply(self, plan: Plan, partitions: tuple[int, ...] | list[int]) -> None:
        state = self._state
        if plan.generation <= state.generation or state.is_closing:
            return
        is_sought = state.incarnation not in {0, plan.incarnation}
        state.generation, state.incarnation = plan.generation, plan.incarnation
        state.heard(plan.generation)
        if is_sought:
            self._holding.sought()
        self._holding.assign(partitions)
        if any(not state.routes.is_known(one) for one in partitions):
            state.needs_table = max(state.needs_table or 0, state.routes.version + 1)

    def join_failed(self, call: Join, refusal: Refusal | None, now: float) -> None:
        """The node did not register the member."""
        if call.number != self._join:
            return
        self._join = None
        self._tries += 1
        wait_s = min(RETRY_S_MAX, RETRY_S * 2.0 ** min(self._tries - 1, 9))
        self._join_at = now + max(wait_s, 0.0 if refusal is None else refusal.retry_after_s)
        if refusal is None or refusal.why in {Why.RETRY, Why.REDIRECT}:
            return
        if refusal.why is Why.NAME_TAKEN:
            self._name_taken(refusal, now)
        elif refusal.error is not None:
            self._join_at = float("inf")
            self._state.fall_silent(refusal.error)

    def replaced(self, error: Exception) -> None:
        """Another process acts for this session. Joining again would take it back, and so on for ever."""
        self._must_join, self._join_at = True, float("inf")
        self._state.attached.clear()
        self._attaching.clear()
        self._state.fall_silent(error)

    def _name_taken(self, refusal: Refusal, now: float) -> None:
        details = refusal.details
        if details.get("presence") == ABSENT or self._state.options.takeover:
            self._after, self._join_at = int(details.get("session", 0)), now
            return
        self._join_at = float("inf")
        self._state.fall_silent(
            MemberExistsError(
                f"another process is the member {self._state.options.name!r} of the cohort; choose another "
                "name, stop that process, or pass takeover=True",
                member=self._state.options.name,
                presence=details.get("presence", "unknown"),
            )
        )

    # ---- absence -----------------------------------------------------------------------------------------

    def suspend(self, now: float) -> None:
        """Leave, until `resume`."""
        self._tell_leave(now)
        self._state.session, self._state.generation, self._must_join = 0, -1, False
        self._state.attached.clear()
        self._attaching.clear()
        self._pages = []

    def resume(self) -> None:
        """Join again."""
        self._must_join, self.has_left = True, False

    # ---- the end -----------------------------------------------------------------------------------------

    def leave(self, now: float) -> None:
        """Tell the cluster that the member goes, once.

        A JOIN that is under way is waited for: carried out behind LEAVE, it would register a member that does
        nothing, and that keeps its partitions until its grace period is over.
        """
        if self._join is None:
            self._tell_leave(now)

    def is_over(self) -> bool:
        """Whether nothing is to be told of the session any more."""
        return self._join is None and (self.has_left or not self._state.session)

    def _tell_leave(self, now: float) -> None:
        if self._leave is None and self._state.session and not self.has_left:
            call = self._state.call(lambda number: Leave(number, self._state.session), now)
            self._leave = call.number

    def left(self, refusal: Refusal | None = None) -> None:
        """LEAVE was answered. A member that is not registered has left, too."""
        self._leave = None
        self.has_left = refusal is None or refusal.why not in {Why.RETRY, Why.REDIRECT}

    def retry_leave(self) -> None:
        """LEAVE got no answer: it is repeated, as long as the caller of `close` waits."""
        self._leave = None
