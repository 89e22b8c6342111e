"""Common types of the messages at a node's control address."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

Text = Annotated[str, Meta(max_length=256)]
Addresses = Annotated[tuple[Text, ...], Meta(max_length=16)]
Id = Annotated[bytes, Meta(min_length=16, max_length=16)]
Number = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]


class CallBase(Struct, frozen=True, kw_only=True, tag_field="call"):
    """Base of all requests."""


class ReplyBase(Struct, frozen=True, kw_only=True, tag_field="reply"):
    """Base of all replies."""
