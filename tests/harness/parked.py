"""COHORT_PARKED by a raw client, about the queue `q` of a topic; scopes of exports without rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ringfence.native import cluster_messages
from ringfence.native.cohort_messages import (
    CohortList,
    CohortListed,
    CohortParked,
    ParkedListed,
    ParkedRange,
    ParkedSettled,
)
from ringfence.native.wire import Opcode, Status

if TYPE_CHECKING:
    from tests.harness.raw_client import Answer, RawClient


def ask(raw: RawClient, topic: str, action: str, **more: Any) -> Answer:
    return raw.control(Opcode.COHORT_PARKED, CohortParked(topic=topic, cohort="q", action=action, **more))


def listed(raw: RawClient, topic: str, **more: Any) -> ParkedListed:
    answer = ask(raw, topic, "list", **more)
    assert answer.status == Status.OK, answer
    return answer.read(ParkedListed)


def settled(raw: RawClient, topic: str, action: str, *ranges: ParkedRange, **more: Any) -> ParkedSettled:
    if ranges:
        more["items"] = [(one.partition, one.number) for one in ranges]
    answer = ask(raw, topic, action, **more)
    assert answer.status == Status.OK, answer
    return answer.read(ParkedSettled)


def begun(raw: RawClient, topic: str, one: ParkedRange) -> cluster_messages.ScopeBegun:
    """The scope of an export of this range."""
    [cohort] = raw.control(Opcode.COHORT_LIST, CohortList(topic=topic)).read(CohortListed).cohorts
    name = f"parked/{cohort.entry.id}/{one.partition}/{one.number}"
    begin = cluster_messages.ScopeBegin(scope=name, one_off=True)
    return raw.control(Opcode.BEGIN, begin).read(cluster_messages.ScopeBegun)


def commit(raw: RawClient, scope: cluster_messages.ScopeBegun, epoch: int = 1) -> Answer:
    body = cluster_messages.ScopeCommit(
        scope_id=scope.scope_id, driver=scope.driver, epoch=epoch, tokens=[], parts=[]
    )
    return raw.control(Opcode.COMMIT, body)
