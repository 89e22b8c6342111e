"""Checks arguments of public calls before anything is queued: seconds, whole numbers, names of scopes."""

from __future__ import annotations

import operator
from typing import Any, Final

from ringfence.native.errors import InvalidArgumentError

SECONDS_MAX: Final = 31_536_000.0
"""A year: what is more, as infinity, is no time-out to people, and too much for the system's clocks."""
NUMBER_MAX: Final = 2**63 - 1  # what every language counts to


def seconds(name: str, given: Any) -> float:
    """A time-out above 0; infinity and all beyond a year is a year.

    Raises:
        InvalidArgumentError: it is none; it names the argument.
    """
    try:
        if isinstance(given, str | bytes | bool):
            raise TypeError  # noqa: TRY301 - as what float() does not take
        value = float(given)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidArgumentError(f"{name} is a number of seconds above 0", **_shown(name, given)) from error
    if not value > 0:
        raise InvalidArgumentError(f"{name} must be above 0", **_shown(name, given))
    return min(value, SECONDS_MAX)


def whole(name: str, given: Any, least: int, most: int = NUMBER_MAX) -> int:
    """A whole number within its range: an int, or one of numpy's.

    Raises:
        InvalidArgumentError: it is none; it names the argument.
    """
    try:
        if isinstance(given, bool):
            raise TypeError  # noqa: TRY301 - as what has no index
        value = operator.index(given)
    except TypeError as error:
        hint = f"; it is a text: int({given!r})" if isinstance(given, str) else ""
        raise InvalidArgumentError(f"{name} is a whole number{hint}", **_shown(name, given)) from error
    if not least <= value <= most:
        raise InvalidArgumentError(f"{name} is {least} .. {most}", **_shown(name, value))
    return value


def _shown(name: str, given: Any) -> dict[str, Any]:
    return {name if name.isidentifier() else "given": repr(given)}


def scope_name(given: Any, bytes_max: int, **values: Any) -> str:
    """A scope's name.

    Raises:
        InvalidArgumentError: it is no text that UTF-8 can write, is empty, or is too long.
    """
    if not isinstance(given, str):
        raise InvalidArgumentError(
            f"a scope's name is a text of 1 to {bytes_max} bytes", scope=repr(given), **values
        )
    try:
        size = len(given.encode())
    except UnicodeEncodeError as error:
        raise InvalidArgumentError(
            "a scope's name has a character that UTF-8 cannot write", scope=ascii(given), **values
        ) from error
    if not 0 < size <= bytes_max:
        raise InvalidArgumentError(
            f"a scope's name is a text of 1 to {bytes_max} bytes", scope=given, bytes=size, **values
        )
    return given
