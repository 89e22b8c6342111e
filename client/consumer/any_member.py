"""What drives a member need of it, whatever the mode of its cohort. Pure."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from ringfence.consumer.calls import (
    HOME,
    Attach,
    Attached,
    Beat,
    Claim,
    Fetch,
    Join,
    Joined,
    Leave,
    Renewed,
    Settle,
    Why,
)
from ringfence.consumer.queue_calls import QueueFetch, QueueSettle

if TYPE_CHECKING:
    from ringfence.consumer.absence import Absence
    from ringfence.consumer.beats import Beats
    from ringfence.consumer.calls import Call, Effect, Plan, Refusal, Reply
    from ringfence.consumer.routes import Routes
    from ringfence.consumer.session import Session
    from ringfence.consumer.state import State
    from ringfence.consumer.values import Task


# Requests about rows that the member has, and all that need a connection that is bound to the session.
OfRows = Settle | QueueSettle | Beat
Bound = Fetch | QueueFetch | Settle | QueueSettle | Claim | Beat


class AnyMember(ABC):
    """A member as a state machine: events in, calls out."""

    state: State
    session: Session
    beats: Beats
    absence: Absence

    def look_silent(self) -> None:
        """Something waits for owners: if these hear nothing more, it waits no longer."""
        if self.state.silent_error is not None:
            self.end_waiting(self.state.silent_error)

    @abstractmethod
    def end_waiting(self, error: Exception) -> None:
        """No owner will answer: all that waits for one hears this error."""

    def take(self) -> list[Effect]:
        """What is to be carried out since the last call."""
        effects, self.state.effects = self.state.effects, []
        return effects

    def next_task(self) -> Task | None:
        """A callback that is due, in order."""
        return self.state.tasks.popleft() if self.state.tasks else None

    def take_error(self) -> Exception | None:
        """The error that the application must hear: once, or each time if the member cannot go on."""
        error, self.state.error = self.state.error, None
        return self.state.final_error or error

    @abstractmethod
    def tick(self, now: float) -> None: ...
    @abstractmethod
    def down(self, node: int, now: float) -> None: ...
    @abstractmethod
    def routed(self, routes: Routes) -> None: ...
    @abstractmethod
    def pushed(self, plan: Plan) -> None: ...
    @abstractmethod
    def done(self, task: Task) -> None: ...
    @abstractmethod
    def close(self, *, leave: bool) -> None: ...
    @abstractmethod
    def waits_for(self) -> list[int]: ...

    @property
    @abstractmethod
    def is_closed(self) -> bool: ...

    # ---- what nodes say of calls -------------------------------------------------------------------------
    #
    # Those of the session are the same in all modes; the mode takes the others.

    def up(self, node: int) -> None:
        """There is a connection to a node."""
        self.session.up.add(node)

    def lose_calls(self, node: int, now: float) -> None:
        """The connection to a node ended: what is under way there has no answer."""
        lost = [call for call, _ in self.state.calls.values() if getattr(call, "node", None) == node]
        for call in lost:
            self.unanswered(call.number, now)

    def answered(self, number: int, reply: Reply, now: float) -> None:
        """A node carried out a call."""
        known = self.state.calls.pop(number, None)
        if known is None:
            self._came_late(reply, now)
            return
        call, made_at = known
        self.absence.heard(getattr(call, "node", HOME), now)
        match call, reply:
            case (Join(), Joined()):
                self.session.joined(call, reply)
            case (Attach(), Attached()):
                if self.session.attached(call, reply):
                    self._attached(call.node)
            case (Beat(), Renewed()):
                self.beats.renewed(call, reply, made_at)
                self.beats.ended(call)
            case (Leave(), _):
                self.session.left()
            case _:
                self._answered(call, reply, made_at, now)

    def refused(self, number: int, refusal: Refusal, now: float) -> None:
        """A node refused a call."""
        known = self.state.calls.pop(number, None)
        if known is None:
            return
        call, made_at = known
        self.absence.heard(getattr(call, "node", HOME), now)
        if refusal.why is Why.NOT_ATTACHED and isinstance(call, Bound):
            self.session.not_attached(call.node, now)
        match call:
            case Join():
                self.session.join_failed(call, refusal, now)
            case Attach():
                self.session.attach_failed(call, refusal, now)
            case Beat():
                self.beats.ended(call)
            case Leave():
                self.session.left(refusal)
            case _:
                self._refused(call, refusal, made_at, now)
        if refusal.why is Why.REPLACED and refusal.error is not None and not isinstance(call, Join):
            self.session.replaced(refusal.error)
        if refusal.why is Why.FINAL and isinstance(call, OfRows) and refusal.error is not None:
            self.state.fail(refusal.error, is_final=True)

    def unanswered(self, number: int, now: float) -> None:
        """A call got no answer."""
        known = self.state.calls.pop(number, None)
        if known is None:
            return
        call, _ = known
        match call:
            case Join():
                self.session.join_failed(call, None, now)
            case Attach():
                self.session.attach_failed(call, None, now)
            case Beat():
                self.beats.ended(call)
            case Leave():
                self.session.retry_leave()
            case _:
                self._unanswered(call, now)

    @abstractmethod
    def _answered(self, call: Call, reply: Reply, made_at: float, now: float) -> None: ...
    @abstractmethod
    def _refused(self, call: Call, refusal: Refusal, made_at: float, now: float) -> None: ...
    @abstractmethod
    def _unanswered(self, call: Call, now: float) -> None: ...

    @abstractmethod
    def _attached(self, node: int) -> None:
        """A node serves the session from now on."""

    @abstractmethod
    def _came_late(self, reply: Reply, now: float) -> None:
        """A reply to a call that counts as lost."""
