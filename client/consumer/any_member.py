"""What drives a member need of it, whatever the mode of its cohort. Pure."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ringfence.consumer.calls import Effect, Plan, Refusal, Reply
    from ringfence.consumer.routes import Routes
    from ringfence.consumer.session import Session
    from ringfence.consumer.state import State
    from ringfence.consumer.values import Task


class AnyMember(ABC):
    """A member as a state machine: events in, calls out."""

    state: State
    session: Session

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
    def up(self, node: int) -> None: ...
    @abstractmethod
    def down(self, node: int, now: float) -> None: ...
    @abstractmethod
    def routed(self, routes: Routes) -> None: ...
    @abstractmethod
    def pushed(self, plan: Plan) -> None: ...
    @abstractmethod
    def answered(self, number: int, reply: Reply, now: float) -> None: ...
    @abstractmethod
    def refused(self, number: int, refusal: Refusal, now: float) -> None: ...
    @abstractmethod
    def unanswered(self, number: int, now: float) -> None: ...
    @abstractmethod
    def done(self, task: Task) -> None: ...
    @abstractmethod
    def close(self, *, leave: bool) -> None: ...
    @abstractmethod
    def waits_for(self) -> list[int]: ...

    @property
    @abstractmethod
    def is_closed(self) -> bool: ...
