"""The state that follows from all entries, its canonical bytes and its hash.

Two nodes that applied the same entries have equal bytes. The position (index, term) is not part of the
state: a refused entry advances the position and leaves the state byte-identical (I15).
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from typing import Any, Final

import msgspec

from ringfence.control.model.cohorts import Cohort, CohortId, DrainedMark, Member, PrunedNotes
from ringfence.control.model.ids import Index, NodeId, PartitionId, ScopeId, SessionId, TopicId
from ringfence.control.model.layout_changes import Transition
from ringfence.control.model.nodes import NodeRecord, RemovedNode, Ring
from ringfence.control.model.reassignments import Change, ChangeId, Kept, Leftover
from ringfence.control.model.rebalances import MoveRecord, Run
from ringfence.control.model.requests import Answered
from ringfence.control.model.results import Result
from ringfence.control.model.scopes import Scope
from ringfence.control.model.tokens import Token
from ringfence.control.model.topics import NamedProducer, ProducerRule, Tombstone, Topic

# Version of the canonical bytes; each new version has a conversion in `model.conversions`.
#
# - 2 added to 1: the ring, removed nodes, and descriptions and lives of nodes.
# - 3 added to 2: answers of keyed requests, tokens.
# - 4 added to 3: open changes, leftovers of changes, rebalances.
# - 5 added to 4: kept copies for reversals, and times without acknowledgements.
# - 6 added to 5: scopes of atomic writers.
# - 7 added to 6: identities of the last commits of a scope.
# - 8 added to 7: the cluster's level, and the witnesses of its logs.
# - 9 added to 8: layout changes.
# - 10 added to 9: cohorts, their members, and what they drained.
#
# A state has the format of the cluster's level.
STATE_FORMAT: Final = 10
FORMAT_OF_LEVEL_0: Final = 7
FORMATS_OF_LEVELS: Final = (FORMAT_OF_LEVEL_0, 8, 9, STATE_FORMAT)
# Fields of the state that programs of lower levels do not know.
#
# Below their level they have their defaults and are left out of bytes and hash. A field that is added to a
# value within the state has the default `msgspec.UNSET`, which msgspec leaves out.
ADDED_BY_LEVEL_1: Final = frozenset({"level", "unopened", "witnesses"})
ADDED_BY_LEVEL_2: Final = frozenset({"transitions", "producer_rules"})
ADDED_BY_LEVEL_3: Final = frozenset(
    {"cohorts", "cohort_names", "cohort_members", "drained_marks", "pruned_notes"}
)
# What the states of level 0, of level 1, of level 2 leave out.
_LEFT_OUT: Final = (
    ADDED_BY_LEVEL_1 | ADDED_BY_LEVEL_2 | ADDED_BY_LEVEL_3,
    ADDED_BY_LEVEL_2 | ADDED_BY_LEVEL_3,
    ADDED_BY_LEVEL_3,
)


class Session(msgspec.Struct, frozen=True):
    """A proposer's session: its greatest sequence and the last results; a repeat gets the first answer."""

    last: int
    used: Index
    results: dict[int, Result]


