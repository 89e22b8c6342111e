"""The consumer's part in a transaction: what it gave is settled by the COMMIT, or given again.

`Transaction` calls it from the application's thread; the member does its part on the I/O thread.
"""

from __future__ import annotations

import hashlib
import time
from typing import TYPE_CHECKING, Final

from ringfence.consumer.consumer import Consumer, Waiting
from ringfence.consumer.core import Core
from ringfence.native.cluster_messages import ScopeConsumed
from ringfence.native.errors import DeadlineError, InvalidArgumentError, WaitTimeoutError
from ringfence.send.stager import IDENTITY

if TYPE_CHECKING:
    from ringfence.common.scope_values import Begun
    from ringfence.consumer.calls import ClaimedRange

SCOPE_BYTES_MAX: Final = 200
JOIN_POLL_S: Final = 0.005
MODES: Final = {
    "checkpoint": "positions of a CHECKPOINT cohort are the reader's own: save them with the rows",
    "queue": "leases of a QUEUE cohort end by time, so no commit can promise their rows",
}


class Taking:
    """Of one transaction. Its methods are called in the application's thread."""

    def __init__(self, consumer: object, *, timeout_s: float) -> None:
        """Waits until the consumer has joined its cohort.

        Raises:
            InvalidArgumentError: this consumer cannot take part in a transaction.
            WaitTimeoutError: it has not joined in time.
        """
        self._core = core_of(consumer)
        self._timeout_s = timeout_s
        self._ranges: tuple[ClaimedRange, ...] = ()
        self._is_over = False
        core = self._core
        core.check()
        self._until_joined()
        with core.lock:
            core.member.consuming.begin()

    def _until_joined(self) -> None:
        """The scope's name has the cohort's id, which the answer to JOIN tells."""
        core, deadline = self._core, time.monotonic() + self._timeout_s
        while not core.link.cohort:
            with core.lock:
                error = core.member.state.final_error
            if error is not None:
                raise error
            core.check()
            if time.monotonic() > deadline:
                raise WaitTimeoutError(
                    f"the consumer did not join its cohort within {self._timeout_s:g} s; it goes on trying: "
                    "begin the transaction again",
                    topic=core.topic,
                    cohort=core.identity.cohort,
                )
            time.sleep(JOIN_POLL_S)

    @property
    def scope(self) -> str:
        """The name of the scope: of the cohort and the member."""
        cohort, member = self._core.link.cohort, self._core.identity.member
        name = f"consume/{cohort}/{member}"
        if len(name.encode()) <= SCOPE_BYTES_MAX:
            return name
        return f"consume/{cohort}/{hashlib.sha256(member.encode()).hexdigest()}"

    @property
    def is_one_off(self) -> bool:
        """The member's name was drawn, so no other process begins the scope again."""
        return not self._core.options.is_named

    def take(self) -> None:
        """What was given belongs to the COMMIT from now on.

        Raises:
            FencedError: the hold of some of it is over.
        """
        with self._core.lock:
            self._ranges = self._core.member.consuming.ranges()

    def claim(self, begun: Begun, epoch: int, token: bytes) -> ScopeConsumed | None:
        """Lock the gates for this COMMIT; None: nothing was given. The same claim again does no harm.

        Raises:
            FencedError: the hold is over. ConflictError, TruncatedError: the position is another one.
            DeadlineError: some owner did not answer in time.
        """
        if not self._ranges:
            return None
        core, waiting = self._core, Waiting()
        identity = IDENTITY.pack(begun.scope, begun.driver, epoch, 0, 0, token)
        with core.lock:
            core.member.consuming.claim(identity, self._ranges, waiting)
            core.member.look_silent()
            incarnation, session = core.member.state.incarnation, core.member.state.session
        core.turn()
        try:
            waiting.wait(self._timeout_s, core.topic)
        except WaitTimeoutError as error:
            raise DeadlineError(
                "the owners of some partitions did not lock them for the transaction in time; nothing of it "
                "is or will be stored: run it again",
                topic=core.topic,
                partitions=[one.partition for one in self._ranges],
            ) from error
        finally:
            with core.lock:
                core.member.consuming.cancel()
        return ScopeConsumed(
            topic=core.layout.topic,
            cohort=core.link.cohort,
            incarnation=incarnation,
            session=session,
            token=token,
            ranges=[(one.partition, one.hold, one.first, one.through.offset) for one in self._ranges],
        )

    def uncertain(self) -> None:
        """No answer told what became of the COMMIT: nothing is given until one does."""
        with self._core.lock:
            self._core.member.consuming.is_uncertain = True

    def committed(self) -> None:
        """Rows and positions have taken effect."""
        if self._is_over:
            return
        self._is_over = True
        with self._core.lock:
            self._core.member.consuming.committed(self._ranges)
        self._turn()

    def aborted(self) -> None:
        """Nothing was committed: the rows come again."""
        if self._is_over:
            return
        self._is_over = True
        with self._core.lock:
            self._core.member.consuming.aborted()
        self._turn()

    def _turn(self) -> None:
        if not self._core.is_closed:
            self._core.turn()


def core_of(consumer: object) -> Core:
    """Raises InvalidArgumentError: it is no consumer that can take part."""
    if not isinstance(consumer, Consumer):
        raise InvalidArgumentError(
            "consumed= takes a consumer of client.consumer(TOPIC, cohort=..., ack='manual')",
            consumed=type(consumer).__name__,
        )
    core, mode = consumer.core, consumer.settings.mode
    if mode in MODES:
        raise InvalidArgumentError(
            f"a {mode.upper()} cohort takes no part in a transaction: {MODES[mode]}",
            topic=core.topic,
            cohort=core.identity.cohort,
        )
    if core.options.is_auto:
        raise InvalidArgumentError(
            "ack='auto' acknowledges rows that the transaction may discard: create the consumer with "
            "ack='manual'",
            topic=core.topic,
            cohort=core.identity.cohort,
        )
    assert isinstance(core, Core), "a STREAM cohort"
    return core
