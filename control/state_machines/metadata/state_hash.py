"""Compute the hash that nodes report with their index. Hashes that differ at one index prove a fault.

The hash is a tree of two levels: a hash of each entry of each map, and one over all of these. Values of
the state are replaced, never changed, so an unchanged entry is the same object and keeps its hash. After a
command, only the replaced entries are hashed again. `model.state.digest` hashes all canonical bytes
instead: it proves as much and costs more.

A topic is one entry of up to 4,096 partitions, and each COMMIT replaces one of its assignments. The packed
bytes of the other assignments and of the layout are kept, so only the new assignment is packed again. The
same holds of a session, which has the results of its last proposals, and of the members of a cohort.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from hashlib import blake2b
from typing import Any, Final, TypeVar

import msgspec

from ringfence.control.model.cohorts import CohortId
from ringfence.control.model.ids import SessionId, TopicId
from ringfence.control.model.state import MetadataState, Session, fields_of, map_head, packed
from ringfence.control.model.topics import Topic

DIGEST_BYTES: Final = 16
_MAPS: Final = (
    "nodes",
    "topics",
    "names",
    "producers",
    "tombstones",
    "sessions",
    "config",
    "removed",
    "changes",
    "leftovers",
    "moves",
    "kept",
    "witnesses",
    "transitions",
    "producer_rules",
    "cohorts",
    "cohort_names",
    "cohort_members",
    "drained_marks",
    "pruned_notes",
)
# Topics whose packed assignments are kept: some 300 bytes a partition, 10 MB for the largest topics.
PACKED_TOPICS_MAX: Final = 8
# Sessions whose packed results are kept: those of the nodes and clients that propose at present.
PACKED_SESSIONS_MAX: Final = 64
# Cohorts whose packed members are kept: 200 bytes a member and 9 a partition, 3 MB for the largest ones.
PACKED_COHORTS_MAX: Final = 8
# The head of a MessagePack array of two: an entry is hashed as its key and its value.
_PAIR_HEAD: Final = b"\x92"
_Key = TypeVar("_Key")
_Kept = TypeVar("_Kept")


class StateDigests:
    """Hashes of the successive states of one node."""

    def __init__(self) -> None:
        # The last value of each field with its hash.
        self._fields: dict[str, tuple[object, bytes]] = {}
        self._entries: dict[str, dict[Any, tuple[object, bytes]]] = {name: {} for name in _MAPS}
        self._topics: OrderedDict[TopicId, _PackedTopic] = OrderedDict()
        self._sessions: OrderedDict[SessionId, _PackedSession] = OrderedDict()
        self._members: OrderedDict[CohortId, _PackedMap] = OrderedDict()

    def of(self, state: MetadataState) -> bytes:
        """The hash of a state, 16 bytes. Time grows with the changes since the last call, and a little with
        their maps.
        """
        total = blake2b(digest_size=DIGEST_BYTES)
        for name in fields_of(state):
            value, known = getattr(state, name), self._fields.get(name)
            if known is None or known[0] is not value:
                known = (value, self._of_map(name, value) if name in _MAPS else _hash(value))
                self._fields[name] = known
            total.update(known[1])
        return total.digest()

    def _of_map(self, name: str, value: dict[Any, object]) -> bytes:
        before, after = self._entries[name], dict[Any, tuple[object, bytes]]()
        whole = blake2b(digest_size=DIGEST_BYTES)
        for key in sorted(value):
            entry, old = value[key], before.get(key)
            is_known = old is not None and old[0] is entry
            after[key] = old if old is not None and is_known else (entry, self._of_entry(name, key, entry))
            whole.update(after[key][1])
        self._entries[name] = after
        return whole.digest()

    def _of_entry(self, name: str, key: Any, entry: Any) -> bytes:
        if isinstance(entry, Topic):
            data = _used(self._topics, key, _PackedTopic, PACKED_TOPICS_MAX).of(entry)
        elif isinstance(entry, Session):
            data = _used(self._sessions, key, _PackedSession, PACKED_SESSIONS_MAX).of(entry)
        elif name == "cohort_members":
            data = _used(self._members, key, _PackedMap, PACKED_COHORTS_MAX).of(entry)
        else:
            return _hash([key, entry])
        return blake2b(_PAIR_HEAD + packed(key) + data, digest_size=DIGEST_BYTES).digest()


def _used(known: OrderedDict[_Key, _Kept], key: _Key, make: Callable[[], _Kept], count_max: int) -> _Kept:
    """The kept bytes of `key`, new ones if there are none. The most recently used are the last ones."""
    kept = known[key] = known.pop(key, None) or make()
    while len(known) > count_max:
        known.popitem(last=False)
    return kept


class _PackedMap:
    """Packed bytes of a map's items, with the objects that they were packed from."""

    def __init__(self) -> None:
        self._items: dict[Any, tuple[object, bytes]] = {}

    def of(self, values: dict[Any, Any]) -> bytes:
        """The same bytes as `packed(values)`."""
        before, after = self._items, dict[Any, tuple[object, bytes]]()
        for key in sorted(values):
            value, old = values[key], before.get(key)
            is_known = old is not None and old[0] is value
            after[key] = old if old is not None and is_known else (value, packed(key) + packed(value))
        self._items = after
        return map_head(len(after)) + b"".join([piece for _, piece in after.values()])


class _PackedSession:
    """Packed bytes of a session's results, of which an entry adds one and drops one."""

    def __init__(self) -> None:
        self._results = _PackedMap()

    def of(self, session: Session) -> bytes:
        """The same bytes as `packed(session)`."""
        return b"".join(
            (
                map_head(3),
                packed("last") + packed(session.last),
                packed("results") + self._results.of(session.results),
                packed("used") + packed(session.used),
            )
        )


class _PackedTopic:
    """Packed bytes of a topic's parts, with the objects that they were packed from."""

    def __init__(self) -> None:
        self._layout: tuple[object, bytes] = (None, b"")
        self._assignments = _PackedMap()

    def of(self, topic: Topic) -> bytes:
        """The same bytes as `packed(topic)`."""
        values = {name: getattr(topic, name) for name in topic.__struct_fields__}
        present = sorted(name for name, value in values.items() if value is not msgspec.UNSET)
        parts = [map_head(len(present))]
        for name in present:
            parts.append(packed(name))
            if name == "assignments":
                parts.append(self._assignments.of(topic.assignments))
            elif name == "layout":
                if self._layout[0] is not topic.layout:
                    self._layout = (topic.layout, packed(topic.layout))
                parts.append(self._layout[1])
            else:
                parts.append(packed(values[name]))
        return b"".join(parts)


def _hash(value: object) -> bytes:
    return blake2b(packed(value), digest_size=DIGEST_BYTES).digest()
