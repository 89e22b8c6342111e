"""Parse columns, types and durations of the command line."""

from __future__ import annotations

import re

import click
import pyarrow as pa

from ringfence.control.runtime.handlers import type_names

_TIME = re.compile(r"(\d+)\s*(ms|s|m|h|d)")
_TIME_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def parse_column(text: str) -> pa.Field:
    """Parse `name:type`; a `!` after the type means not nullable. Raises UsageError."""
    name, separator, kind = text.partition(":")
    required = kind.endswith("!")
    if not separator or not name:
        raise click.UsageError(
            f"--column {text!r}: expected NAME:TYPE, for example id:int64! or price:decimal(15,2)"
        )
    return pa.field(name, parse_type(kind.removesuffix("!").strip()), nullable=not required)


def parse_type(text: str) -> pa.DataType:
    """Return the type of a name that pyarrow prints. UsageError if the name is unknown."""
    try:
        return type_names.parse_type(text)
    except ValueError as error:
        raise click.UsageError(f"{error}, or use the columns of a file with --schema-of") from None


def parse_duration_ms(text: str) -> int:
    """Return the milliseconds of `7d`, `12h`, `30m`, `90s`, `500ms`. UsageError for any other form."""
    match = _TIME.fullmatch(text.strip())
    if match is None:
        raise click.UsageError(f"time {text!r}: expected a number with ms, s, m, h or d, for example 7d")
    return int(match[1]) * _TIME_MS[match[2]]
