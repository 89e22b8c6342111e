"""Version tags of resources that administrators change: equal tags, equal content.

A resource is named `topic/ID`, `cohort/ID`, `node/ID`, `ring`, `config` or `token/NAME`. A tag leaves out
values that change without an administrator (owner epochs, addresses, figures). So a restart between a read
and a change refuses nothing.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any, Final

import msgspec

from ringfence.control.model.cohorts import CohortId
from ringfence.control.model.ids import NodeId, TopicId
from ringfence.control.model.layout_changes import LAYOUT_LEVEL
from ringfence.control.model.requests import Condition
from ringfence.control.model.results import Refused
from ringfence.control.model.state import MetadataState, sorted_maps
from ringfence.control.model.topics import Topic
from ringfence.control.state_machines.metadata.auto_layout import OVERRIDES
from ringfence.control.state_machines.metadata.refusals import stale

# Bytes of a tag's digest. A tag is compared with one other tag, so eight bytes are enough.
TAG_BYTES: Final = 8


def tag_of(state: MetadataState, resource: str) -> str | None:
    """The tag of a resource's content; None if the resource does not exist."""
    kind, _, name = resource.partition("/")
    number = int(name) if name.isascii() and name.isdigit() else 0
    if kind == "topic":
        topic = state.topics.get(TopicId(number))
        return None if topic is None else _tag_of_topic(state, topic)
    if kind == "cohort":
        cohort = state.cohorts.get(CohortId(number))
        return None if cohort is None else str(cohort.changed)
    if kind == "node":
        node = state.nodes.get(NodeId(number))
        return (
            None
            if node is None
            else _tag([number, node.life, node.draining, node.vote, node.weight, node.zone, node.labels])
        )
    if kind == "ring":
        return f"ring-{state.ring.version}"
    if kind == "config":
        return _tag(state.config)
    token = state.tokens.get(name) if kind == "token" else None
    return None if token is None else f"token-{token.created}"


def condition_fault(state: MetadataState, condition: Condition | None) -> Refused | None:
    """The refusal of a change whose `condition` does not hold any more; None if it holds."""
    if condition is None:
        return None
    now = tag_of(state, condition.resource)
    if now == condition.tag:
        return None
    what = f"is at {now!r}" if now is not None else "does not exist"
    return stale(f"{condition.resource} {what}, the change is for {condition.tag[:80]!r}; read it again")


def _tag_of_topic(state: MetadataState, topic: Topic) -> str:
    tag = f"{topic.topic}-{topic.layout.version}-{len(topic.schemas)}"
    own = {name: text for name, text in topic.properties.items() if name in OVERRIDES}
    # Below this level no property changes, and all programs must compare the same tags.
    return f"{tag}-{_tag(own)}" if own and state.level >= LAYOUT_LEVEL else tag


def _tag(content: Any) -> str:
    packed = msgspec.msgpack.encode(sorted_maps(msgspec.to_builtins(content)))
    return blake2b(packed, digest_size=TAG_BYTES).hexdigest()
