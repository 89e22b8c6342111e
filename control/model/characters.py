"""Classify the characters of names: one table for all nodes, independent of their Python.

`str.isprintable` follows the Unicode tables of each Python, so two nodes could apply one entry
differently. This table is fixed: control, format, separator, private and surrogate characters of Unicode
14, and code points that can never be characters. Code points that Unicode has not assigned yet are
accepted, so every name that any Python accepted before is accepted.
"""

from __future__ import annotations

import re
from typing import Final

# First and last code point of each range that is not printed.
_RANGES: Final = (
    (0x0, 0x1F),
    (0x7F, 0xA0),
    (0xAD, 0xAD),
    (0x600, 0x605),
    (0x61C, 0x61C),
    (0x6DD, 0x6DD),
    (0x70F, 0x70F),
    (0x890, 0x891),
    (0x8E2, 0x8E2),
    (0x1680, 0x1680),
    (0x180E, 0x180E),
    (0x2000, 0x200F),
    (0x2028, 0x202F),
    (0x205F, 0x2064),
    (0x2066, 0x206F),
    (0x3000, 0x3000),
    (0xD800, 0xF8FF),
    (0xFDD0, 0xFDEF),
    (0xFEFF, 0xFEFF),
    (0xFFF9, 0xFFFB),
    (0xFFFE, 0xFFFF),
    (0x110BD, 0x110BD),
    (0x110CD, 0x110CD),
    (0x13430, 0x13438),
    (0x1BCA0, 0x1BCA3),
    (0x1D173, 0x1D17A),
    *((plane << 16 | 0xFFFE, plane << 16 | 0xFFFF) for plane in range(1, 0xE)),
    (0xE0001, 0xE0001),
    (0xE0020, 0xE007F),
    (0xEFFFE, 0x10FFFF),
)
_UNPRINTABLE: Final = re.compile("[" + "".join(f"{chr(low)}-{chr(high)}" for low, high in _RANGES) + "]")
# The characters that `str.strip` removes; spelled out here, since the interpreter's table may change, too.
BLANKS: Final = (
    "\t\n\v\f\r\x1c\x1d\x1e\x1f \x85\xa0\u1680"
    "\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000"
)


def is_printable(text: str) -> bool:
    """Whether all characters of `text` are printed, by the table above."""
    return _UNPRINTABLE.search(text) is None
