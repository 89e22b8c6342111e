"""Exactly once from a topic to another: rows of a consumer are settled together with what was made of them.

    with client.consumer("trips", cohort="clean", ack="manual") as consumer:
        for batches in consumer.chunks(rows=100_000):
            with client.transaction("trips-clean", consumed=consumer) as t:
                for batch in batches:
                    t.send(transform(batch))

The gates of what was given are locked, then the COMMIT names them: rows and positions are one entry.
"""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any

from ringfence.common.arguments import seconds
from ringfence.consumer.taking import Taking
from ringfence.native.errors import (
    FencedError,
    InvalidArgumentError,
    RetriableError,
    RingfenceError,
    UnknownOutcomeError,
)
from ringfence.native.wire import Code
from ringfence.transaction import Transaction

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ringfence.common.scope_values import StagedRows
    from ringfence.native.cluster_messages import ScopeConsumed
    from ringfence.scopes import Scopes

CLAIM_PAUSE_S = 0.05  # before gates are claimed again whose owner has changed


class ConsumingTransaction(Transaction):
    """A transaction that settles what a consumer gave. Created by `Client.transaction(consumed=...)`."""

    def __init__(
        self, scopes: Scopes, taking: Taking, *, topic: str | None, timeout_s: float, bytes_in_flight_max: int
    ) -> None:
        self._taking, self._timeout_s = taking, timeout_s
        self._consumed: ScopeConsumed | None = None
        self._is_claimed = self._is_sent = False
        super().__init__(
            scopes,
            topic=topic,
            scope=taking.scope,
            epoch=None,
            timeout_s=timeout_s,
            bytes_in_flight_max=bytes_in_flight_max,
            one_off=taking.is_one_off,
        )

    def commit(self) -> None:
        """Commit all rows, and settle what the consumer gave. Both have taken effect when this returns.

        Raises:
            FencedError: a partition went to another member, which gets the rows again; or another process
                has this member's name. Nothing of this block is stored.
            UnknownOutcomeError: both have taken effect, or neither. The consumer gives nothing until `commit`
                was called again and told, also after the block.
            ConflictError: the cohort was sought meanwhile; nothing is stored.
            RingfenceError: as of a transaction without a consumer.
        """
        super().commit()

    def _put(self, staged: StagedRows, *, is_repeated: bool) -> None:
        del is_repeated  # every error but an unknown outcome is definite here: an EXPIRE was before it
        try:
            super()._put(staged, is_repeated=False)
        except BaseException as error:
            # Interrupted in the middle, the outcome is as unknown as without an answer.
            if self._uncertain is not None or isinstance(error, UnknownOutcomeError):
                self._taking.uncertain()
            else:
                self._expire()
            raise
        self._taking.committed()

    def _committed_by_this(self, staged: StagedRows) -> bool:
        deadline = time.monotonic() + self._timeout_s
        with self._with_names():
            try:
                return self._claim_and_commit(staged, deadline)
            except UnknownOutcomeError:
                raise
            except RingfenceError as error:
                if not self._is_sent:
                    raise
                return self._told_after(staged, error)

    def _claim_and_commit(self, staged: StagedRows, deadline: float) -> bool:
        while True:
            if not self._is_claimed:
                self._taking.take()
                self._consumed = self._taking.claim(self._begun, self.epoch, staged.token)
                self._is_claimed = True
            self._is_sent = True
            try:
                return self._scopes.commit(self._begun, self.epoch, [staged], consumed=self._consumed)
            except RetriableError as error:
                if error.code is not Code.STALE_CLAIM or time.monotonic() > deadline:
                    raise
            # The owner of a gate has changed: the lock was lost with it.
            time.sleep(CLAIM_PAUSE_S)
            self._is_claimed = False

    def _told_after(self, staged: StagedRows, error: RingfenceError) -> bool:
        """Whether an earlier try committed. After the EXPIRE no try of this epoch decides anything.

        Raises:
            RingfenceError: `error`, nothing was committed. UnknownOutcomeError: no node tells.
        """
        try:
            with contextlib.suppress(FencedError):  # then no COMMIT of this driver is decided either
                self._scopes.expire(self._begun, self.epoch)
            is_own = self._scopes.commit(self._begun, self.epoch, [staged], consumed=self._consumed)
        except (FencedError, InvalidArgumentError):
            raise error from None
        except RingfenceError as unknown:
            raise UnknownOutcomeError(
                f"the outcome of the commit is unknown ({error.message}); repeat the same commit to find out",
                epoch=self.epoch,
            ) from unknown
        if not is_own:
            raise error from None
        return True

    def _expire(self) -> None:
        super()._expire()
        self._taking.aborted()


def consuming_transaction(
    scopes: Scopes,
    consumed: object,
    *,
    topic: str | None,
    given: Mapping[str, Any],
    timeout_s: float,
    bytes_in_flight_max: int,
) -> ConsumingTransaction:
    """Begin a transaction that takes what `consumed` gave. `given`: arguments that must be None beside it.

    Raises:
        InvalidArgumentError: the consumer cannot take part, or takes part in another transaction.
    """
    for name, value in given.items():
        if value is not None:
            raise InvalidArgumentError(
                f"{name}= is refused beside consumed=: the consumer's cohort and member name the writer, and "
                "its epochs are drawn",
                **{name: value},
            )
    timeout_s = seconds("timeout_s", timeout_s)
    taking = Taking(consumed, timeout_s=timeout_s)
    try:
        return ConsumingTransaction(
            scopes, taking, topic=topic, timeout_s=timeout_s, bytes_in_flight_max=bytes_in_flight_max
        )
    except BaseException:
        taking.aborted()
        raise
