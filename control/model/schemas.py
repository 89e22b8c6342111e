"""A topic's schemas in the log: the Arrow message for programs, the columns for comparison.

The metadata machine does not read the message. The proposer of a schema reads its columns
(`runtime.handlers.schemas`), and the machine only compares columns. So a replay of the log does not depend
on the version of an Arrow library.
"""

from __future__ import annotations

import msgspec


class Column(msgspec.Struct, frozen=True, array_like=True):
    """One top-level column; `type` is Arrow's name of it, nested fields and their nullability included."""

    name: str
    type: str
    nullable: bool


class SchemaVersion(msgspec.Struct, frozen=True, array_like=True):
    """One entry in a topic's list of schemas; its position is the schema id."""

    message: bytes
    columns: tuple[Column, ...]


def extension_fault(old: tuple[Column, ...], new: tuple[Column, ...]) -> str | None:
    """The reason that `new` may not follow `old`; None if it only adds nullable columns at the end.

    Then rows of the old schema stay readable under the new one: the added columns read as null.
    """
    fault = _altered(old, new)
    if fault is not None:
        return fault
    added = new[len(old) :]
    if not added:
        return "no column is added"
    for column in added:
        if not column.nullable:
            return f"the added column {column.name!r} is not nullable, and stored rows have no value for it"
    return name_fault(new)


def difference(current: tuple[Column, ...], requested: tuple[Column, ...]) -> str | None:
    """The first column in which the schema `requested` differs from `current`; None if both are the same."""
    fault = _altered(current, requested)
    if fault is None and len(requested) > len(current):
        fault = f"column {len(current)}, {_shown(requested[len(current)])}, is not there"
    return fault


def _altered(old: tuple[Column, ...], new: tuple[Column, ...]) -> str | None:
    """The first column of `old` that is missing in `new` or differs there."""
    for place, column in enumerate(old):
        if place >= len(new):
            return f"column {column.name!r} is missing"
        if new[place] != column:
            return f"column {place} was {_shown(column)} and would be {_shown(new[place])}"
    return None


def name_fault(columns: tuple[Column, ...]) -> str | None:
    """The reason that the columns' names do not identify them; None if they do."""
    names = [column.name for column in columns]
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        return f"two columns are named {twice!r}"
    return None


def _shown(column: Column) -> str:
    return f"{column.name}: {column.type}{'' if column.nullable else ' not null'}"
