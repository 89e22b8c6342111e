"""Check Raft's safety properties of a whole cluster (paper, figure 3) after each step.

A test or a simulator, which has all nodes of a cluster, reports their steps. The checker stores committed
entries and leaders, and raises AssertionError at the first contradiction. Its memory grows with the log; a
running node does not use it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ringfence.control.consensus.core import Core, Role
from ringfence.control.consensus.messages import Entry
from ringfence.control.consensus.quorum import INFINITY, joint_committed
from ringfence.control.consensus.storage import Storage


class Safety:
    """The history of one cluster."""

    def __init__(self) -> None:
        self.leaders: dict[int, int] = {}
        # Committed entries by index, as the first node applied them.
        self.committed: dict[int, Entry] = {}
        self.applied_max = 0
        self._commits: dict[int, int] = {}  # By leader's term: the greatest commit index that was checked.

    def check(self, core: Core, stores: Mapping[int, Storage]) -> None:
        """Check after a step of any node. `stores` are the durable logs of all nodes."""
        if core.role is not Role.LEADER:
            return
        known = self.leaders.setdefault(core.term, core.id)
        assert known == core.id, f"election safety: {known} and {core.id} both lead term {core.term}"
        if core.term not in self._commits:
            self._check_completeness(core)
            self._commits[core.term] = (
                core.log.commit
            )  # Inherited entries were committed by another configuration.
        if core.log.commit > self._commits[core.term]:
            self._commits[core.term] = core.log.commit
            self._check_durable(core, stores)

    def applied(self, node: int, entries: Iterable[Entry]) -> None:
        """Check the entries that a node applies."""
        for entry in entries:
            known = self.committed.setdefault(entry.index, entry)
            assert known == entry, (
                f"state machine safety: node {node} applied {entry} at {entry.index}, another one {known}"
            )
            self.applied_max = max(self.applied_max, entry.index)
            if entry.index > max(self._commits.values(), default=0):
                self._commits[0] = entry.index  # Committed before the first check.

    def check_log(self, node: int, index: int, term: int | None) -> None:
        """Check that a log or snapshot with `term` at a committed index agrees; None = compacted."""
        known = self.committed.get(index)
        assert known is None or term is None or known.term == term, (
            f"node {node} has term {term} at {index}, where term {known.term} is committed"
        )

    def _check_completeness(self, core: Core) -> None:
        """Check that a new leader has the entries that earlier terms committed.

        A paused node may receive the votes of an old term late, and lead that term while a later one commits
        already. It may lack those later entries, and cannot commit any.
        """
        first = core.log.first_index()
        last = max((at for term, at in self._commits.items() if term < core.term), default=0)
        for index, entry in self.committed.items():
            if first <= index <= last:
                own = core.log.term(index)
                assert own == entry.term, (
                    f"leader completeness: {core.id} leads term {core.term} with term {own} at {index}, but "
                    f"term {entry.term} is committed there"
                )

    def _check_durable(self, core: Core, stores: Mapping[int, Storage]) -> None:
        """Check that the entries a leader commits are on the disks of a (joint) majority."""
        index = core.log.commit
        term = core.log.term(index)
        have = {
            node: index
            for node, store in stores.items()
            if store.first_index() > index or store.term(index) == term
        }
        configuration = core.tracker.configuration
        durable = joint_committed(configuration.incoming, configuration.outgoing, have)
        assert durable in (index, INFINITY), (
            f"durability: {core.id} committed {index} of term {term}, which only {sorted(have)} hold on "
            f"disk; voters are {sorted(configuration.incoming)} and {sorted(configuration.outgoing)}"
        )
