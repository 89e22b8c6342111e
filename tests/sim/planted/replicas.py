"""Bugs of changes and of replicas, one at a time, patched into the product's control plane.

Those of the engine stand behind the cargo feature `planted` (native.py). Without replicas nothing shows.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import pytest
from msgspec.structs import replace

from ringfence.control.model.reassignment_commands import CommitChange
from ringfence.control.runtime.data_plane.executor import OrderExecutor
from ringfence.control.runtime.data_plane.log_witnesses import LogWitnesses
from ringfence.control.runtime.reassignment import participant
from ringfence.control.runtime.reassignment.participant import Participant
from ringfence.control.state_machines import node_orders
from ringfence.control.state_machines.metadata import reassignment_checks
from ringfence.control.state_machines.metadata.reassignment_rules import awaits_owner
from ringfence.control.state_machines.reassignment import move_phases as changes
from ringfence.control.state_machines.reassignment.messages import Ended
from ringfence.native._node import Order
from tests.sim.faults.struck import Cell

Patch = pytest.MonkeyPatch


def _dual_write_stops_before_the_hold(patch: Patch) -> None:
    """The owner sends nothing more to the target when it is asked to hold: the target never has the end."""
    original = Participant._fence

    async def fence(self: Any, order: Any) -> Any:
        if not awaits_owner(self._proposer.state, order.partition):
            await self._native_node.order(Order.sync_stop(order.change))
            await asyncio.sleep(0.1)
        return await original(self, order)

    patch.setattr(Participant, "_fence", fence)


def _the_hold_fences_nobody(patch: Patch) -> None:
    """The target is opened at the end that the source has just now; the source goes on."""
    original = Participant._fence

    async def fence(self: Any, order: Any) -> Any:
        known = self._counters(order)
        if awaits_owner(self._proposer.state, order.partition) or known is None:
            return await original(self, order)
        return Ended(end=participant._end(known))

    patch.setattr(Participant, "_fence", fence)


def _the_hold_ends_by_timer(patch: Patch) -> None:
    """A source that was held goes on by itself, under the change's own number."""
    original = Participant._fence

    async def again(self: Any, order: Any) -> None:
        lo, hi = self._slots(order)
        await self._native_node.order(Order.open(order.topic, order.partition, lo, hi, order.change + 1))

    async def fence(self: Any, order: Any) -> Any:
        answer = await original(self, order)
        if not awaits_owner(self._proposer.state, order.partition):
            asyncio.get_running_loop().create_task(again(self, order))
        return answer

    patch.setattr(Participant, "_fence", fence)


def _one_replica_is_a_majority(patch: Patch) -> None:
    """A change is committed when one of the new replicas has proven its end."""
    for place in (changes, reassignment_checks):
        patch.setattr(place, "quorum", lambda _: 1)


def _the_first_fenced_is_chosen(patch: Patch) -> None:
    """A failover takes the least advanced replica, and nobody checks."""
    original = changes._decide_failover

    def failing_over(state: Any, change: Any, seen: Any, now_ms: int, owned: Any, pressures: Any) -> Any:
        found = original(state, change, seen, now_ms, owned, pressures)
        if not isinstance(found.entry, CommitChange):
            return found
        least = min(found.entry.proofs, key=lambda proof: (proof.end.epoch, proof.end.records))
        return found._replace(entry=replace(found.entry, owner=least.place.node, end=least.end))

    patch.setattr(changes, "_decide_failover", failing_over)
    patch.setattr(reassignment_checks, "chosen_fault", lambda *_: None)


def _answers_change_places(patch: Patch) -> None:
    """Answers to one question with several orders are taken for those of other orders."""
    original = Participant.execute_many

    async def execute_many(self: Any, term: int, asked: Any) -> Any:
        return (await original(self, term, asked))[::-1]

    patch.setattr(Participant, "execute_many", execute_many)


def _a_restart_opens_what_waits_for_an_owner(patch: Patch) -> None:
    """Under the epoch that it had."""
    patch.setattr(node_orders, "awaits_owner", lambda *_: False)


def _ends_are_counted_in_rows(patch: Patch) -> None:
    original = participant._end
    patch.setattr(participant, "_end", lambda told: original({**told, "records": told["end_offset"]}))


def _what_is_not_durable_proves(patch: Patch) -> None:
    """A target tells the end that it has appended, whether it is on its disk or not."""
    original = Participant._prove

    async def prove(self: Any, order: Any) -> Any:
        self._counter_snapshot.renew(time.monotonic())
        known = self._counters(order)
        if known is not None and known["records"] >= order.records:
            return Ended(end=participant._end(known))
        return await original(self, order)

    patch.setattr(Participant, "_prove", prove)


def _a_forgotten_copy_stays(patch: Patch) -> None:
    """What a target had received before it was restarted outlives its change."""
    patch.setattr(OrderExecutor, "_is_unknown_copy", lambda *_: False)


def _an_older_log_counts(patch: Patch) -> None:
    """A replica whose log came back older is fenced as if it had all that it acknowledged."""

    async def doubt(self: Any, keys: Any) -> None:
        """Nothing."""

    patch.setattr(LogWitnesses, "_doubt", doubt)


OWN: Final = (
    _dual_write_stops_before_the_hold,
    _the_hold_fences_nobody,
    _the_hold_ends_by_timer,
    _one_replica_is_a_majority,
    _the_first_fenced_is_chosen,
    _answers_change_places,
    _a_restart_opens_what_waits_for_an_owner,
    _ends_are_counted_in_rows,
    _what_is_not_durable_proves,
    _a_forgotten_copy_stays,
    _an_older_log_counts,
)
BUGS: Final[dict[str, Callable[[Patch], None]]] = {bug.__name__.removeprefix("_"): bug for bug in OWN}
SHOWN_BY: Final = {"what_is_not_durable_proves": Cell("committed", "target", "late", "short")}
"""Cells of the crash matrix that show it, too."""


@contextmanager
def planted(name: str) -> Iterator[None]:
    """With one bug switched on."""
    with pytest.MonkeyPatch.context() as patch:
        BUGS[name](patch)
        yield
