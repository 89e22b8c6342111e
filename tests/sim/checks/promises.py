"""What each node promised by its messages, and whether it has it still: after every step, at every start.

What a follower acknowledged stays, unless a leader of a later term put its own in that place; and what
is committed stays whoever leads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from ringfence.control.consensus.messages import Entry, Message, MessageType
from tests.sim.checks.violation import ViolationError

ENTRIES_MAX: Final = 64
"""Acknowledged entries that are remembered of a node, the newest."""


class Promise:
    """What a store said that it holds: it must, at every later start."""

    __slots__ = ("entries", "term", "votes")

    def __init__(self) -> None:
        self.term = 0
        self.votes: dict[int, int] = {}  # candidate by term
        self.entries: dict[int, tuple[int, int]] = {}  # by index: its term, and that of who was told


class Promises:
    """Of all nodes. `violate` hears of what was not kept, `committed` is what anybody applied, by index."""

    def __init__(self, violate: Callable[[ViolationError], None], committed: Mapping[int, Entry]) -> None:
        self._violate, self._committed = violate, committed
        self._of: dict[int, Promise] = {}

    def sends(self, core: Any, message: Message) -> None:
        """A message leaves: what it promises must be durable by now, for good. `core` is its sender's."""
        if message.reject or message.type not in (MessageType.VOTE_ANSWER, MessageType.APPEND_ANSWER):
            return
        promise = self._of.setdefault(message.sender, Promise())
        promise.term = max(promise.term, message.term)
        if message.type is MessageType.VOTE_ANSWER:
            known = promise.votes.setdefault(message.term, message.to)
            if known != message.to:
                what = f"node {message.sender} votes for {known} and for {message.to} in term {message.term}"
                self._violate(ViolationError("one vote a term", what))
            return
        term = None if core is None else core.log.term(message.index)
        if term is not None and message.index:
            promise.entries.pop(message.index, None)  # the newest stand last
            promise.entries[message.index] = term, message.term
            while len(promise.entries) > ENTRIES_MAX:
                del promise.entries[next(iter(promise.entries))]

    def shrank(self, core: Any) -> None:
        """Entries of a running node's log were cut off or replaced: none of them may be needed."""
        promise = self._of.get(core.id)
        if promise is None:
            return
        log, last = core.log, core.log.last_index()
        for index, (term, told) in [*promise.entries.items()]:
            own = log.term(index) if index <= last else -1
            if own is None or own == term:
                continue
            committed = self._committed.get(index)
            if told == core.term or (committed is not None and committed.term == term):
                what = f"node {core.id} in term {core.term} has a log that ends at {last}, and has "
                what += f"acknowledged {index} of term {term} in term {told}"
                self._violate(ViolationError("acknowledged, then cut off", what))
            del promise.entries[index]

    def opened(self, node: int, store: Any) -> None:
        """A process read its log: everything that it ever promised is there."""
        promise = self._of.get(node)
        if promise is None:
            return
        hard, _ = store.initial_state()
        name = f"node {node} starts"
        if hard.term < promise.term:
            self._lost(f"{name} in term {hard.term}, it has answered in term {promise.term}")
        vote = promise.votes.get(hard.term, 0)
        if vote and hard.vote != vote:
            self._lost(f"{name} with the vote {hard.vote} in term {hard.term}, it has voted for {vote}")
        last = store.last_index()
        newest = store.term(last) or 0
        for index, (term, _) in promise.entries.items():
            own = store.term(index) if index <= last else -1
            if own is None or own == term or (own > term if own >= 0 else newest > term):
                continue
            what = f"{name} with a log that ends at {last} (term {newest}); it has acknowledged {index} of"
            self._lost(f"{what} term {term}, has {own if own >= 0 else 'nothing'} there")

    def _lost(self, what: str) -> None:
        self._violate(ViolationError("promised, then lost", what))