class MetadataState(msgspec.Struct, frozen=True):
    """All metadata of a cluster. Maps are replaced, never changed in place."""

    cluster: bytes = b""
    history: bytes = b""
    time_ms: int = 0
    nodes: dict[NodeId, NodeRecord] = {}
    topics: dict[TopicId, Topic] = {}
    names: dict[str, TopicId] = {}
    producers: dict[TopicId, dict[str, NamedProducer]] = {}
    tombstones: dict[TopicId, Tombstone] = {}
    sessions: dict[SessionId, Session] = {}
    config: dict[str, int] = {}
    ring: Ring = Ring()
    removed: dict[NodeId, RemovedNode] = {}
    requests: dict[str, Answered] = {}
    tokens: dict[str, Token] = {}
    changes: dict[PartitionId, Change] = {}
    leftovers: dict[PartitionId, tuple[Leftover, ...]] = {}
    rebalance: Run = Run()
    moves: dict[PartitionId, MoveRecord] = {}
    runs: tuple[Run, ...] = ()
    kept: dict[PartitionId, Kept] = {}
    scopes: dict[ScopeId, Scope] = {}
    scope_names: dict[str, ScopeId] = {}
    # The greatest id of a scope that was forgotten.
    scopes_gone: ScopeId = ScopeId(0)
    # The newest level that all programs of the cluster know; finalizing an upgrade raises it.
    level: int = 0
    # Named producers without an open that has reached all partitions.
    unopened: dict[TopicId, tuple[str, ...]] = {}
    # The number that each node's log directory must have.
    witnesses: dict[NodeId, int] = {}
    # Open layout changes.
    transitions: dict[ChangeId, Transition] = {}
    # Names of producers with another rule than NONE.
    producer_rules: dict[TopicId, dict[str, ProducerRule]] = {}
    cohorts: dict[CohortId, Cohort] = {}
    # Cohorts of each topic by their names.
    cohort_names: dict[TopicId, dict[str, CohortId]] = {}
    # Registered members of each cohort by their names. No cohort has an empty map here or below.
    cohort_members: dict[CohortId, dict[str, Member]] = {}
    # SEALED partitions that each cohort drained in its present incarnation, ascending.
    drained_marks: dict[CohortId, tuple[DrainedMark, ...]] = {}
    # What was pruned in front of a partition, by cohort and partition.
    pruned_notes: dict[CohortId, dict[PartitionId, PrunedNotes]] = {}

    def topic_named(self, full_name: str) -> Topic | None:
        topic = self.names.get(full_name)
        return None if topic is None else self.topics[topic]


EMPTY: Final = MetadataState()
# What `msgspec.to_builtins` makes of values with parts.
_NESTED: Final = frozenset({dict, list, tuple})
_DECODER = msgspec.msgpack.Decoder(MetadataState)


def canonical_bytes(state: MetadataState) -> bytes:
    """MessagePack with sorted keys: equal states give equal bytes, on every machine."""
    return b"".join(canonical_parts(state))


def fields_of(state: MetadataState) -> tuple[str, ...]:
    """Names of the fields that the state has in the format of its level."""
    names = state.__struct_fields__
    if state.level >= len(_LEFT_OUT):
        return names
    return tuple(name for name in names if name not in _LEFT_OUT[state.level])


def format_of(state: MetadataState) -> int:
    """The format of the state's canonical bytes."""
    return FORMATS_OF_LEVELS[min(state.level, len(FORMATS_OF_LEVELS) - 1)]


def canonical_parts(state: MetadataState) -> Iterator[bytes]:
    """The canonical bytes in pieces of one entry each.

    A thread that writes a large state releases the interpreter after each piece: 100,000 partitions take
    more than a second in all.
    """
    fields = sorted(fields_of(state))
    yield map_head(len(fields))
    for name in fields:
        value = getattr(state, name)
        yield msgspec.msgpack.encode(name)
        if not isinstance(value, dict):
            yield packed(value)
            continue
        yield map_head(len(value))
        for key in sorted(value):
            yield msgspec.msgpack.encode(key) + packed(value[key])


def packed(value: Any) -> bytes:
    """One value with sorted keys; the canonical bytes consist of such pieces."""
    return msgspec.msgpack.encode(sorted_maps(msgspec.to_builtins(value, builtin_types=(bytes,))))


def map_head(size: int) -> bytes:
    """The head of a MessagePack map: fixmap, map 16 or map 32."""
    if size < 16:
        return bytes([0x80 | size])
    return b"\xde" + size.to_bytes(2, "big") if size < 1 << 16 else b"\xdf" + size.to_bytes(4, "big")


def decode_state(data: bytes | memoryview) -> MetadataState:
    """The state of canonical bytes. msgspec.ValidationError or DecodeError for other bytes."""
    return _DECODER.decode(data)


def sorted_maps(value: Any) -> Any:
    """`value` with the keys of all maps sorted; msgspec sorts string keys only, and ids are integers."""
    kind = type(value)
    if kind is dict:
        if len(value) > 1:
            value = {key: value[key] for key in sorted(value)}
        return {key: sorted_maps(part) if type(part) in _NESTED else part for key, part in value.items()}
    if kind in _NESTED:
        return [sorted_maps(part) if type(part) in _NESTED else part for part in value]
    return value


def digest(state: MetadataState) -> str:
    """32 hex digits of BLAKE2b over the canonical bytes; equal on all nodes at the same index."""
    return blake2b(canonical_bytes(state), digest_size=16).hexdigest()
