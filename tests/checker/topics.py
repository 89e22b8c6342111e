"""Topics as a client of the metadata API sees them: what a single copy would answer, name by name.

A created topic has an id that the cluster draws, so a creation whose answer was lost leaves a topic whose id
is not known yet: the first who is told it settles what it was.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Final, NamedTuple

from tests.checker.history import UNKNOWN


class Create(NamedTuple):
    """Answers the id of the new topic, or None if there was one of that name."""

    name: str


class Delete(NamedTuple):
    """Answers whether there was one."""

    name: str


class Describe(NamedTuple):
    """Answers the id, or None if there is no topic of that name."""

    name: str


class _Live(NamedTuple):
    """`topic` is None while nobody was told its id."""

    topic: int | None


class TopicsModel:
    """A state is (the topic that there is or None, the greatest id that the name has had)."""

    initial: Final[tuple[_Live | None, int]] = (None, 0)

    def part(self, call: Create | Delete | Describe) -> Hashable:
        return call.name

    def after(
        self, state: tuple[_Live | None, int], call: Create | Delete | Describe, result: Any
    ) -> tuple[Hashable, ...]:
        live, used = state
        match call:
            case Create():
                return self._create(live, used, result)
            case Delete():
                known = UNKNOWN if result is UNKNOWN else bool(result)
                return ((None, used),) if known in (UNKNOWN, live is not None) else ()
            case Describe():
                return self._describe(live, used, result)

    @staticmethod
    def _create(live: _Live | None, used: int, result: Any) -> tuple[Hashable, ...]:
        if live is not None:
            return ((live, used),) if result is UNKNOWN or result is None else ()
        if result is UNKNOWN:
            return ((_Live(None), used),)
        return ((_Live(result), result),) if result is not None and result > used else ()

    @staticmethod
    def _describe(live: _Live | None, used: int, result: Any) -> tuple[Hashable, ...]:
        if result is UNKNOWN:
            return ((live, used),)
        if live is None or result is None:
            return ((live, used),) if live is None and result is None else ()
        if live.topic is None:
            return ((_Live(result), result),) if result > used else ()
        return ((live, used),) if live.topic == result else ()
