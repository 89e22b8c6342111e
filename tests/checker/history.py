"""Operations with the times of their invocation and return, and a recorder that collects them."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, Final


class _Unknown:
    def __repr__(self) -> str:
        return "UNKNOWN"


UNKNOWN: Final = _Unknown()
"""The result of an operation whose caller did not learn it."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One call and what became of it.

    `returned` None: it was never heard of again, so it may take effect at any time after `invoked`, or never.
    `returned` set and `result` UNKNOWN: it took effect in between, but what it answered was lost.
    Operations whose intervals only touch count as concurrent.
    """

    process: Hashable
    call: Any
    result: Any
    invoked: float
    returned: float | None


class HistoryError(Exception):
    """A history contradicts itself, so nothing can be said about the system; the message names the place."""


class Recorder:
    """Collects a history as it happens. Times only ascend: line numbers or a virtual clock will do."""

    def __init__(self) -> None:
        self._open: dict[int, tuple[Hashable, Any, float]] = {}
        self._done: list[Operation] = []
        self._tickets = 0

    def invoke(self, process: Hashable, call: Any, at: float) -> int:
        """Note that `call` begins; the ticket is for its end."""
        self._tickets += 1
        self._open[self._tickets] = (process, call, at)
        return self._tickets

    def returned(self, ticket: int, result: Any, at: float) -> None:
        """HistoryError when it ends before it began."""
        process, call, invoked = self._open.pop(ticket)
        if at < invoked:
            raise HistoryError(
                f"{call!r} of process {process!r} was invoked at {invoked} and returned at {at}"
            )
        self._done.append(Operation(process, call, result, invoked, at))

    def unknown(self, ticket: int) -> None:
        """It may have taken effect, or do so later, or never."""
        process, call, invoked = self._open.pop(ticket)
        self._done.append(Operation(process, call, UNKNOWN, invoked, None))

    def without_effect(self, ticket: int) -> None:
        """It certainly changed nothing and told nothing (a refusal, a read that timed out): forget it."""
        del self._open[ticket]

    def operations(self) -> list[Operation]:
        """The history so far; what is still open counts as unknown."""
        still = [Operation(process, call, UNKNOWN, at, None) for process, call, at in self._open.values()]
        return sorted([*self._done, *still], key=lambda operation: operation.invoked)
