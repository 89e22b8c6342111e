"""A topic's schemas as the log holds them: the Arrow message for programs, the columns for comparison.

The message is opaque to the metadata machine. Who proposes a schema reads its columns (`runtime.schemas`),
and the machine compares columns only, so that replaying a log never depends on an Arrow library's version.
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
    """Why `new` may not follow `old`; None if it only adds nullable columns at the end.

    Rows of the old schema stay readable under the new one then: the added columns read as null.
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


def difference(known: tuple[Column, ...], asked: tuple[Column, ...]) -> str | None:
    """The first column in which `asked` is another schema than `known`; None if it is the same."""
    fault = _altered(known, asked)
    if fault is None and len(asked) > len(known):
        fault = f"column {len(known)}, {_shown(asked[len(known)])}, is not there"
    return fault


def _altered(old: tuple[Column, ...], new: tuple[Column, ...]) -> str | None:
    """The first column of `old` that is missing in `new`, or another one there."""
    for place, column in enumerate(old):
        if place >= len(new):
            return f"column {column.name!r} is missing"
        if new[place] != column:
            return f"column {place} was {_shown(column)} and would be {_shown(new[place])}"
    return None


def name_fault(columns: tuple[Column, ...]) -> str | None:
    """Why the columns' names do not identify them; None if they do."""
    names = [column.name for column in columns]
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        return f"two columns are named {twice!r}"
    return None


def _shown(column: Column) -> str:
    return f"{column.name}: {column.type}{'' if column.nullable else ' not null'}"
