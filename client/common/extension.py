"""The extension in front of a body: items of kind and payload, padded to 8 bytes, the whole to 64. Pure."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from ringfence.native.errors import ProtocolError
from ringfence.native.wire import BODY_ALIGN_BYTES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from typing_extensions import Buffer

ITEM = struct.Struct("<HHI")  # kind, zero, length
ITEM_ALIGN = 8
ORIGIN = struct.Struct("<QQ")  # version that sealed the partition of the first staging, record number there


def packed(items: Mapping[int, bytes]) -> bytes:
    """The extension with these items, in their order; empty without any."""
    out = bytearray()
    for kind, payload in items.items():
        out += ITEM.pack(kind, 0, len(payload)) + payload
        out += bytes(-len(out) % ITEM_ALIGN)
    return bytes(out) + bytes(-len(out) % BODY_ALIGN_BYTES)


def items_of(extension: Buffer) -> dict[int, bytes]:
    """The items of an extension, also of kinds that this program does not know.

    Raises:
        ProtocolError: an item is longer than the extension.
    """
    view = memoryview(extension)
    found: dict[int, bytes] = {}
    at = 0
    while at + ITEM.size <= len(view):
        kind, _, size = ITEM.unpack_from(view, at)
        if not kind:
            break
        start = at + ITEM.size
        if start + size > len(view):
            raise ProtocolError("an item is longer than its extension", kind=kind, bytes=size)
        found[kind] = bytes(view[start : start + size])
        at = start + size + -(start + size) % ITEM_ALIGN
    return found
