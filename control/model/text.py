"""Parts of texts for people: numbers with their noun, lists that say how many items are left out.

The state may contain texts that are made here (reasons of rebalances), so the forms must not change.
"""

from __future__ import annotations

from collections.abc import Sequence


def counted(count: int, noun: str) -> str:
    """`1 node`, `2,000 nodes`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def listed(items: Sequence[object], most: int, separator: str = ", ") -> str:
    """The first `most` items: `1, 2, 3`; after a list that is cut, `and 3 more`."""
    more = len(items) - most
    return separator.join([*map(str, items[:most]), *([f"and {more:,} more"] if more > 0 else [])])
