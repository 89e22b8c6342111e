"""What a transaction with a consumer does when its COMMIT is refused, is lost, or has no outcome."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ringfence import consuming_transaction as module
from ringfence.admin import Admin
from ringfence.common.scope_values import Begun
from ringfence.consuming_transaction import ConsumingTransaction
from ringfence.native.cluster_messages import ScopeCommit
from ringfence.native.errors import (
    ConflictError,
    DeadlineError,
    FencedError,
    InvalidArgumentError,
    RetriableError,
    RingfenceError,
    UnknownOutcomeError,
)
from ringfence.native.wire import Code

if TYPE_CHECKING:
    from concurrent.futures import Future

    from ringfence.common.codec import Answer
    from ringfence.network.request import Request


class Staged:
    """The rows of the block."""

    rows, already, token = 7, False, b"t" * 16


class Attempt:
    names: dict[int, str]

    def finish(self) -> Staged:
        return Staged()

    def close(self) -> None:
        """Nothing is under way."""


class FakeScopes:
    """`answers` to COMMITs, in order: whether this block committed, or an error. `calls`: what was asked."""

    def __init__(self, *answers: bool | RingfenceError) -> None:
        self.answers = [*answers]
        self.calls: list[str] = []
        self.expire_error: RingfenceError | None = None

    def begin(self, scope: str, *, topic: str | None, one_off: bool) -> Begun:
        assert (scope, topic, one_off) == ("consume/5/m", "t", True)
        return Begun(3, 4, 0, 0)

    def attempt(self, *_: Any, **__: Any) -> Attempt:
        return Attempt()

    def commit(self, begun: Begun, epoch: int, staged: list[Staged], *, consumed: object) -> bool:
        assert (begun.scope, epoch, [one.token for one in staged]) == (3, 1, [Staged.token])
        self.calls.append(f"commit {consumed}")
        answer = self.answers.pop(0)
        if isinstance(answer, RingfenceError):
            raise answer
        return answer

    def expire(self, begun: Begun, epoch: int) -> None:
        self.calls.append("expire")
        if self.expire_error is not None:
            raise self.expire_error


class FakeTaking:
    """The consumer's part: each claim gets the next number; `errors` are raised by claims, in order."""

    scope, is_one_off = "consume/5/m", True

    def __init__(self, *errors: RingfenceError | None) -> None:
        self.errors = [*errors]
        self.claims = 0
        self.heard: list[str] = []

    def take(self) -> None:
        self.heard.append("take")

    def claim(self, begun: Begun, epoch: int, token: bytes) -> int:
        assert (begun.scope, epoch, token) == (3, 1, Staged.token)
        error = self.errors.pop(0) if self.errors else None
        if error is not None:
            raise error
        self.claims += 1
        return self.claims

    def uncertain(self) -> None:
        self.heard.append("uncertain")

    def committed(self) -> None:
        self.heard.append("committed")

    def aborted(self) -> None:
        self.heard.append("aborted")


def begun(scopes: FakeScopes, taking: FakeTaking) -> ConsumingTransaction:
    made: Any = (scopes, taking)
    return ConsumingTransaction(*made, topic="t", timeout_s=5.0, bytes_in_flight_max=1 << 20)


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CLAIM_PAUSE_S", 0.0)


STALE = RetriableError("the owner has changed", code=Code.STALE_CLAIM)
UNKNOWN = UnknownOutcomeError("no answer")


def test_rows_and_positions_are_one_commit() -> None:
    scopes, taking = FakeScopes(True), FakeTaking()
    with begun(scopes, taking) as block:
        pass
    assert (scopes.calls, taking.heard, block.rows) == (["commit 1"], ["take", "committed"], 7)


def test_an_exception_in_the_block_commits_nothing_and_the_rows_come_again() -> None:
    scopes, taking = FakeScopes(), FakeTaking()
    with pytest.raises(ZeroDivisionError), begun(scopes, taking):
        raise ZeroDivisionError
    assert (scopes.calls, taking.heard) == (["expire"], ["aborted"])


def test_gates_whose_owner_has_changed_are_claimed_again() -> None:
    scopes, taking = FakeScopes(STALE, STALE, True), FakeTaking()
    begun(scopes, taking).commit()
    assert scopes.calls == ["commit 1", "commit 2", "commit 3"]
    assert taking.heard == ["take", "take", "take", "committed"]


class StaleNode:
    """An I/O thread of `Admin`: each request was received, some tries of it are lost, and it is refused."""

    def __init__(self, *errors: RingfenceError, tries_lost: int) -> None:
        self._errors, self._tries_lost = [*errors], tries_lost

    def request(self, request: Request) -> Future[Answer]:
        request.sent, request.tries_lost = True, self._tries_lost
        request.future.set_exception(self._errors.pop(0))
        return request.future


