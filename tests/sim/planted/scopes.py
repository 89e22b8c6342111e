"""Bugs of transactions, one at a time. Without writers that stage and commit nothing shows.

Most lie in the engine, behind the cargo feature `planted`; where the control plane has a guard of its own
against the same, that is taken away, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, Final

import pytest

from ringfence.control.model.ids import PartitionId, ScopeId, TopicId
from ringfence.control.model.state import MetadataState
from ringfence.control.runtime.transactions import requests
from ringfence.control.runtime.transactions.requests import TransactionRequests
from tests.sim.faults.struck import Cell
from tests.sim.planted import native

Patch = pytest.MonkeyPatch


def _newest_first(patch: Patch) -> None:
    """What is due of a partition is published at once, the newest epoch first."""

    async def publish(self: Any, state: MetadataState) -> bool:
        due = list(requests.pending_parts(state, self._here))[::-1]
        self._unpublished.keep_only(one.key for one in due)
        results = await asyncio.gather(*(self._publish_part(one) for one in due))
        done: dict[tuple[ScopeId, int], list[tuple[TopicId, PartitionId]]] = {}
        for one, published in zip(due, results, strict=True):
            if published:
                found = done.setdefault((one.scope, one.commit.epoch), [])
                found.append((one.part.topic, one.part.partition))
        confirmed = await asyncio.gather(*(self._confirm(*key, parts, []) for key, parts in done.items()))
        return all(results) and all(confirmed)

    patch.setattr(TransactionRequests, "_publish", publish)


def _nothing(_: Patch) -> None:
    """The engine's fault alone."""


BUGS: Final[dict[str, Callable[[Patch], None]]] = {
    "staged_before_sync": _nothing,
    "epochs_in_any_order": _newest_first,
    "dead_attempt_published": _nothing,
    "stages_dropped": _nothing,
}
SHOWN_BY: Final = {
    "staged_before_sync": Cell("count_staged", "owner", "kill", "short"),
    "stages_dropped": Cell("decided", "owner", "move", "short"),
}
"""Few seeds do it at the moment that shows these: cells of the crash matrix do."""


@contextmanager
def planted(name: str) -> Iterator[ModuleType]:
    """With one bug switched on; the module that has its native part."""
    with pytest.MonkeyPatch.context() as patch, native.planted(name) as module:
        BUGS[name](patch)
        yield module
