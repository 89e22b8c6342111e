"""Numbers with their noun, as every text that a person reads has them."""

from __future__ import annotations


def counted(count: int, noun: str) -> str:
    """`1 node`, `2,000 nodes`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
