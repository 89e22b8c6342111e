"""The canonical bytes of the state."""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace

from ringfence.control.model.state import canonical_bytes, decode_state, sorted_maps
from tests.fakes.metadata_commands import started


@pytest.mark.parametrize("count", [0, 1, 15, 16, 17, 65_535, 65_536])
def test_canonical_bytes_in_pieces_are_those_of_the_whole(count: int) -> None:
    state = replace(started(), level=3, config={f"limit {n}": n for n in range(count, 0, -1)})
    plain = sorted_maps(msgspec.to_builtins(state, builtin_types=(bytes,)))
    assert canonical_bytes(state) == msgspec.msgpack.encode(plain)
    assert decode_state(canonical_bytes(state)) == state
