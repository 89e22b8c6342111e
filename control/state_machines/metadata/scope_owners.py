"""Owners of scopes: the tokens that may use a scope, and the scopes to forget for a new one. Pure.

The owner of a scope is the prefix of the token that began it. "" is an owner, too: of tokens without a
prefix, of clients without a token, and of scopes from before level 1. A name that ends with `@` and a
number is the name of a topic's scope; `consume/` and `parked/` with the number of a cohort and more belong to
that cohort's topic, whichever token begins them.
"""

from __future__ import annotations

from typing import Final

from msgspec import UNSET

from ringfence.control.model.cohorts import Cohort, CohortId
from ringfence.control.model.ids import ScopeId, TopicId
from ringfence.control.model.scopes import Scope
from ringfence.control.model.state import MetadataState
from ringfence.control.state_machines.metadata.config import limit

# From this level on the metadata has the owner of each scope.
LEVEL_OF_OWNERS: Final = 1
# Digits of a topic's id, which is below 2^63.
DIGITS_MAX: Final = 19
# First parts of the names of scopes that clients draw for a cohort.
CONSUMING: Final = "consume"
COHORT_SCOPES: Final = frozenset({CONSUMING, "parked"})
# One of this number of scopes is forgotten at a time: each entry copies the maps.
SHARE: Final = 8


def owner_of(scope: Scope) -> str:
    return "" if scope.prefix is UNSET else scope.prefix


def access_fault(state: MetadataState, name: str, prefix: str) -> str | None:
    """The reason that a token with this prefix may not use the scope of this name; None if it may."""
    if not prefix:
        return None
    cohort = cohort_of(state, name)
    topic = topic_of(name) if cohort is None else cohort.topic
    if topic is not None:
        record = state.topics.get(topic)
        if record is not None and record.name.startswith(prefix):
            return None
        return (
            f"scope {name[:300]!r} belongs to topic {topic}, which is not under the token's prefix {prefix!r}"
        )
    number = state.scope_names.get(name)
    if number is None or state.level < LEVEL_OF_OWNERS or owner_of(state.scopes[number]).startswith(prefix):
        return None
    return (
        f"scope {name[:300]!r} was begun by a token that is not restricted to {prefix!r}; use another "
        "name, or a scope of a topic"
    )


def topic_of(name: str) -> TopicId | None:
    """The topic whose scope has this name; None for a scope of the cluster."""
    label, _, number = name.rpartition("@")
    is_number = number.isascii() and number.isdigit() and (number == "0" or number[0] != "0")
    return TopicId(int(number)) if label and is_number and len(number) <= DIGITS_MAX else None


def cohort_of(state: MetadataState, name: str) -> Cohort | None:
    """The cohort whose scope has this name: of a transaction that consumes, or of an export."""
    _, number = _cohort_scope(name)
    return None if number is None else state.cohorts.get(number)


def claiming_cohort(name: str) -> CohortId | None:
    """The cohort whose members claim gates for the scope of this name; None: a scope of no transaction that
    consumes. It need not exist: ids of deleted cohorts are not drawn again.
    """
    kind, number = _cohort_scope(name)
    return number if kind == CONSUMING else None


def _cohort_scope(name: str) -> tuple[str, CohortId | None]:
    kind, _, rest = name.partition("/")
    number, separator, _ = rest.partition("/")
    is_number = number.isascii() and number.isdigit() and len(number) <= DIGITS_MAX
    if kind not in COHORT_SCOPES or not separator or not is_number:
        return kind, None
    return kind, CohortId(int(number))


def is_temporary(state: MetadataState, scope: Scope) -> bool:
    """Whether no run asks for the scope's epochs again, by the writer's flag or by its idle time.

    After a topic is deleted, the name of its scope is not used again, since it contains the topic's id.
    """
    if scope.one_off:
        return True
    if scope.idle_s is not UNSET and scope.used_ms is not UNSET:
        return state.time_ms - scope.used_ms > scope.idle_s * 1_000
    topic = topic_of(scope.name)
    return topic is not None and topic not in state.topics


def scopes_to_forget(state: MetadataState, prefix: str) -> frozenset[ScopeId] | None:
    """Scopes to forget before this owner begins another one; None if none may be forgotten.

    Only temporary scopes: committed epochs of any other would be committed a second time. The least
    recently used go first, those of this owner before others. Half of them stay, since the newest may be
    in use.
    """
    most = limit(state, "scopes_max")
    if len(state.scopes) < most:
        return frozenset()
    eighth = max(1, most // SHARE)
    idle = sorted(
        (scope.used, number)
        for number, scope in state.scopes.items()
        if not scope.pending and is_temporary(state, scope)
    )
    own = [number for _, number in idle if owner_of(state.scopes[number]) == prefix]
    for among in own, [number for _, number in idle]:
        if among:
            return frozenset(among[: min(eighth, (len(among) + 1) // 2)])
    return None
