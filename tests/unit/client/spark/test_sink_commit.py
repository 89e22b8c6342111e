"""The last step of Spark's writers: whose commit it was, and what a failed job leaves."""

from __future__ import annotations

import logging
from typing import Any, Self

import pytest

from ringfence.common.scope_values import Begun, StagedRows
from ringfence.native.errors import ConnectError, InvalidArgumentError
from ringfence.spark import sink_commit
from ringfence.spark.staging import Target

TARGET = Target("tcp://127.0.0.1:1", None, "public/default/t", 30.0)
BEGUN = Begun(7, 2, 5, 0)
STAGED = [
    StagedRows(b"a" * 16, {(1, 1): 3}, already=False, scope=7, epoch=6),
    StagedRows(b"b" * 16, {(1, 2): 4}, already=False, scope=7, epoch=6),
]


class Scopes:
    """A client whose commits end as given, and which no node answers if `error` is set."""

    def __init__(self, *, is_own: bool | None = True, error: Exception | None = None) -> None:
        self.scopes, self.is_own, self.error = self, is_own, error
        self.committed: list[tuple[Begun, int, list[StagedRows]]] = []
        self.expired: list[tuple[Begun, int]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def commit_told(self, begun: Begun, epoch: int, staged: list[StagedRows]) -> bool | None:
        self.committed.append((begun, epoch, staged))
        return self.is_own

    def expire(self, begun: Begun, epoch: int) -> None:
        if self.error is not None:
            raise self.error
        self.expired.append((begun, epoch))


def connected(monkeypatch: pytest.MonkeyPatch, scopes: Scopes) -> Scopes:
    def connect(*_: Any, **__: Any) -> Scopes:
        return scopes

    monkeypatch.setattr(sink_commit, "connect", connect)
    return scopes


@pytest.mark.parametrize(
    ("is_own", "is_alone", "is_new"),
    [
        (True, False, True),
        (False, False, False),
        (False, True, False),
        (None, False, False),
        (None, True, True),
    ],
)
def test_a_commit_is_new_if_it_is_own_or_nobody_else_can_have_made_it(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    is_own: bool | None,
    is_alone: bool,
    is_new: bool,
) -> None:
    scopes = connected(monkeypatch, Scopes(is_own=is_own))
    with caplog.at_level(logging.INFO, "ringfence.spark"):
        assert sink_commit.commit(TARGET, BEGUN, 6, iter(STAGED), is_alone=is_alone) is is_new
    assert scopes.committed == [(BEGUN, 6, STAGED)]
    said = "committed" if is_new else "was committed before, dropped"
    assert f"scope 7, driver 2, epoch 6 {said}: 7 rows by 2 tasks" in caplog.text


def test_staged_rows_of_a_failed_job_are_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    scopes = connected(monkeypatch, Scopes())
    sink_commit.expire(TARGET, BEGUN, 6)
    assert scopes.expired == [(BEGUN, 6)]


def test_staged_rows_that_cannot_be_removed_hide_no_error(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    connected(monkeypatch, Scopes(error=ConnectError("no node answers")))
    sink_commit.expire(TARGET, BEGUN, 6)
    assert (
        "scope 7, epoch 6: staged rows of a failed job could not be removed: no node answers" in caplog.text
    )


def test_an_epoch_before_the_last_committed_one_is_refused_and_the_last_one_is_not() -> None:
    sink_commit.check_newest("t", "s", 5, BEGUN)
    with pytest.raises(InvalidArgumentError, match="its checkpoint is older than the topic"):
        sink_commit.check_newest("t", "s", 4, BEGUN)
