"""Transactions in simulated clusters: kept under all strikes, replayed alike; each broken promise is seen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import cache
from types import SimpleNamespace
from typing import Any

import pytest

from tests.sim.checks import scopes
from tests.sim.checks.ledger import Batch, Ledger, Published, Record, Stored
from tests.sim.checks.scopes import Commit, ScopeLedger
from tests.sim.checks.violation import ViolationError
from tests.sim.clients.content import body_of
from tests.sim.faults.plan import Plan
from tests.sim.simulation import Result, run

PLANS = [plan for plan in map(Plan.drawn, range(1, 70)) if plan.writers]
FEW = PLANS[:14]
SCOPE, DRIVER = 5, 9


@cache
def result(plan: Plan) -> Result:
    return run(plan)


def test_two_fifths_of_the_seeds_have_writers() -> None:
    share = sum(Plan.drawn(seed).writers > 0 for seed in range(500)) / 500
    assert 0.3 < share < 0.5
    assert {plan.replication for plan in FEW} == {1, 3}


@pytest.mark.parametrize("plan", FEW, ids=lambda plan: str(plan.seed))
def test_no_promise_is_broken(plan: Plan) -> None:
    broken = result(plan).violation
    assert broken is None, f"{broken}; replay: python -m tests.sim --seed {plan.seed}"


def test_writers_do_all_that_they_can() -> None:
    done = Counter[str]()
    for plan in FEW:
        done.update(result(plan).counts)
    wanted = {"driver_began", "driver_fenced", "attempt_dead", "attempt_late", "epoch_acknowledged"}
    wanted |= {"epoch_repeated", "epoch_expired", "epoch_already", "begin_conflict"}
    assert wanted <= done.keys(), f"never: {wanted - done.keys()}"
    assert done["epoch_acknowledged"] >= 25


def test_equal_seeds_give_equal_traces() -> None:
    plan = FEW[0]
    assert run(plan, is_told=True).trace == result(plan).trace


# ---- the promises, one by one ----


def state(
    committed: int, pending: list[Any], expired: int = 0, driver: int = DRIVER, instance: bytes = b"a"
) -> Any:
    scope = SimpleNamespace(
        name="s",
        driver=driver,
        instance=instance,
        committed=committed,
        pending=tuple(pending),
        expired=expired,
    )
    return SimpleNamespace(scopes={SCOPE: scope})


class Case:
    """Epochs 1 and 2, each with one attempt in partitions 11 and 12; in both there is a dead attempt, too."""

    def __init__(self) -> None:
        self.ledger = Ledger([11, 12])
        self.scopes = ScopeLedger(self.ledger)
        self.before: Any = SimpleNamespace(scopes={})
        self.scopes.asks("s", b"a", 0)
        self.commits = [self._committed(epoch) for epoch in (1, 2)]
        self.logs = {11: [*self._log(11, 1), *self._log(11, 2)], 12: [*self._log(12, 1), *self._log(12, 2)]}

    def _staged(self, epoch: int, token: bytes) -> scopes.Attempt:
        attempt = self.scopes.attempt(SCOPE, DRIVER, epoch, token)
        attempt.batches += [self.ledger.sent(-1, partition, 10) for partition in (11, 12)]
        return attempt

    def _committed(self, epoch: int) -> Commit:
        self._staged(epoch, b"dead%d" % epoch)
        commit = self.scopes.sends([self._staged(epoch, b"good%d" % epoch)])
        self.decide(epoch, commit.tokens)
        return commit

    def decide(self, epoch: int, tokens: frozenset[bytes], rows: int = 10) -> None:
        parts = [SimpleNamespace(partition=partition, rows=rows) for partition in (11, 12)]
        after = state(epoch, [SimpleNamespace(epoch=epoch, tokens=tuple(tokens), parts=parts)])
        self.scopes.decides(self.before, after)
        self.before = state(epoch, [])
        self.scopes.decides(after, self.before)

    def _log(self, partition: int, epoch: int, token: bytes = b"good") -> list[Record]:
        attempt = self.scopes.attempts[token + b"%d" % epoch]
        offset = (epoch - 1) * 10
        staged = [stored(batch, offset) for batch in attempt.batches if batch.partition == partition]
        return [Published(offset, 10, 3, b"%d" % epoch, SCOPE, epoch, (), staged), *staged]

    def check(self) -> None:
        for partition, records in self.logs.items():
            self.ledger.check(partition, records)
            self.scopes.check(partition, records)

    def dead(self) -> None:
        self.logs[11][:2] = self._log(11, 1, b"dead")

    def unordered(self) -> None:
        self.logs[12] = [*self._log(12, 2), *self._log(12, 1)]
        self.scopes.check(12, self.logs[12])

    def half(self) -> None:
        del self.logs[12][2:]

    def undecided(self) -> None:
        self._staged(3, b"good3")
        self.logs[11] += self._log(11, 3)

    def unlike(self) -> None:
        other = self.scopes.sends([self._staged(3, b"good3")])
        self.decide(3, other.tokens, rows=9)

    def fenced_and_decided(self) -> None:
        other = self.scopes.sends([self._staged(3, b"good3")])
        self.scopes.fenced(other)
        self.decide(3, other.tokens)

    def fenced_by_a_late_begin(self) -> None:
        self.scopes.asks("s", b"b", DRIVER)
        self.scopes.decides(self.before, state(2, [], driver=10, instance=b"b"))
        self.scopes.asks("s", b"c", DRIVER)
        self.scopes.decides(state(2, [], driver=10, instance=b"b"), state(2, [], driver=11, instance=b"c"))

    def acknowledged_for_nothing(self) -> None:
        self.scopes.acknowledged(self.scopes.sends([self._staged(3, b"good3")]))

    def forgotten(self) -> None:
        self.scopes.acknowledged(self.commits[1])
        self.scopes.began(SCOPE, 1, self.scopes.acknowledged_upto())

    def already_for_nothing(self) -> None:
        self.scopes.already(self.scopes.sends([self._staged(3, b"good3")]), own=None)

    def already_and_not_its_own(self) -> None:
        self.scopes.already(self.scopes.sends([self._staged(2, b"late2")]), own=True)

    def already_and_its_own(self) -> None:
        self.scopes.already(self.commits[1], own=False)

    def expired_and_decided(self) -> None:
        self.scopes.expired(SCOPE, 2)

    def staged_rows_gone(self) -> None:
        self.scopes.refused(self.scopes.sends([self._staged(3, b"good3")]), "0 are staged there")


def stored(batch: Batch, offset: int) -> Stored:
    return Stored(offset, batch.rows, batch.first, 3, body_of(batch.first, batch.rows))


def test_a_log_that_keeps_every_promise_passes() -> None:
    case = Case()
    case.scopes.acknowledged(case.commits[1])
    case.scopes.began(SCOPE, 2, case.scopes.acknowledged_upto())
    case.scopes.already(case.commits[0], own=True)
    case.scopes.already(case.scopes.sends([case._staged(2, b"late2")]), own=False)
    case.check()


def test_an_answer_that_is_late_may_not_know_what_was_acknowledged_after_it_was_asked_for() -> None:
    case = Case()
    case.scopes.acknowledged(case.commits[0])
    known = case.scopes.acknowledged_upto()
    case.scopes.acknowledged(case.commits[1])
    case.scopes.began(SCOPE, 1, known)
    with pytest.raises(ViolationError, match="begins at 0, epoch 1 was acknowledged"):
        case.scopes.began(SCOPE, 0, known)


@pytest.mark.parametrize(
    ("broken", "name"),
    [
        (Case.dead, scopes.WHOLE),
        (Case.unordered, scopes.IN_ORDER),
        (Case.half, scopes.WHOLE),
        (Case.undecided, scopes.WHOLE),
        (Case.unlike, scopes.DECIDED),
        (Case.fenced_and_decided, scopes.DECIDED),
        (Case.fenced_by_a_late_begin, scopes.FENCED),
        (Case.acknowledged_for_nothing, scopes.ACKNOWLEDGED),
        (Case.forgotten, scopes.ACKNOWLEDGED),
        (Case.already_for_nothing, scopes.ACKNOWLEDGED),
        (Case.already_and_not_its_own, scopes.ACKNOWLEDGED),
        (Case.already_and_its_own, scopes.ACKNOWLEDGED),
        (Case.expired_and_decided, scopes.DECIDED),
        (Case.staged_rows_gone, scopes.STAGED),
    ],
)
def test_a_broken_promise_is_seen(broken: Callable[[Case], None], name: str) -> None:
    case = Case()

    def seen() -> None:
        broken(case)
        case.check()

    with pytest.raises(ViolationError) as caught:
        seen()
    assert caught.value.invariant == name
