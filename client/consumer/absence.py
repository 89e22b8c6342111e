"""Leave the cohort for a while, so that others get the partitions that this process cannot read. Pure.

Two reasons: the application has not come back for `work_timeout_s`, or an owner does not answer while other
nodes do. In the first case the member joins again when the application comes back, in the second after a
while: if no process can reach the owner, another one is elected, and the plan changes without this. Members
of a QUEUE have no partitions to give up: they leave for the first reason only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ringfence.consumer.calls import HOME, Note

if TYPE_CHECKING:
    from ringfence.consumer.session import Held, Session
    from ringfence.consumer.state import State

# The default grace period of a cluster: after it the owner's failover is over, if there is one.
SILENT_S: Final = 30.0
# Another node answered within this time: the network of this process works.
RECENT_S: Final = 10.0
# Away for so long, then twice as long, up to an hour. Short at first: where no process reaches the owner of
# a partition that has lost its majority, all members leave, and are to read soon after it is back.
AWAY_S, AWAY_S_MAX = 30.0, 3600.0
LOOK_S: Final = 1.0


class Absence:
    """Decides when to leave, and when to come back."""

    def __init__(self, state: State, holding: Held, session: Session, *, has_partitions: bool = True) -> None:
        """`has_partitions`: the plan gives what this member leaves to others."""
        self._has_partitions = has_partitions
        self._state, self._holding, self._session = state, holding, session
        self._heard: dict[int, float] = {}  # by node: its last answer
        self._needed: dict[int, float] = {}  # by node: since when it has gates of this member
        self._came_at: float | None = None  # when the application asked last
        self._look_at = 0.0
        self._back_at: float | None = None
        self._away_s = AWAY_S
        self.is_working_too_long = False

    def heard(self, node: int, now: float) -> None:
        """A node answered."""
        self._heard[node] = now

    def came(self, now: float) -> None:
        """The application asks for rows."""
        self._came_at = now
        if self.is_working_too_long:
            self.is_working_too_long = False
            self._session.resume()

    def pump(self, now: float) -> None:
        """Look once a second."""
        if now < self._look_at or self._state.is_closing:
            return
        self._look_at = now + LOOK_S
        if self._back_at is not None and now >= self._back_at:
            self._back_at = None
            self._session.resume()
        if self._state.session:
            self._look_at_work(now)
            if self._has_partitions:
                self._look_at_nodes(now)

    def _look_at_work(self, now: float) -> None:
        timeout_s = self._state.options.work_timeout_s
        if timeout_s is None or self._came_at is None or now - self._came_at < timeout_s:
            return
        self.is_working_too_long = True
        self._leave(f"the application has not asked for rows for {timeout_s:g} s", now)

    def _look_at_nodes(self, now: float) -> None:
        nodes = self._session.nodes - {HOME}
        self._needed = {node: self._needed.get(node, now) for node in nodes}
        silent = [one for one in nodes if now - max(self._heard.get(one, 0.0), self._needed[one]) >= SILENT_S]
        others = [one for one, at in self._heard.items() if one not in silent and now - at <= RECENT_S]
        if nodes and all(now - self._heard.get(one, 0.0) <= RECENT_S for one in nodes):
            self._away_s = AWAY_S
        if silent and others:
            self._back_at = now + self._away_s
            self._leave(f"node {min(silent)} does not answer, and others do; back in {self._away_s:g} s", now)
            self._away_s = min(AWAY_S_MAX, 2 * self._away_s)

    def _leave(self, why: str, now: float) -> None:
        self._state.effects.append(Note(f"the member leaves the cohort: {why}"))
        self._session.suspend(now)
        self._holding.all_lost()
        self._needed.clear()
