"""Export what is parked to the topic of `dead_letter=`, in a thread beside the consumer."""

from __future__ import annotations

import logging
import random
import threading
import time
from typing import TYPE_CHECKING, Final

from ringfence.consumer.clock import now_s
from ringfence.consumer.dead_letters import DeadLetters
from ringfence.consumer.parked_export import Ending
from ringfence.native.errors import ClosedError, NotFoundError, RingfenceError
from ringfence.native.wire import Code

if TYPE_CHECKING:
    from ringfence.consumer.exporter import Exporter
    from ringfence.consumer.parked import Parked
    from ringfence.consumer.queue_calls import RowsParked

# An export that is under way when the consumer closes has so long; another one ends it later.
CLOSE_S: Final = 5.0
# Endings after which nothing is left to do here.
OVER: Final = frozenset({Ending.EXPORTED, Ending.MARKED, Ending.NOT_PARKED, Ending.ELSEWHERE})
WHY: Final = {
    Ending.NOT_KNOWN: "it is not known whether it was exported before; `ringfence cohort export --again` "
    "copies it in any case",
    Ending.CLOSED: "`retry` or `discard` has ended its export, and is to be repeated",
}
logger = logging.getLogger("ringfence")


class DeadLetterThread:
    """The exports of one consumer. Methods are for any thread."""

    def __init__(self, exporter: Exporter, to: str) -> None:
        self._exporter, self._to = exporter, to
        self._letters = DeadLetters(random.random)
        self._changed = threading.Condition()
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="ringfence-dead-letter", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def parked(self, rows: RowsParked) -> None:
        """What the consumer said has parked rows."""
        with self._changed:
            self._letters.parked(rows.partition, rows.first, rows.end, now_s())
            self._changed.notify()

    def stop(self, timeout_s: float = CLOSE_S) -> None:
        """End; waits for an export that is under way."""
        self.end()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(timeout_s)

    def end(self) -> None:
        """The same without waiting."""
        with self._changed:
            self._stopped = True
            self._changed.notify()

    def _run(self) -> None:
        while self._until_due():
            try:
                self._look()
            except ClosedError:
                return  # the client is closed
            except Exception:
                logger.exception("dead_letter: a look at parked rows ended because of a defect")
                with self._changed:
                    self._letters.look_failed(now_s())

    def _until_due(self) -> bool:
        """Wait for the next look. False: the thread ends."""
        with self._changed:
            while not self._stopped:
                left_s = self._letters.look_at - now_s()
                if left_s <= 0:
                    self._letters.begin()
                    return True
                self._changed.wait(left_s)
            return False

    def _look(self) -> None:
        is_whole = True
        try:
            self._exporter.check()
            number = self._exporter.requests.id()
            for parked in self._exporter.requests.listed():
                if self._stopped:
                    return
                with self._changed:
                    is_wanted = self._letters.wants(parked, now_s(), int(time.time() * 1_000))
                if is_wanted and not self._export(parked, number):
                    is_whole = False
                    break
        except ClosedError:
            raise
        except RingfenceError as error:
            # Before the first member has joined there is no cohort.
            if not (isinstance(error, NotFoundError) and error.code == Code.UNKNOWN_COHORT):
                self._warn(f"parked rows cannot be exported to {self._to}: {error}")
            is_whole = False
        with self._changed:
            self._letters.looked(now_s(), is_whole=is_whole)

    def _export(self, parked: Parked, cohort: int) -> bool:
        """Export one range. Returns whether the look goes on."""
        try:
            ending = self._exporter.export(parked, cohort).ending
            why = WHY.get(ending, "")
        except ClosedError:
            raise
        except RingfenceError as error:
            ending, why = Ending.FAILED, str(error)
        with self._changed:
            if ending in OVER:
                self._letters.exported(parked.item)
                return True
            goes_on = self._letters.failed(parked.item, now_s())
        self._warn(
            f"parked range {parked.partition}:{parked.number} cannot be exported to {self._to}, and is tried "
            f"again: {why}"
        )
        # What is known of one range says nothing of others.
        return goes_on or ending is not Ending.FAILED

    def _warn(self, text: str) -> None:
        requests = self._exporter.requests
        logger.warning("topic %s, cohort %s: %s", requests.topic, requests.cohort, text)
