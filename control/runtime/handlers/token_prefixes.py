"""A token that is for some topics only: what of a control request it reaches.

The engine holds requests that name a topic by its id to the prefix; those that name it in their body are
held to it here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from msgspec.structs import replace

from ringfence.control.model.ids import TopicId
from ringfence.control.model.state import MetadataState
from ringfence.control.runtime.handlers.topics import full_name
from ringfence.control.runtime.process.errors import RequestRefused
from ringfence.native import cluster_messages, messages
from ringfence.native.messages import Message
from ringfence.native.wire import Code

NOTHING: Final = "\x7f"
"""A prefix that no topic has: names are letters, digits and few signs."""


def restrict_to_prefix(state: Callable[[], MetadataState], prefix: str, message: Message) -> Message:
    """The request, within the prefix; a list is narrowed to it.

    A COMMIT is held to it by its parts. Scopes of BEGIN, COMMIT and EXPIRE are checked by `ScopeRequests`.

    Raises:
        RequestRefused: UNAUTHORIZED, it is about a topic outside of the prefix.
    """
    match message:
        case messages.TopicList():
            return replace(message, prefix=_common(prefix, message.prefix))
        case messages.ProducerOpen(topic=name):
            _check(prefix, full_name(name))
        case (
            messages.TopicCreate(name=name)
            | messages.TopicName(name=name)
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
    """The status for a token with this prefix: counts of its own topics.

    Counters are loads of all topics, and reasons name topics and scopes: neither is told.
    """
    if not prefix:
        return status
    own = [topic for topic in state.topics.values() if topic.name.startswith(prefix)]
    told = f"{len(status.reasons)} reasons, which only a token without a prefix is told"
    return replace(
        status,
        reasons=[told] if status.reasons else [],
        topics=len(own),
        partitions=sum(len(topic.layout.partitions) for topic in own),
        counters={},
    )


def _common(prefix: str, wanted: str) -> str:
    if wanted.startswith(prefix):
        return wanted
    return prefix if prefix.startswith(wanted) else NOTHING


def _check(prefix: str, name: str) -> None:
    if not name.startswith(prefix):
        message = f"the token is for topics that begin with {prefix!r}, {name[:300]!r} does not"
        raise RequestRefused(Code.UNAUTHORIZED, message)
