"""Define the configuration: voters and learners, as an immutable value, possibly joint."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ringfence.control.consensus.messages import ConfigurationState

NO_IDS: Final[frozenset[int]] = frozenset()


@dataclass(frozen=True, slots=True)
class Configuration:
    """Joint while `outgoing` is not empty: then both `incoming` and `outgoing` must agree.

    `learners_next` are outgoing voters that become learners when the joint configuration is left: no node can
    be voter and learner at the same time.
    """

    incoming: frozenset[int] = NO_IDS
    outgoing: frozenset[int] = NO_IDS
    learners: frozenset[int] = NO_IDS
    learners_next: frozenset[int] = NO_IDS
    auto_leave: bool = False

    @property
    def is_joint(self) -> bool:
        return bool(self.outgoing)

    @property
    def voters(self) -> frozenset[int]:
        """The voters of both halves."""
        return self.incoming | self.outgoing

    def state(self) -> ConfigurationState:
        return ConfigurationState(
            voters=tuple(sorted(self.incoming)),
            voters_outgoing=tuple(sorted(self.outgoing)),
            learners=tuple(sorted(self.learners)),
            learners_next=tuple(sorted(self.learners_next)),
            auto_leave=self.auto_leave,
        )
