"""Columns and durations as people type them."""

from __future__ import annotations

import re

import click
import pyarrow as pa

from ringfence.control.runtime.handlers import type_names

_TIME = re.compile(r"(\d+)\s*(ms|s|m|h|d)")
_TIME_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def parse_column(text: str) -> pa.Field:
    """`name:type`, with `!` behind for a column without nulls. UsageError says what is wrong."""
    name, separator, kind = text.partition(":")
    required = kind.endswith("!")
    if not separator or not name:
        raise click.UsageError(f"--column {text!r}: NAME:TYPE, as id:int64! or price:decimal(15,2)")
    return pa.field(name, parse_type(kind.removesuffix("!").strip()), nullable=not required)


def parse_type(text: str) -> pa.DataType:
    """A type by the name that pyarrow prints. UsageError for an unknown one."""
    try:
        return type_names.parse_type(text)
    except ValueError as error:
        raise click.UsageError(f"{error}, or take the columns of a file with --schema-of") from None


def parse_duration_ms(text: str) -> int:
    """Milliseconds of `7d`, `12h`, `30m`, `90s`, `500ms`. UsageError for another form."""
    match = _TIME.fullmatch(text.strip())
    if match is None:
        raise click.UsageError(f"time {text!r}: a number with ms, s, m, h or d, as 7d")
    return int(match[1]) * _TIME_MS[match[2]]
