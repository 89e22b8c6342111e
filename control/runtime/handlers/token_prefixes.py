"""Restrict control requests to the topic prefix of the caller's token.

The engine checks requests that name a topic by its id. This module checks requests that name the topic in
their body.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from msgspec.structs import replace

from ringfence.control.model.ids import TopicId
from ringfence.control.model.state import MetadataState
from ringfence.control.runtime.handlers.topic_plans import full_name
from ringfence.control.runtime.process.errors import RequestRefused
from ringfence.native import cluster_messages, cohort_messages, layout_messages, messages
from ringfence.native.messages import Message
from ringfence.native.wire import Code

# A prefix that no topic has: names consist of letters, digits and few signs.
NO_TOPIC: Final = "\x7f"


def restrict_to_prefix(state: Callable[[], MetadataState], prefix: str, message: Message) -> Message:
    """The request, restricted to the prefix; a TOPIC_LIST lists the prefix's topics only.

    A COMMIT is checked by its parts. `TransactionRequests` checks the scopes of BEGIN, COMMIT and EXPIRE.

    Raises:
        RequestRefused: UNAUTHORIZED, the request is about a topic outside the prefix.
    """
    match message:
        case messages.TopicList():
            return replace(message, prefix=_common(prefix, message.prefix))
        case messages.ProducerOpen(topic=name):
            _check(prefix, full_name(name))
        case layout_messages.LayoutChange(topic=name) | layout_messages.LayoutDescribe(topic=name):
            _check(prefix, full_name(name))
        case (
            cohort_messages.Join(topic=name)
            | cohort_messages.Leave(topic=name)
            | cohort_messages.CohortCreate(topic=name)
            | cohort_messages.CohortChange(topic=name)
            | cohort_messages.CohortDelete(topic=name)
            | cohort_messages.CohortDescribe(topic=name)
            | cohort_messages.CohortEvict(topic=name)
            | cohort_messages.CohortSeek(topic=name)
            | cohort_messages.CohortParked(topic=name)
        ):
            _check(prefix, full_name(name))
        case cohort_messages.CohortList(topic=str(name)):
            _check(prefix, full_name(name))
        case (
            messages.TopicCreate(name=name)
            | messages.TopicName(name=name)
            | messages.TopicDelete(name=name)
            | messages.TopicTruncate(name=name)
            | messages.SchemaAdd(name=name)
        ):
            _check(prefix, full_name(name))
        case cluster_messages.ScopeCommit(parts=parts):
            topics = state().topics
            for number in sorted({part[0] for part in parts}):
                topic = topics.get(TopicId(number))
                _check(prefix, "" if topic is None else topic.name)
        case _:
            pass
    return message


def restrict_status_to_prefix(state: MetadataState, prefix: str, status: messages.Status) -> messages.Status:
    """The status for a token with this prefix, with counts of the prefix's topics.

    Counters cover all topics, and reasons name topics and scopes: both are left out.
    """
    if not prefix:
        return status
    own = [topic for topic in state.topics.values() if topic.name.startswith(prefix)]
    summary = f"{len(status.reasons)} reasons; only a token without a prefix may read them"
    return replace(
        status,
        reasons=[summary] if status.reasons else [],
        topics=len(own),
        partitions=sum(len(topic.layout.partitions) for topic in own),
        counters={},
    )


def _common(prefix: str, requested: str) -> str:
    if requested.startswith(prefix):
        return requested
    return prefix if prefix.startswith(requested) else NO_TOPIC


def _check(prefix: str, name: str) -> None:
    if not name.startswith(prefix):
        message = f"topic {name[:300]!r}: the token is for topics that begin with {prefix!r}"
        raise RequestRefused(Code.UNAUTHORIZED, message)
