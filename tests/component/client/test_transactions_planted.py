"""Bugs that are planted into staging again, each with the story that finds it."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from ringfence.admin import Admin
from ringfence.common import extension
from ringfence.native import wire
from ringfence.native.cluster_messages import ScopeCommit
from ringfence.native.errors import (
    ConflictError,
    DeadlineError,
    InvalidArgumentError,
    UnknownOutcomeError,
    refusal,
)
from ringfence.network import request
from ringfence.send import restage
from ringfence.send.restage import Restager
from ringfence.send.stager import Stager
from tests.fakes.staged_topic import commit_over_cuts, commit_with_a_lost_answer

Patch = pytest.MonkeyPatch


def no_origin(patch: Patch) -> None:
    with_items = Stager.extension_with
    patch.setattr(Stager, "extension_with", lambda self, _: with_items(self, {}))


def origin_of_last(patch: Patch) -> None:
    """The origin is drawn again at each staging."""
    forgetful = SimpleNamespace(items_of=lambda _: {}, ORIGIN=extension.ORIGIN)
    patch.setattr(restage, "extension", forgetful)


def claim_token_dropped(patch: Patch) -> None:
    moved = Restager.moved

    def only_new(self: Restager, message: ScopeCommit, sealed: set[int]) -> ScopeCommit:
        after = moved(self, message, sealed)
        return replace(after, tokens=after.tokens[-1:])

    patch.setattr(Restager, "moved", only_new)


def restage_on_unknown(patch: Patch) -> None:
    """A commit without an answer is staged again as if it was moved."""
    put = Admin.commit

    def as_moved(self: Admin, message: ScopeCommit) -> Any:
        given = self._timeout_s
        self._timeout_s = 0.4
        try:
            return put(self, message)
        except UnknownOutcomeError as error:
            parts = [partition for _, partition, _ in message.parts]
            raise refusal(wire.Code.MOVED, "as if", partitions=parts) from error
        finally:
            self._timeout_s = given

    patch.setattr(Admin, "commit", as_moved)
    # The partition is not sealed: its owner is asked in vain.
    patch.setattr("ringfence.scopes.TIMEOUT_S", 0.5)


def keeps_sealed_parts(patch: Patch) -> None:
    """The next commit names the sealed partitions again."""
    moved = Restager.moved

    def with_old(self: Restager, message: ScopeCommit, sealed: set[int]) -> ScopeCommit:
        after = moved(self, message, sealed)
        old = [part for part in message.parts if part[1] in sealed]
        return replace(after, parts=sorted([*after.parts, *old]))

    patch.setattr(Restager, "moved", with_old)
    patch.setattr("ringfence.send.restage.RESTAGED_MAX", 6)


# The bug, the story that finds it, and how: an assertion of the story, or a refusal of the node.
PLANTED: list[tuple[Callable[[Patch], None], Callable[[], None], type[Exception], str]] = [
    (no_origin, commit_over_cuts, AssertionError, "T2"),
    (origin_of_last, commit_over_cuts, AssertionError, "T2"),
    (claim_token_dropped, commit_over_cuts, InvalidArgumentError, "12 are staged there"),
    (keeps_sealed_parts, commit_over_cuts, ConflictError, "sealed"),
    (restage_on_unknown, commit_with_a_lost_answer, DeadlineError, "nothing is committed"),
]


@pytest.mark.parametrize(
    ("bug", "story", "kind", "told"), PLANTED, ids=lambda one: getattr(one, "__name__", None)
)
def test_a_planted_bug_is_found(
    bug: Callable[[Patch], None],
    story: Callable[[], None],
    kind: type[Exception],
    told: str,
    monkeypatch: Patch,
) -> None:
    monkeypatch.setattr(request, "TRY_S_MAX", 0.2)
    monkeypatch.setattr(request, "ANSWER_GRACE_S", 0.2)
    bug(monkeypatch)
    with pytest.raises(kind, match=told):
        story()


def test_the_stories_are_sound_without_a_bug(monkeypatch: Patch) -> None:
    monkeypatch.setattr(request, "TRY_S_MAX", 0.2)
    monkeypatch.setattr(request, "ANSWER_GRACE_S", 0.2)
    commit_over_cuts()
    commit_with_a_lost_answer()


def test_the_number_of_planted_bugs() -> None:
    assert len(PLANTED) == 5
