"""A broken promise, by the name that the design gives it."""

from __future__ import annotations


class ViolationError(AssertionError):
    """`invariant` is its number in the design (I4, I5 ...) or L for the log's own."""

    def __init__(self, invariant: str, what: str) -> None:
        super().__init__(f"{invariant}: {what}")
        self.invariant = invariant
