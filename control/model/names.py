"""Names that users choose: topics and producers.

A topic is `tenant/namespace/name`; a plain name stands for `public/default/name`. The log has the full
form. Users see the short one where both mean the same.
"""

from __future__ import annotations

import re
from typing import Final

from ringfence.control.model.characters import is_printable
from ringfence.native.wire import NAME_BYTES_MAX

DEFAULT_PREFIX: Final = "public/default/"
# No dot at the front: such names are hidden or special in file systems.
_SEGMENT: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*")
_PARTITION: Final = re.compile(r"[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9]{1,19}")


def full_topic_name(name: str) -> str:
    """`name` with tenant and namespace. ValueError names its fault."""
    full = name if "/" in name else DEFAULT_PREFIX + name
    segments = full.split("/")
    if len(segments) != 3 or not all(_SEGMENT.fullmatch(segment) for segment in segments):
        raise ValueError(
            f"topic name {name[:NAME_BYTES_MAX]!r}: use `name` or `tenant/namespace/name`, each of letters, "
            "digits, '_', '-' and, not in front, '.'"
        )
    if len(full) > NAME_BYTES_MAX:
        raise ValueError(
            f"topic name of {len(full)} bytes: at most {NAME_BYTES_MAX}, tenant and namespace included"
        )
    return full


def is_partition_name(name: str) -> bool:
    """Whether a name has the form of a partition's: first slot, last slot, id (`0000-7fff-655360`)."""
    return _PARTITION.fullmatch(name) is not None


def shown_topic_name(full: str) -> str:
    """The short form where tenant and namespace are the default ones, else the full one."""
    return full.removeprefix(DEFAULT_PREFIX)


def full_topic_prefix(prefix: str) -> str:
    """A prefix of full names. A prefix without a slash is one of plain names; "" matches every topic."""
    return prefix if not prefix or "/" in prefix else DEFAULT_PREFIX + prefix


def check_label(label: str, what: str) -> str:
    """`label`, unchanged: 1 to 255 bytes of UTF-8, printable. ValueError names `what` and the reason."""
    size = len(label.encode("utf-8", errors="replace"))
    if not 0 < size <= NAME_BYTES_MAX:
        raise ValueError(f"{what} of {size} bytes: 1 to {NAME_BYTES_MAX}")
    if not is_printable(label):
        raise ValueError(f"{what} {label!r} has unprintable characters")
    return label
