"""The base of all commands: a tagged MessagePack map."""

from __future__ import annotations

import msgspec


class CommandBase(msgspec.Struct, frozen=True, kw_only=True, tag_field="do"):
    """A command. Fields that are added later have defaults; tags are never reused."""
