"""Run what the in-flight machine of a client asks for: outcomes go to the ledger, requests wait a moment."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random

from ringfence.common.send_effects import (
    BatchRefused,
    BatchStored,
    BatchUnknown,
    Effect,
    FetchTable,
    OpenEpoch,
)
from tests.sim.checks.ledger import Batch, Ledger
from tests.sim.world.agenda import Agenda


class EffectRunner:
    """The runner of one producer; `batches` are those without an outcome, by the machine's key."""

    def __init__(
        self,
        agenda: Agenda,
        random: Random,
        ledger: Ledger,
        *,
        fetch_table: Callable[[], None],
        open_epoch: Callable[[], None],
    ) -> None:
        self.batches: dict[int, Batch] = {}
        self._agenda, self._random, self._ledger = agenda, random, ledger
        self._fetch_table, self._open_epoch = fetch_table, open_epoch

    def run(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            match effect:
                case FetchTable():
                    self._agenda.after(self._random.randrange(500, 5_000), self._fetch_table)
                case OpenEpoch():
                    self._agenda.after(self._random.randrange(500, 5_000), self._open_epoch)
                case BatchStored(key, offset):
                    self._ledger.ended(self.batches.pop(key), "done", offset)
                case BatchRefused(key):
                    self._ledger.ended(self.batches.pop(key), "refused")
                case BatchUnknown(key):
                    self._ledger.ended(self.batches.pop(key), "unknown")
