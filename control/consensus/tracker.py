"""Track the configuration with each member's progress and vote, at a leader or candidate."""

from __future__ import annotations

from collections.abc import Mapping

from ringfence.control.consensus import quorum
from ringfence.control.consensus.configuration import Configuration
from ringfence.control.consensus.joint_consensus import ProgressMap
from ringfence.control.consensus.progress import Progress
from ringfence.control.consensus.quorum import VoteResult
from ringfence.control.consensus.window import Window


class Tracker:
    """Members in ascending order of their ids: messages to all are sent in that order."""

    __slots__ = (
        "configuration",
        "inflight_bytes_max",
        "inflight_max",
        "members",
        "progress",
        "voters",
        "votes",
    )

    def __init__(self, inflight_max: int, inflight_bytes_max: int = 0) -> None:
        self.inflight_max, self.inflight_bytes_max = inflight_max, inflight_bytes_max
        self.configuration = Configuration()
        self.progress: ProgressMap = {}
        self.members: tuple[int, ...] = ()
        # Voters of both halves. Most members of a large cluster are learners; counting skips them.
        self.voters: tuple[int, ...] = ()
        self.votes: dict[int, bool] = {}

    def switch(self, configuration: Configuration, progress: ProgressMap) -> None:
        self.configuration, self.progress = configuration, progress
        self.members = tuple(sorted(progress))
        self.voters = tuple(sorted(configuration.voters))

    def window(self) -> Window:
        return Window(self.inflight_max, self.inflight_bytes_max)

    def new_progress(self, last_index: int, *, is_learner: bool) -> Progress:
        """The progress of a new node. It counts as active, because it has had no time to answer."""
        progress = Progress(next_index=max(last_index, 1), window=self.window(), is_learner=is_learner)
        progress.recent_active = True
        return progress

    def reset_progress(self, own_id: int, last_index: int) -> None:
        """Reset progress and votes for a new term; `own_id` has its own log."""
        for member, known in self.progress.items():
            self.progress[member] = Progress(
                next_index=last_index + 1,
                window=self.window(),
                match=last_index if member == own_id else 0,
                is_learner=known.is_learner,
            )

    def is_lone_voter(self, node: int) -> bool:
        """Whether `node` is the only voter."""
        return self.configuration.incoming == {node} and not self.configuration.outgoing

    def committed(self) -> int:
        """The greatest index that a (joint) majority has."""
        progress = self.progress
        return self.committed_of({voter: progress[voter].match for voter in self.voters})

    def committed_of(self, acknowledged: Mapping[int, int]) -> int:
        return quorum.joint_committed(self.configuration.incoming, self.configuration.outgoing, acknowledged)

    def quorum_is_active(self) -> bool:
        """Whether a (joint) majority has sent messages since the last check."""
        heard = {m: p.recent_active for m, p in self.progress.items() if not p.is_learner}
        return self._vote(heard) is VoteResult.WON

    def record_vote(self, voter: int, *, granted: bool) -> None:
        """Record a vote; only a node's first answer counts."""
        self.votes.setdefault(voter, granted)

    def tally(self) -> tuple[int, int, VoteResult]:
        """(granted, rejected, result); answers of learners and of non-members do not count."""
        counted = [
            self.votes[member]
            for member, progress in self.progress.items()
            if member in self.votes and not progress.is_learner
        ]
        return sum(counted), len(counted) - sum(counted), self._vote(self.votes)

    def _vote(self, votes: Mapping[int, bool]) -> VoteResult:
        return quorum.joint_vote(self.configuration.incoming, self.configuration.outgoing, votes)
