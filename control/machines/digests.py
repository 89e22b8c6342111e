"""The hash that nodes report with their index: equal at equal indexes, or one of them has applied wrongly.

It is a tree of two levels: a hash of each entry of each map, and one over all of these. Values of the state
are replaced, never changed, so an entry that is the same object has the same hash; after a command only what
it replaced is hashed again. `model.state.digest` hashes the canonical bytes instead: as telling, all at once.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any, Final

import msgspec

from ringfence.control.model.state import MetadataState, fields_of, sorted_maps

DIGEST_BYTES: Final = 16
_MAPS: Final = (
    "nodes", "topics", "names", "producers", "tombstones", "sessions", "config", "removed", "changes",
    "leftovers", "moves", "kept", "witnesses",
)  # fmt: skip


class StateDigests:
    """Hashes of the states of one node, one after the other."""

    def __init__(self) -> None:
        self._maps: dict[str, tuple[object, bytes]] = {}
        self._entries: dict[str, dict[Any, tuple[object, bytes]]] = {name: {} for name in _MAPS}

    def of(self, state: MetadataState) -> bytes:
        """16 bytes. Time grows with what changed since the last call, and a little with the maps it is in."""
        total = blake2b(digest_size=DIGEST_BYTES)
        for name in fields_of(state):
            value = getattr(state, name)
            total.update(self._of_map(name, value) if name in _MAPS else _hashed(value))
        return total.digest()

    def _of_map(self, name: str, value: dict[Any, object]) -> bytes:
        known = self._maps.get(name)
        if known is not None and known[0] is value:
            return known[1]
        before, after = self._entries[name], dict[Any, tuple[object, bytes]]()
        whole = blake2b(digest_size=DIGEST_BYTES)
        for key in sorted(value):
            entry, old = value[key], before.get(key)
            after[key] = old if old is not None and old[0] is entry else (entry, _hashed([key, entry]))
            whole.update(after[key][1])
        self._entries[name] = after
        self._maps[name] = (value, whole.digest())
        return whole.digest()


def _hashed(value: object) -> bytes:
    plain = sorted_maps(msgspec.to_builtins(value, builtin_types=(bytes,)))
    return blake2b(msgspec.msgpack.encode(plain), digest_size=DIGEST_BYTES).digest()
