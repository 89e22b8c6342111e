"""The extension in front of a body: as docs/protocol.md has it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence.arrow.encode import note_extension
from ringfence.common import extension
from ringfence.native.errors import ProtocolError
from ringfence.native.wire import ExtensionKind

ITEMS = st.dictionaries(st.integers(1, 60), st.binary(max_size=90), max_size=4)


@given(ITEMS)
def test_items_come_back_as_they_were_packed(items: dict[int, bytes]) -> None:
    packed = extension.packed(items)
    assert len(packed) % 64 == 0
    assert extension.items_of(packed) == items


def test_a_note_has_the_bytes_that_it_always_had() -> None:
    for note in (b"", b"x" * 8, b"y" * 57, b"z" * 4096):
        assert extension.packed({ExtensionKind.NOTE: note}) == note_extension(note)
    assert extension.packed({}) == note_extension(None) == b""


def test_an_item_beyond_the_end_is_damage() -> None:
    with pytest.raises(ProtocolError, match="longer than its extension"):
        extension.items_of(extension.ITEM.pack(1, 0, 100) + bytes(56))
