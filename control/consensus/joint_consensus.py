"""Compute the next configuration: simple changes of one voter, and joint consensus for all others.

All functions work on copies, so a refused change has no effect. Section 4 of Ongaro's Raft thesis, with
etcd's rules for learners. A simple change is safe because two majorities that differ by one voter overlap.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol

from ringfence.control.consensus.configuration import Configuration
from ringfence.control.consensus.configuration_changes import NodeChange, Operation
from ringfence.control.consensus.errors import ChangeError
from ringfence.control.consensus.messages import ConfigurationState
from ringfence.control.consensus.progress import Progress

ProgressMap = dict[int, Progress]
Changed = tuple[Configuration, ProgressMap]


class NewProgress(Protocol):
    """Creates the progress of a new node."""

    def __call__(self, *, is_learner: bool) -> Progress: ...


def simple(
    configuration: Configuration,
    progress: ProgressMap,
    operations: Iterable[NodeChange],
    new_progress: NewProgress,
) -> Changed:
    """Apply operations that change at most one voter.

    Raises:
        ChangeError: they change several voters, the configuration is joint, or no voter would be left.
    """
    if configuration.is_joint:
        raise ChangeError("can't apply simple config change in joint config")
    draft = _Draft(configuration, progress, new_progress)
    draft.apply(operations)
    if len(configuration.incoming ^ draft.incoming) > 1:
        raise ChangeError("more than one voter changed without entering joint config")
    return draft.result()


def enter_joint(
    configuration: Configuration,
    progress: ProgressMap,
    operations: Iterable[NodeChange],
    new_progress: NewProgress,
    *,
    auto_leave: bool,
) -> Changed:
    """Apply any operations; until `leave_joint` the old voters must also agree to every decision.

    Raises:
        ChangeError: the configuration is joint already, or has no voter, or no voter would be left.
    """
    if configuration.is_joint:
        raise ChangeError("config is already joint")
    if not configuration.incoming:
        raise ChangeError("can't make a zero-voter config joint")
    draft = _Draft(configuration, progress, new_progress)
    draft.outgoing = configuration.incoming
    draft.apply(operations)
    draft.auto_leave = auto_leave
    return draft.result()


def leave_joint(configuration: Configuration, progress: ProgressMap) -> Changed:
    """Continue with the incoming voters only.

    Raises:
        ChangeError: the configuration is not joint.
    """
    if not configuration.is_joint:
        raise ChangeError("can't leave a non-joint config")
    kept = dict(progress)
    for node in configuration.learners_next:
        kept[node] = _as_learner(kept[node], is_learner=True)
    learners = configuration.learners | configuration.learners_next
    for node in configuration.outgoing - configuration.incoming - learners:
        del kept[node]
    return _checked(Configuration(incoming=configuration.incoming, learners=learners), kept)


def restored(state: ConfigurationState, new_progress: NewProgress) -> Changed:
    """Build the configuration of a snapshot, by the steps that lead to it from an empty one."""
    voters = [NodeChange(Operation.VOTER, node) for node in state.voters]
    learners = [NodeChange(Operation.LEARNER, node) for node in state.learners]
    configuration, progress = _EMPTY, ProgressMap()
    if not state.voters_outgoing:
        for step in voters + learners:
            configuration, progress = simple(configuration, progress, [step], new_progress)
        return configuration, progress
    for node in state.voters_outgoing:
        step = NodeChange(Operation.VOTER, node)
        configuration, progress = simple(configuration, progress, [step], new_progress)
    steps = [NodeChange(Operation.REMOVE, node) for node in state.voters_outgoing]
    steps += voters + learners
    steps += [NodeChange(Operation.LEARNER, node) for node in state.learners_next]
    return enter_joint(configuration, progress, steps, new_progress, auto_leave=state.auto_leave)


_EMPTY: Final = Configuration()


class _Draft:
    """A mutable configuration, while operations are applied to it."""

    def __init__(
        self, configuration: Configuration, progress: ProgressMap, new_progress: NewProgress
    ) -> None:
        self.incoming, self.outgoing = configuration.incoming, configuration.outgoing
        self.learners, self.learners_next = configuration.learners, configuration.learners_next
        self.auto_leave = configuration.auto_leave
        self.progress = dict(progress)
        self._new_progress = new_progress

    def apply(self, operations: Iterable[NodeChange]) -> None:
        for change in operations:
            if change.node == 0:
                continue  # A revoked operation: etcd sets its id to zero in place.
            if change.operation is Operation.VOTER:
                self._make_voter(change.node)
            elif change.operation is Operation.LEARNER:
                self._make_learner(change.node)
            elif change.operation is Operation.REMOVE:
                self._remove(change.node)
        if not self.incoming:
            raise ChangeError("removed all voters")

    def result(self) -> Changed:
        configuration = Configuration(
            self.incoming, self.outgoing, self.learners, self.learners_next, self.auto_leave
        )
        return _checked(configuration, self.progress)

    def _make_voter(self, node: int) -> None:
        known = self.progress.get(node)
        self.progress[node] = (
            self._new_progress(is_learner=False) if known is None else _as_learner(known, is_learner=False)
        )
        self.learners -= {node}
        self.learners_next -= {node}
        self.incoming |= {node}

    def _make_learner(self, node: int) -> None:
        known = self.progress.get(node)
        if known is None:
            self.progress[node] = self._new_progress(is_learner=True)
            self.learners |= {node}
        elif not known.is_learner:
            self._remove(node)
            if node in self.outgoing:
                self.progress[node] = known
                self.learners_next |= {node}
            else:
                self.progress[node] = _as_learner(known, is_learner=True)
                self.learners |= {node}

    def _remove(self, node: int) -> None:
        if node not in self.progress:
            return
        self.incoming -= {node}
        self.learners -= {node}
        self.learners_next -= {node}
        if node not in self.outgoing:
            del self.progress[node]


def _as_learner(progress: Progress, *, is_learner: bool) -> Progress:
    twin = progress.copy()
    twin.is_learner = is_learner
    return twin


def _checked(configuration: Configuration, progress: ProgressMap) -> Changed:
    """Check the invariants of a configuration, and return it."""
    members = configuration.voters | configuration.learners | configuration.learners_next
    assert members == progress.keys(), f"{members} are members, progress exists for {sorted(progress)}"
    assert configuration.learners_next <= configuration.outgoing, (
        "only an outgoing voter waits to be a learner"
    )
    assert not configuration.learners & configuration.voters, "a voter is no learner"
    assert all(progress[node].is_learner == (node in configuration.learners) for node in members)
    assert configuration.is_joint or not (configuration.learners_next or configuration.auto_leave)
    return configuration, progress