class AdminScopes(FakeScopes):
    """Its COMMITs go through the real `Admin` until the node has no more refusals."""

    def __init__(self, *refusals: RingfenceError, tries_lost: int) -> None:
        super().__init__(*([True] * (len(refusals) + 1)))
        node: Any = StaleNode(*refusals, tries_lost=tries_lost)
        self._admin, self._left = Admin(node, 1.0), len(refusals)

    def commit(self, begun: Begun, epoch: int, staged: list[Staged], *, consumed: object) -> bool:
        is_own = super().commit(begun, epoch, staged, consumed=consumed)
        if self._left:
            self._left -= 1
            self._admin.commit(ScopeCommit(3, 4, epoch, [Staged.token]))
        return is_own


@pytest.mark.parametrize("tries_lost", [0, 2])
def test_a_refusal_of_stale_claims_reaches_the_transaction_as_it_is(tries_lost: int) -> None:
    """Whatever became of lost tries: the same COMMIT with new claims tells it."""
    scopes, taking = AdminScopes(STALE, STALE, tries_lost=tries_lost), FakeTaking()
    begun(scopes, taking).commit()
    assert scopes.calls == ["commit 1", "commit 2", "commit 3"]
    assert taking.heard == ["take", "take", "take", "committed"]


def test_a_claim_that_is_refused_commits_nothing() -> None:
    for error in (FencedError("another member"), DeadlineError("no answer"), ConflictError("sought")):
        scopes, taking = FakeScopes(), FakeTaking(error)
        with pytest.raises(type(error)):
            begun(scopes, taking).commit()
        assert (scopes.calls, taking.heard) == (["expire"], ["take", "aborted"])


@pytest.mark.parametrize("error", [InvalidArgumentError("no"), DeadlineError("late"), FencedError("other")])
def test_a_commit_that_was_refused_is_asked_about_after_its_epoch_is_expired(error: RingfenceError) -> None:
    """A lost try before the refusal may have been decided: the EXPIRE settles that for ever."""
    scopes, taking = FakeScopes(error, True), FakeTaking()
    block = begun(scopes, taking)
    block.commit()
    assert (scopes.calls, taking.heard, block.rows) == (
        ["commit 1", "expire", "commit 1"],
        ["take", "committed"],
        7,
    )


@pytest.mark.parametrize("told", [False, FencedError("expired"), InvalidArgumentError("expired")])
def test_a_commit_that_was_refused_and_decided_by_no_try_gives_the_rows_again(
    told: bool | RingfenceError,
) -> None:
    error = DeadlineError("late")
    scopes, taking = FakeScopes(error, told), FakeTaking()
    with pytest.raises(DeadlineError) as caught:
        begun(scopes, taking).commit()
    assert caught.value is error
    assert scopes.calls == ["commit 1", "expire", "commit 1", "expire"]
    assert taking.heard == ["take", "aborted"]


def test_while_the_outcome_is_unknown_nothing_is_given_until_commit_tells() -> None:
    scopes, taking = FakeScopes(UNKNOWN, UNKNOWN, True), FakeTaking()
    block = begun(scopes, taking)
    for _ in range(2):
        with pytest.raises(UnknownOutcomeError):
            block.commit()
    assert set(taking.heard[1:]) == {"uncertain"}
    block.commit()
    assert scopes.calls == ["commit 1"] * 3, "the same claim: the COMMIT may have been decided with it"
    assert (taking.heard[-1], block.rows) == ("committed", 7)


def test_where_nobody_tells_after_a_refusal_the_outcome_is_unknown() -> None:
    scopes, taking = FakeScopes(DeadlineError("late")), FakeTaking()
    scopes.expire_error = DeadlineError("no node answers")
    with pytest.raises(UnknownOutcomeError, match="repeat the same commit"):
        begun(scopes, taking).commit()
    assert taking.heard == ["take", "uncertain"]


def test_an_epoch_that_another_process_of_this_name_committed_is_none_of_this_block() -> None:
    scopes, taking = FakeScopes(False), FakeTaking()
    with pytest.raises(FencedError, match="another writer"):
        begun(scopes, taking).commit()
    assert taking.heard == ["take", "aborted"]


def test_what_the_consumer_names_cannot_be_given_beside_it() -> None:
    scopes: Any = FakeScopes()
    for name in ("scope", "epoch"):
        with pytest.raises(InvalidArgumentError, match=f"{name}= is refused beside consumed="):
            module.consuming_transaction(
                scopes, object(), topic="t", given={name: 1}, timeout_s=1.0, bytes_in_flight_max=1
            )
    with pytest.raises(InvalidArgumentError, match="consumed= takes a consumer"):
        module.consuming_transaction(
            scopes, object(), topic="t", given={}, timeout_s=1.0, bytes_in_flight_max=1
        )
