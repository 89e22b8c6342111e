"""Transactions: what writers staged and asked for, what the log decided, and what must be true of it.

Each decided epoch is in every partition that it names, whole and once, or in none; a scope's epochs ascend in
each; nothing is there of an attempt that no decided commit names; what a writer was told stays so.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ringfence.control.model.state import MetadataState
from tests.sim.checks.ledger import Batch, Ledger, Published, Record
from tests.sim.checks.violation import ViolationError

if TYPE_CHECKING:
    from tests.sim.world.machine import Machine

ACKNOWLEDGED: Final = "acknowledged commit"
IN_ORDER: Final = "epochs in order"
WHOLE: Final = "all or nothing"
DECIDED: Final = "decided as asked for"
STAGED: Final = "staged, then lost"
FENCED: Final = "fenced by who knew it"


@dataclass(slots=True)
class Attempt:
    """What one driver stages under one token; by partition in the order of its sequences."""

    scope: int
    driver: int
    epoch: int
    token: bytes
    batches: list[Batch] = field(default_factory=list)

    def rows(self) -> dict[int, int]:
        """Rows by partition."""
        found: dict[int, int] = defaultdict(int)
        for batch in self.batches:
            found[batch.partition] += batch.rows
        return dict(found)


@dataclass(frozen=True, slots=True)
class Commit:
    """One COMMIT as a driver sends it, perhaps several times."""

    scope: int
    driver: int
    epoch: int
    tokens: frozenset[bytes]
    rows: tuple[tuple[int, int], ...]
    """By partition."""

    def __str__(self) -> str:
        return f"epoch {self.epoch} of scope {self.scope} by driver {self.driver}"


class ScopeLedger:
    """All scopes of one cluster. `newest` is what anybody has applied, as the log says it."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.newest: MetadataState | None = None
        self.attempts: dict[bytes, Attempt] = {}
        self.decided: dict[tuple[int, int], frozenset[bytes]] = {}
        self._asked: dict[tuple[int, int], list[Commit]] = defaultdict(list)
        self._begins: set[tuple[str, bytes, int]] = set()  # (scope's name, instance, driver that it fences)
        self._never: dict[tuple[int, int, int], str] = {}  # (scope, driver, epoch): why nobody decides it
        self._expired: dict[int, int] = {}
        self._acknowledged: dict[int, int] = {}

    # ---- what happens ----

    def attempt(self, scope: int, driver: int, epoch: int, token: bytes) -> Attempt:
        made = self.attempts[token] = Attempt(scope, driver, epoch, token)
        return made

    def sends(self, attempts: Iterable[Attempt]) -> Commit:
        """A driver is about to commit these, all of one epoch, each batch of which was told to be staged."""
        chosen = list(attempts)
        rows: dict[int, int] = defaultdict(int)
        for attempt in chosen:
            for partition, count in attempt.rows().items():
                rows[partition] += count
        first = chosen[0]
        tokens = frozenset(attempt.token for attempt in chosen)
        commit = Commit(first.scope, first.driver, first.epoch, tokens, tuple(sorted(rows.items())))
        self._asked[first.scope, first.epoch].append(commit)
        return commit

    def asks(self, name: str, instance: bytes, after: int) -> None:
        """A driver is about to begin a scope, and knows this driver of it."""
        self._begins.add((name, instance, after))

    def decides(self, before: MetadataState, after: MetadataState) -> None:
        """An entry was applied for the first time."""
        self.newest = after
        if before.scopes is after.scopes:
            return
        for number, scope in after.scopes.items():
            was = before.scopes.get(number)
            fences = 0 if was is None else int(was.driver)
            if scope.driver != fences and (scope.name, scope.instance, fences) not in self._begins:
                what = f"driver {scope.driver} of scope {number} fences {fences}, which no BEGIN knew"
                raise ViolationError(FENCED, what)
            if scope.committed == (0 if was is None else was.committed):
                continue
            what = f"epoch {scope.committed} of scope {number}"
            decided = next((each for each in scope.pending if each.epoch == scope.committed), None)
            if decided is None or (was is not None and scope.committed < was.committed):
                raise ViolationError(DECIDED, f"{what} is committed, with nothing to be published")
            tokens = frozenset(decided.tokens)
            rows = tuple(sorted((int(part.partition), part.rows) for part in decided.parts))
            asked = self._asked[int(number), scope.committed]
            fits = [each for each in asked if (each.tokens, each.rows) == (tokens, rows)]
            if not fits or scope.committed <= self._expired.get(int(number), 0):
                raise ViolationError(DECIDED, f"{what} is committed with {rows}, asked for were {asked}")
            if all((each.scope, each.driver, each.epoch) in self._never for each in fits):
                raise ViolationError(
                    DECIDED, f"{what} is committed by a driver that was told that it is fenced"
                )
            self.decided[int(number), scope.committed] = tokens

    def acknowledged_upto(self) -> dict[int, int]:
        """The newest acknowledged epoch by scope, as of now."""
        return dict(self._acknowledged)

    def began(self, scope: int, committed: int, known: Mapping[int, int]) -> None:
        """A driver was told what is committed. `known`: what was acknowledged when it asked; an answer
        may be late, and then says nothing of what another driver was told in between."""
        acknowledged = known.get(scope, 0)
        if committed < acknowledged:
            what = f"scope {scope} begins at {committed}, epoch {acknowledged} was acknowledged"
            raise ViolationError(ACKNOWLEDGED, what)

    def acknowledged(self, commit: Commit) -> None:
        """Its rows may be read, so says a node."""
        key = commit.scope, commit.epoch
        self._acknowledged[commit.scope] = max(commit.epoch, self._acknowledged.get(commit.scope, 0))
        if self.decided.get(key) != commit.tokens:
            raise ViolationError(ACKNOWLEDGED, f"{commit} was acknowledged and is not what was decided")
        waiting = () if self.newest is None else self.newest.scopes[commit.scope].pending  # type: ignore[index]
        if any(each.epoch == commit.epoch for each in waiting):
            raise ViolationError(
                ACKNOWLEDGED, f"{commit} was acknowledged before it was published everywhere"
            )

    def already(self, commit: Commit, own: bool | None) -> None:
        """It was committed before, so says a node: `own`, by an earlier try; not so, by somebody else."""
        known = 0 if self.newest is None else self.newest.scopes[commit.scope].committed  # type: ignore[index]
        if known < commit.epoch:
            raise ViolationError(ACKNOWLEDGED, f"{commit} is told to be committed already, {known} is")
        if own is not None and own is not (self.decided.get((commit.scope, commit.epoch)) == commit.tokens):
            whose = "its own" if own else "another's"
            raise ViolationError(ACKNOWLEDGED, f"{commit} is told to be committed already, and {whose}")

    def fenced(self, commit: Commit) -> None:
        """Another driver is at work, and the epoch is not committed: this one commits nothing any more."""
        self._never[commit.scope, commit.driver, commit.epoch] = "fenced"
        if self.decided.get((commit.scope, commit.epoch)) == commit.tokens:
            raise ViolationError(ACKNOWLEDGED, f"{commit} was told to be fenced, and is decided")

    def expired(self, scope: int, epoch: int) -> None:
        """An epoch was given up, so says a node."""
        self._expired[scope] = max(epoch, self._expired.get(scope, 0))
        if (scope, epoch) in self.decided:
            raise ViolationError(DECIDED, f"epoch {epoch} of scope {scope} expired, and is decided")

    def refused(self, commit: Commit, why: str) -> None:
        """Other rows are staged than it names: not so, unless the epoch was given up or bytes rotted."""
        known = None if self.newest is None else self.newest.scopes.get(commit.scope)  # type: ignore[call-overload]
        if self._ledger.rots or (known is not None and known.expired >= commit.epoch):
            return
        raise ViolationError(STAGED, f"{commit} is refused: {why}")

    # ---- what must hold ----

    def unpublished(self, state: MetadataState, machines: dict[int, Machine]) -> str:
        """Which decided part waits for its publish; empty when none does that could be published."""
        for number, scope in sorted(state.scopes.items()):
            for commit in scope.pending:
                for part in commit.parts:
                    topic = state.topics[part.topic]
                    owner = machines.get(int(topic.assignments[part.partition].owner.node))
                    if owner is None or not _is_quarantined(owner, int(part.partition)):
                        return f"epoch {commit.epoch} of scope {number} waits for partition {part.partition}"
        return ""

    def check(self, partition: int, records: Iterable[Record]) -> None:
        """The whole log of a partition, from its start."""
        seen: dict[int, list[int]] = defaultdict(list)
        for publish in records:
            if not isinstance(publish, Published):
                continue
            name = f"partition {partition}: epoch {publish.number} of scope {publish.scope}"
            epochs = seen[publish.scope]
            if epochs and publish.number <= epochs[-1]:
                raise ViolationError(IN_ORDER, f"{name} stands behind {epochs[-1]}")
            epochs.append(publish.number)
            tokens = self.decided.get((publish.scope, publish.number))
            if tokens is None:
                raise ViolationError(WHOLE, f"{name} is published, nobody decided it")
            self._check_rows(name, partition, tokens, publish)
        self._check_missing(partition, seen)

    def _check_rows(self, name: str, partition: int, tokens: frozenset[bytes], publish: Published) -> None:
        """Each batch of its attempts once, those of one attempt in their order, and no other."""
        found = [record.first for record in publish.staged]
        left = set(found)
        for token in sorted(tokens):
            wanted = [each.first for each in self.attempts[token].batches if each.partition == partition]
            if [first for first in found if first in set(wanted)] != wanted:
                raise ViolationError(WHOLE, f"{name} has the batches {found}, its attempt staged {wanted}")
            left -= set(wanted)
        if left:
            raise ViolationError(WHOLE, f"{name} has batches of attempts that were not committed: {left}")

    def _check_missing(self, partition: int, seen: dict[int, list[int]]) -> None:
        part = self._ledger.partitions[partition]
        if part.lost_below:
            return
        for (scope, epoch), tokens in self.decided.items():
            epochs = seen.get(scope, [])
            if epoch in epochs or all(partition not in self.attempts[token].rows() for token in tokens):
                continue
            if part.start and not any(each < epoch for each in epochs):
                continue  # it lies below the start
            what = f"epoch {epoch} of scope {scope} is decided and not in it, which has {epochs}"
            raise ViolationError(WHOLE, f"partition {partition}: {what}")


def _is_quarantined(machine: Machine, partition: int) -> bool:
    if not machine.host.running:
        return False
    known = machine.host.node.partitions()
    return any(each["partition"] == partition and each["quarantined"] is not None for each in known)
