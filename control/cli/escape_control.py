"""Escape characters that would control a terminal in text that others stored or named."""

from __future__ import annotations

import codecs
import sys
import unicodedata

# Zero-width joiners, which Persian and emoji need.
_JOINERS = frozenset("\u200c\u200d")
# Unicode categories: control, format (also bidirectional), surrogates, line and paragraph separators.
_ESCAPED = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
# Bytes of names that are no text, as Python keeps them.
_SURROGATES = range(0xDC80, 0xDD00)
OUTPUT_ERRORS = "ringfence_output"


def printable(text: str) -> str:
    """The text on one line; what a terminal would obey or reorder is shown as an escape."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(character if _is_shown(character) else _escape(character) for character in text)


def _is_shown(character: str) -> bool:
    return unicodedata.category(character) not in _ESCAPED or character in _JOINERS


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def prepare_stdout() -> None:
    """Let stdout take any text in any encoding.

    Bytes of names that are no text come out as they are; letters that the encoding lacks come out as escapes.
    A handler that the user chose (`PYTHONIOENCODING=latin-1:replace`) stays.
    """
    if not hasattr(sys.stdout, "reconfigure") or sys.stdout.errors not in {"strict", "surrogateescape"}:
        return
    codecs.register_error(OUTPUT_ERRORS, _encoded)
    sys.stdout.reconfigure(errors=OUTPUT_ERRORS)


def _encoded(error: UnicodeError) -> tuple[str | bytes, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    first = ord(error.object[error.start])
    if first in _SURROGATES:
        return bytes([first - 0xDC00]), error.start + 1
    return _escape(error.object[error.start]).encode(error.encoding), error.start + 1
