"""The cluster's level in the metadata: at level 0 every byte is that of a program without levels."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from ringfence.control.machines.digests import StateDigests
from ringfence.control.machines.metadata import apply
from ringfence.control.machines.orders import SetLevel, between
from ringfence.control.model.state import (
    ADDED_BY_LEVEL_1,
    EMPTY,
    FORMAT_OF_LEVEL_0,
    STATE_FORMAT,
    MetadataState,
    canonical_bytes,
    decode_state,
)
from ringfence.control.model.topics import Replica
from ringfence.control.store import snapshot
from ringfence.control.store.journal import Position
from ringfence.control.store.snapshot import Snapshot
from ringfence.native.wire import LEVEL_NEWEST
from tests.control.commands import INIT, NODE, STORE, create, entry

HERE = Replica(node=NODE, store=STORE)


def begun(level: int) -> MetadataState:
    state, _ = apply(EMPTY, entry(1, replace(INIT, level=level)))
    state, _ = apply(state, entry(2, create("public/default/t")))
    return state


def test_a_history_begins_at_the_level_of_the_program_that_began_it() -> None:
    assert begun(LEVEL_NEWEST).level == LEVEL_NEWEST
    # As a program without levels wrote it.
    plain = msgspec.msgpack.decode(msgspec.msgpack.encode(INIT))
    del plain["level"]
    old = msgspec.msgpack.decode(msgspec.msgpack.encode(plain), type=type(INIT))
    first, _ = apply(EMPTY, entry(1, old))
    assert first.level == 0


def test_at_level_0_bytes_and_hashes_do_not_have_what_later_levels_added() -> None:
    fields = msgspec.msgpack.decode(canonical_bytes(begun(0)))
    assert set(MetadataState.__struct_fields__) - set(fields) == ADDED_BY_LEVEL_1
    assert set(msgspec.msgpack.decode(canonical_bytes(begun(1)))) == set(MetadataState.__struct_fields__)
    old, new = begun(0), begun(1)
    assert decode_state(canonical_bytes(old)) == old
    assert decode_state(canonical_bytes(new)) == new
    assert StateDigests().of(old) != StateDigests().of(new)


@pytest.mark.parametrize(("level", "expected"), [(0, FORMAT_OF_LEVEL_0), (LEVEL_NEWEST, STATE_FORMAT)])
def test_a_snapshot_has_the_format_of_its_level(level: int, expected: int, tmp_path: Path) -> None:
    state = begun(level)
    snapshot.write(tmp_path / "s", Snapshot(Position(2, 1), state))
    written = (tmp_path / "s").read_bytes()
    assert int.from_bytes(written[6:8], "little") == expected
    assert snapshot.read(tmp_path / "s", history=INIT.history).state == state


def test_a_raised_level_is_the_first_order_that_a_node_gets() -> None:
    phases = between(EMPTY, begun(LEVEL_NEWEST), HERE)
    assert phases[0] == (SetLevel(level=LEVEL_NEWEST),)
    assert len(phases) > 1
    assert not any(isinstance(order, SetLevel) for phase in between(EMPTY, begun(0), HERE) for order in phase)
    assert between(begun(0), replace(begun(0), level=1), HERE)[0] == (SetLevel(level=1),)
