"""Compute the hash that nodes report with their index. Hashes that differ at one index prove a fault.

The hash is a tree of two levels: a hash of each entry of each map, and one over all of these. Values of
the state are replaced, never changed, so an unchanged entry is the same object and keeps its hash. After a
command, only the replaced entries are hashed again. `model.state.digest` hashes all canonical bytes
instead: it proves as much and costs more.

A topic is one entry of up to 4,096 partitions, and each COMMIT replaces one of its assignments. The packed
bytes of the other assignments and of the layout are kept, so only the new assignment is packed again.
"""

from __future__ import annotations

from collections import OrderedDict
from hashlib import blake2b
from typing import Any, Final

import msgspec

from ringfence.control.model.ids import TopicId
from ringfence.control.model.state import MetadataState, fields_of, map_head, packed
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
)
# Topics whose packed assignments are kept: some 300 bytes a partition, 10 MB for the largest topics.
PACKED_TOPICS_MAX: Final = 8
# The head of a MessagePack array of two: an entry is hashed as its key and its value.
_PAIR_HEAD: Final = b"\x92"


class StateDigests:
    """Hashes of the successive states of one node."""

    def __init__(self) -> None:
        self._maps: dict[str, tuple[object, bytes]] = {}
        self._entries: dict[str, dict[Any, tuple[object, bytes]]] = {name: {} for name in _MAPS}
        self._packed: OrderedDict[TopicId, _PackedTopic] = OrderedDict()

    def of(self, state: MetadataState) -> bytes:
        """The hash of a state, 16 bytes. Time grows with the changes since the last call, and a little with
        their maps.
        """
        total = blake2b(digest_size=DIGEST_BYTES)
        for name in fields_of(state):
            value = getattr(state, name)
            total.update(self._of_map(name, value) if name in _MAPS else _hash(value))
        return total.digest()

    def _of_map(self, name: str, value: dict[Any, object]) -> bytes:
        unchanged = self._maps.get(name)
        if unchanged is not None and unchanged[0] is value:
            return unchanged[1]
        before, after = self._entries[name], dict[Any, tuple[object, bytes]]()
        whole = blake2b(digest_size=DIGEST_BYTES)
        for key in sorted(value):
            entry, old = value[key], before.get(key)
            is_known = old is not None and old[0] is entry
            after[key] = old if old is not None and is_known else (entry, self._of_entry(key, entry))
            whole.update(after[key][1])
        self._entries[name] = after
        self._maps[name] = (value, whole.digest())
        return whole.digest()

    def _of_entry(self, key: Any, entry: object) -> bytes:
        if not isinstance(entry, Topic):
            return _hash([key, entry])
        packed_topic = self._packed.pop(entry.topic, None) or _PackedTopic()
        self._packed[entry.topic] = packed_topic  # the most recently used is the last one
        while len(self._packed) > PACKED_TOPICS_MAX:
            self._packed.popitem(last=False)
        return blake2b(_PAIR_HEAD + packed(key) + packed_topic.of(entry), digest_size=DIGEST_BYTES).digest()


class _PackedTopic:
    """Packed bytes of a topic's parts, with the objects that they were packed from."""

    def __init__(self) -> None:
        self._layout: tuple[object, bytes] = (None, b"")
        self._assignments: dict[Any, tuple[object, bytes]] = {}

    def of(self, topic: Topic) -> bytes:
        """The same bytes as `packed(topic)`."""
        values = {name: getattr(topic, name) for name in topic.__struct_fields__}
        present = sorted(name for name, value in values.items() if value is not msgspec.UNSET)
        parts = [map_head(len(present))]
        for name in present:
            parts.append(packed(name))
            if name == "assignments":
                parts += self._of_assignments(topic.assignments)
            elif name == "layout":
                if self._layout[0] is not topic.layout:
                    self._layout = (topic.layout, packed(topic.layout))
                parts.append(self._layout[1])
            else:
                parts.append(packed(values[name]))
        return b"".join(parts)

    def _of_assignments(self, assignments: dict[Any, Any]) -> list[bytes]:
        before, after = self._assignments, dict[Any, tuple[object, bytes]]()
        for key in sorted(assignments):
            assignment, old = assignments[key], before.get(key)
            is_known = old is not None and old[0] is assignment
            after[key] = (
                old if old is not None and is_known else (assignment, packed(key) + packed(assignment))
            )
        self._assignments = after
        return [map_head(len(after)), *(piece for _, piece in after.values())]


def _hash(value: object) -> bytes:
    return blake2b(packed(value), digest_size=DIGEST_BYTES).digest()
