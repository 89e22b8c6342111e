"""Escape characters that control a terminal in texts from stored data and names."""

from __future__ import annotations

import codecs
import sys
import unicodedata

# Zero-width joiners, which Persian text and emoji need.
_JOINERS = frozenset("\u200c\u200d")
# Unicode categories: control, format (also bidirectional), surrogates, line and paragraph separators.
_ESCAPED = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
# Surrogates that Python uses for undecodable bytes of file names.
_SURROGATES = range(0xDC80, 0xDD00)
OUTPUT_ERRORS = "ringfence_output"


def printable(text: str) -> str:
    """Return the text on one line; control and bidirectional format characters become escapes."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(character if _is_shown(character) else _escape(character) for character in text)


def _is_shown(character: str) -> bool:
    return unicodedata.category(character) not in _ESCAPED or character in _JOINERS


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def prepare_stdout() -> None:
    """Make stdout accept any text in any encoding.

    Undecodable bytes of file names are written unchanged; letters that the encoding lacks become escapes. An
    error handler that the user set (`PYTHONIOENCODING=latin-1:replace`) stays.
    """
    if not hasattr(sys.stdout, "reconfigure") or sys.stdout.errors not in {"strict", "surrogateescape"}:
        return
    codecs.register_error(OUTPUT_ERRORS, _encode)
    sys.stdout.reconfigure(errors=OUTPUT_ERRORS)


def _encode(error: UnicodeError) -> tuple[str | bytes, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    first = ord(error.object[error.start])
    if first in _SURROGATES:
        return bytes([first - 0xDC00]), error.start + 1
    return _escape(error.object[error.start]).encode(error.encoding), error.start + 1
