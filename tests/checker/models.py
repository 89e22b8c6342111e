"""What a single copy of the data would answer: sequential models for the search."""

from __future__ import annotations

from collections.abc import Hashable
from functools import lru_cache
from typing import Any, Final, NamedTuple, Protocol

from tests.checker.history import UNKNOWN


class Model(Protocol):
    """A sequential object. States are hashable and small: the search keeps up to a million of them."""

    @property
    def initial(self) -> Hashable: ...

    def part(self, call: Any) -> Hashable:
        """Which independent part of the object a call is about. Parts are checked each on its own."""
        ...

    def after(self, state: Any, call: Any, result: Any) -> tuple[Hashable, ...]:
        """All states that may follow when `call` answers `result` in `state`; none if it could not.

        With UNKNOWN as the result: whatever it answered.
        """
        ...


class Read(NamedTuple):
    key: Hashable = None


class Write(NamedTuple):
    value: Any
    key: Hashable = None


class CompareAndSet(NamedTuple):
    """Answers whether it swapped."""

    old: Any
    new: Any
    key: Hashable = None


class RegisterModel:
    """Registers, each under its key, nil (None) at first."""

    initial: Final = None

    def part(self, call: Read | Write | CompareAndSet) -> Hashable:
        return call.key

    def after(self, state: Any, call: Read | Write | CompareAndSet, result: Any) -> tuple[Any, ...]:
        match call:
            case Read():
                return (state,) if result is UNKNOWN or result == state else ()
            case Write():
                return (call.value,)
            case CompareAndSet():
                swaps = state == call.old
                if result is not UNKNOWN and bool(result) != swaps:
                    return ()
                return (call.new,) if swaps else (state,)


class Get(NamedTuple):
    key: str


class Put(NamedTuple):
    key: str
    value: str


class Append(NamedTuple):
    key: str
    value: str


_PRIME: Final = (1 << 127) - 1
_BASE: Final = 0x5DEECE66D1234567890ABCDEF0F1E2D3
Text = tuple[int, int, int]
"""A text as (bytes, fingerprint, base ** bytes): what two texts give when joined is found without them."""
EMPTY_TEXT: Final[Text] = (0, 0, 1)


@lru_cache(maxsize=65_536)
def text(value: str) -> Text:
    """The fingerprint of Rabin and Karp modulo 2**127 - 1.

    Two texts of up to a megabyte that differ have equal ones with a chance below 2**-100. In turn a state
    takes 100 bytes, however long the text is that thousands of appends have built.
    """
    mark, scale = 0, 1
    for byte in value.encode():
        mark = (mark * _BASE + byte + 1) % _PRIME
        scale = scale * _BASE % _PRIME
    return len(value.encode()), mark, scale


def joined(left: Text, right: Text) -> Text:
    return (left[0] + right[0], (left[1] * right[2] + right[1]) % _PRIME, left[2] * right[2] % _PRIME)


class StringsModel:
    """Texts by key, empty at first; `Append` adds at the end."""

    initial: Final = EMPTY_TEXT

    def part(self, call: Get | Put | Append) -> str:
        return call.key

    def after(self, state: Text, call: Get | Put | Append, result: Any) -> tuple[Text, ...]:
        match call:
            case Get():
                return (state,) if result is UNKNOWN or text(result) == state else ()
            case Put():
                return (text(call.value),)
            case Append():
                return (joined(state, text(call.value)),)
