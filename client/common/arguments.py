"""Check arguments of public calls before anything is queued: seconds, whole numbers, names of scopes."""

from __future__ import annotations

import operator
from typing import Any, Final

from ringfence.native.errors import InvalidArgumentError

SECONDS_MAX: Final = 31_536_000.0
"""A year. Larger values, such as infinity, exceed the range of system clocks."""
NUMBER_MAX: Final = 2**63 - 1  # the largest signed 64-bit integer


def seconds(name: str, given: Any) -> float:
    """A time-out above 0; values above a year become a year.

    Raises:
        InvalidArgumentError: the value is invalid; the message names the argument.
    """
    try:
        if isinstance(given, str | bytes | bool):
            raise TypeError  # noqa: TRY301 - float() would accept these types
        value = float(given)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidArgumentError(
            f"{name} must be a number of seconds above 0", **_shown(name, given)
        ) from error
    if not value > 0:
        raise InvalidArgumentError(f"{name} must be above 0", **_shown(name, given))
    return min(value, SECONDS_MAX)


def whole(name: str, given: Any, least: int, most: int = NUMBER_MAX) -> int:
    """A whole number within a range: an int, or an integer of numpy.

    Raises:
        InvalidArgumentError: the value is invalid; the message names the argument.
    """
    try:
        if isinstance(given, bool):
            raise TypeError  # noqa: TRY301 - operator.index() would accept it
        value = operator.index(given)
    except TypeError as error:
        hint = f"; convert the text: int({given!r})" if isinstance(given, str) else ""
        raise InvalidArgumentError(f"{name} must be a whole number{hint}", **_shown(name, given)) from error
    if not least <= value <= most:
        raise InvalidArgumentError(f"{name} must be {least} .. {most}", **_shown(name, value))
    return value


def _shown(name: str, given: Any) -> dict[str, Any]:
    return {name if name.isidentifier() else "given": repr(given)}


def scope_name(given: Any, bytes_max: int, **values: Any) -> str:
    """Check the name of a scope.

    Raises:
        InvalidArgumentError: it is not a str, cannot be encoded as UTF-8, is empty, or is too long.
    """
    if not isinstance(given, str):
        raise InvalidArgumentError(
            f"the name of a scope must be a text of 1 to {bytes_max} bytes", scope=repr(given), **values
        )
    try:
        size = len(given.encode())
    except UnicodeEncodeError as error:
        raise InvalidArgumentError(
            "the name of a scope has a character that UTF-8 cannot encode", scope=ascii(given), **values
        ) from error
    if not 0 < size <= bytes_max:
        raise InvalidArgumentError(
            f"the name of a scope must be a text of 1 to {bytes_max} bytes", scope=given, bytes=size, **values
        )
    return given
