"""Find cohorts by their names, and turn values of messages into those of the model, and back."""

from __future__ import annotations

from typing import Final

from msgspec import UNSET

from ringfence.control.model.cohorts import Cohort, CohortMode, CohortSettings, StartKind
from ringfence.control.model.ids import TopicId
from ringfence.control.model.state import MetadataState
from ringfence.control.runtime.handlers.topic_plans import topic_named
from ringfence.control.runtime.process.errors import RequestRefused
from ringfence.control.runtime.raft.proposer import RaftProposer
from ringfence.control.runtime.rpc.dispatch import CALLER_TOKEN
from ringfence.native import cohort_messages
from ringfence.native.wire import Code

MODES: Final = {str(mode).lower(): mode for mode in CohortMode}
STARTS: Final = {"earliest": StartKind.EARLIEST, "latest": StartKind.LATEST}


def mode_of(word: str) -> CohortMode:
    """RequestRefused if there is no such mode."""
    if word not in MODES:
        message = f"mode={word[:40]!r}: it must be one of {', '.join(sorted(MODES))}"
        raise RequestRefused(Code.INVALID_ARGUMENT, message)
    return MODES[word]


def start_of(word: str, subject: str = "start") -> StartKind:
    """RequestRefused unless it is earliest or latest."""
    if word not in STARTS:
        message = f"{subject}={word[:40]!r}: it must be earliest or latest"
        raise RequestRefused(Code.INVALID_ARGUMENT, message)
    return STARTS[word]


def settings_of(settings: cohort_messages.CohortSettings) -> CohortSettings:
    return CohortSettings(settings.handover_ms, settings.lease_ms, settings.limit)


def wire_settings(settings: CohortSettings) -> cohort_messages.CohortSettings:
    return cohort_messages.CohortSettings(
        handover_ms=settings.handover_ms, lease_ms=settings.lease_ms, limit=settings.limit
    )


def find_cohort(state: MetadataState, topic: TopicId, name: str) -> Cohort | None:
    """The cohort of this name as this node has applied it."""
    number = state.cohort_names.get(topic, {}).get(name)
    return None if number is None else state.cohorts[number]


async def cohort_named(proposer: RaftProposer, topic: str, name: str) -> Cohort:
    """The cohort, even if another node has just created it.

    Raises:
        RequestRefused: there is none, or the caller's token is for others.
    """
    check_name(proposer, name)
    number = (await topic_named(proposer, topic)).topic
    cohort = find_cohort(proposer.state, number, name)
    if cohort is None:
        await proposer.read_barrier()
        cohort = find_cohort(proposer.state, number, name)
    if cohort is None:
        raise no_cohort(topic, name)
    return cohort


def no_cohort(topic: str, name: str) -> RequestRefused:
    message = (
        f"topic {topic[:300]!r} has no cohort {name[:80]!r}; create it (`ringfence cohort create`), or join "
        "it as its first member"
    )
    return RequestRefused(Code.UNKNOWN_COHORT, message)


def name_fault(state: MetadataState, token: str, cohort: str) -> str | None:
    """Why the token with this name has no access to cohorts with that name; None: it has."""
    known = state.tokens.get(token)
    if known is None or known.cohorts is UNSET or cohort.startswith(known.cohorts):
        return None
    return f"cohort {cohort[:80]!r}: the token is for cohorts that begin with {known.cohorts!r}"


def check_name(proposer: RaftProposer, cohort: str) -> None:
    """RequestRefused if the caller's token is restricted to other cohorts."""
    fault = name_fault(proposer.state, CALLER_TOKEN.get(), cohort)
    if fault is not None:
        raise RequestRefused(Code.UNAUTHORIZED, fault)
