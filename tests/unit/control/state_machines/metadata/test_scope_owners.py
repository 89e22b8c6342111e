"""Owners of scopes: which token may use a name, and which scopes make room for a new one."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from ringfence.control.model.cohorts import (
    Cohort,
    CohortId,
    CohortMode,
    CohortSettings,
    CohortStart,
    Incarnation,
)
from ringfence.control.model.ids import Index, ScopeId, TopicId
from ringfence.control.model.scopes import PendingCommit, Scope
from ringfence.control.model.state import MetadataState
from ringfence.control.state_machines.metadata.scope_owners import (
    access_fault,
    claiming_cohort,
    cohort_of,
    is_temporary,
    scopes_to_forget,
    topic_of,
)
from ringfence.control.state_machines.metadata.state_machine import apply
from tests.fakes.metadata_commands import BEGUN, create, entry

PENDING = (PendingCommit(1, (b"t" * 16,), ()),)


def state_of(*scopes: Scope, level: int = 1, scopes_max: int | None = None) -> MetadataState:
    state, _ = apply(replace(BEGUN, level=level), entry(2, create("acme/sales/orders")))
    config = {} if scopes_max is None else {"scopes_max": scopes_max}
    return replace(
        state,
        config=config,
        time_ms=1_000_000,
        scopes={scope.scope: scope for scope in scopes},
        scope_names={scope.name: scope.scope for scope in scopes},
    )


def scope(number: int, name: str | None = None, **fields: object) -> Scope:
    made = Scope(ScopeId(number), name or f"s{number}", Index(number), Index(number))
    return replace(made, **fields)


def ids(*numbers: int) -> frozenset[ScopeId]:
    return frozenset(map(ScopeId, numbers))


@pytest.mark.parametrize(
    ("name", "topic"),
    [
        ("orders@2", 2),
        ("a@b@17", 17),
        ("x@0", 0),
        ("@2", None),
        ("orders@", None),
        ("orders@02", None),
        ("orders@-2", None),
        ("orders@²", None),
        ("orders@" + "9" * 20, None),
        ("nightly", None),
    ],
)
def test_a_name_of_a_topic_s_scope_has_its_number_at_the_end(name: str, topic: int | None) -> None:
    assert topic_of(name) == topic


def test_a_token_with_a_prefix_uses_scopes_of_its_topics_and_its_own() -> None:
    state = state_of(
        scope(5, "own", prefix="acme/sales/"), scope(6, "foreign", prefix="rival/"), scope(7, "open")
    )
    assert access_fault(state, "orders@2", "acme/") is None
    assert access_fault(state, "own", "acme/") is None
    assert access_fault(state, "new", "acme/") is None, "it begins it"
    assert all(access_fault(state, name, "") is None for name in ("own", "foreign", "open", "orders@2"))
    for name in ("orders@2", "orders@9"):
        assert "belongs to topic" in (access_fault(state, name, "rival/") or "")
    for name in ("foreign", "open"):
        assert "use another name" in (access_fault(state, name, "acme/") or "")
    assert access_fault(replace(state, level=0), "foreign", "acme/") is None, "no owner is known there"


@pytest.mark.parametrize("name", ["parked/3/1/77", "consume/3/member"])
def test_scopes_of_a_cohort_belong_to_its_topic_whoever_began_them(name: str) -> None:
    cohort = Cohort(
        CohortId(3), TopicId(2), "c", CohortMode.QUEUE, CohortSettings(), CohortStart(), Incarnation(3), 1
    )
    state = replace(state_of(scope(5, name, prefix="rival/")), cohorts={cohort.cohort: cohort})
    assert access_fault(state, name, "acme/sales/") is None, "also if another began it"
    assert access_fault(state, name, "") is None
    assert "belongs to topic 2" in (access_fault(state, name, "rival/") or ""), "also if it began it"
    without = replace(state, cohorts={})
    assert access_fault(without, name, "rival/") is None, "no cohort has that number"


@pytest.mark.parametrize(
    "name",
    [
        "parked/3",
        "parked/x/1",
        "parked/²/1",
        "other/3/1",
        "parked",
        "consume//m",
        "parked/" + "9" * 20 + "/1",
    ],
)
def test_other_names_are_of_no_cohort(name: str) -> None:
    assert cohort_of(state_of(), name) is None
    assert claiming_cohort(name) is None


def test_gates_are_claimed_for_scopes_of_transactions_that_consume() -> None:
    assert claiming_cohort("consume/65536/m") == CohortId(65536), "whether it is known here, or deleted"
    assert claiming_cohort("consume/7/") == CohortId(7)
    assert claiming_cohort("parked/65536/1/2") is None, "an export settles parked ranges only"


def test_what_is_asked_for_again_is_not_temporary() -> None:
    state = state_of()
    assert not is_temporary(state, scope(1, "nightly"))
    assert is_temporary(state, scope(1, "nightly", one_off=True))
    assert not is_temporary(state, scope(1, "orders@2"))
    assert is_temporary(state, scope(1, "orders@9")), "its topic is gone"
    assert not is_temporary(state, scope(1, "query", idle_s=10, used_ms=990_000))
    assert is_temporary(state, scope(1, "query", idle_s=10, used_ms=989_999))


def test_room_is_made_only_when_it_is_full_and_of_temporary_scopes_alone() -> None:
    lasting = [scope(number) for number in range(1, 5)]
    assert scopes_to_forget(state_of(*lasting, scopes_max=5), "") == frozenset()
    assert scopes_to_forget(state_of(*lasting, scopes_max=4), "") is None
    busy = scope(9, one_off=True, pending=PENDING)
    assert scopes_to_forget(state_of(*lasting, busy, scopes_max=5), "") is None


def test_the_least_recently_used_of_the_same_owner_go_first_and_half_of_them_stay() -> None:
    own = [scope(number, one_off=True, prefix="acme/") for number in (21, 22, 23)]
    others = [scope(number, one_off=True, prefix="rival/") for number in range(1, 18)]
    full = state_of(*others, *own, scopes_max=20)
    assert scopes_to_forget(full, "acme/") == ids(21, 22)
    assert scopes_to_forget(full, "rival/") == ids(1, 2), "an eighth at a time"
    assert scopes_to_forget(full, "third/") == ids(1, 2), "without any of its own"
    assert scopes_to_forget(state_of(*own[:1], scopes_max=1), "acme/") == ids(21)
