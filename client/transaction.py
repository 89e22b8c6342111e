"""Atomic writes from plain Python: all rows of a `with` block, across partitions and topics, or none.

    with client.transaction("events", scope="nightly-load") as t:
        t.send(batch)
        t.send(other, topic="audit")
    # now every row can be read; after an exception in the block no row ever can

The scope names the writer of this topic; at another topic the same name is another scope. Beginning a scope
again fences its previous writer. Its committed epochs ascend. A caller that passes `epoch`, for example the
number of a day, may run the same block again: the second run changes nothing.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Self

from ringfence.common.arguments import seconds, whole
from ringfence.common.process_local import ProcessLocal
from ringfence.native.errors import (
    ClosedError,
    DeadlineError,
    FencedError,
    InvalidArgumentError,
    NotFoundError,
    RerouteError,
    RingfenceError,
    UnknownOutcomeError,
    WaitTimeoutError,
)
from ringfence.native.wire import Code
from ringfence.send.failures import scope_fenced_error
from ringfence.send.wait_reasons import GOES_ON

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

    from ringfence.common.scope_values import StagedRows
    from ringfence.scopes import Scopes

_UNSTAGED = (UnknownOutcomeError, WaitTimeoutError, RerouteError)


class Transaction(ProcessLocal):
    """One epoch of one scope; created by `Client.transaction`. For one thread.

    Attributes:
        epoch: its number within the scope.
        already: True if the epoch that the caller passed, or a later one, was committed before: nothing of
            this block was stored. Epochs ascend, so a lower one counts as committed. Final after the block.
        committed: the scope's last committed epoch when this one began; 0 if there was none.
        rows: rows that this block has committed; 0 before.
    """

    def __init__(
        self,
        scopes: Scopes,
        *,
        topic: str | None,
        scope: str,
        epoch: int | None,
        timeout_s: float,
        bytes_in_flight_max: int,
        one_off: bool = False,
    ) -> None:
        epoch = None if epoch is None else whole("epoch", epoch, 1)
        timeout_s = seconds("timeout_s", timeout_s)
        bytes_in_flight_max = whole("bytes_in_flight_max", bytes_in_flight_max, 1)
        self._scopes, self._topic, self._scope = scopes, topic, scope
        self._begun = scopes.begin(scope, topic=topic, one_off=one_off)
        self._is_own = epoch is None  # an epoch that the caller passes may be repeated
        self.epoch = self._begun.decided + 1 if epoch is None else epoch
        self.committed = self._begun.committed
        self.already = self.epoch <= self.committed
        self.rows = 0
        self._ended = False
        self._uncertain: StagedRows | None = None  # rows of a commit without an answer
        self._attempt = scopes.attempt(
            self._begun, self.epoch, timeout_s=timeout_s, bytes_in_flight_max=bytes_in_flight_max
        )

    def __repr__(self) -> str:
        if self._uncertain is not None:
            state = "outcome unknown"
        elif self.already:
            state = "committed before"
        elif self.rows:
            state = f"{self.rows} rows committed"
        else:
            state = "ended, no rows committed" if self._ended else "open"
        topic = "" if self._topic is None else f" of {self._topic}"
        return f"<ringfence.Transaction{topic}, scope {self._scope!r}, epoch {self.epoch}: {state}>"

    def send(self, batch: Any, *, topic: str | None = None) -> None:
        """Stage rows for this transaction.

        Args:
            batch: anything with `__arrow_c_array__` or `__arrow_c_stream__`, or a pandas DataFrame.
            topic: default: that of the transaction.

        Raises:
            BatchError: the rows cannot be stored. Other rows can be sent instead, unless part of these rows
                was staged before: then later calls and `commit` raise RefusedError.
            RefusedError: an earlier batch was refused, or an earlier send failed after part of its rows was
                staged.
            DeadlineError: a batch was not staged in time; nothing of the transaction is or will be stored.
        """
        name = topic or self._topic
        if name is None:
            raise InvalidArgumentError(
                "no topic is named; use client.transaction(TOPIC, ...) or send(batch, topic=...)"
            )
        if self._ended:
            raise ClosedError("the transaction has ended; begin a new one", topic=name)
        if not self.already:
            try:
                with self._with_names():
                    self._attempt.send(name, batch)
            except _UNSTAGED as error:
                raise self._unstaged(error) from error

    def flush(self) -> None:
        """Wait until all rows are on disk; readers do not see them yet.

        Raises:
            RingfenceError: a batch was refused.
        """
        if not self._ended and not self.already:
            with self._with_names():
                self._attempt.flush()

    def commit(self) -> None:
        """Commit all rows. They can be read when this returns.

        Raises:
            FencedError: another writer began the scope since; nothing of this block is stored.
            DeadlineError: not all rows were staged, or confirmed as staged, in time; nothing is stored.
            UnknownOutcomeError: all rows are in the log, or none. Call `commit` again, also after the block,
                to find out.
            RefusedError: a send failed after part of its rows was staged; nothing is stored.
            RingfenceError: a batch was refused.
        """
        if self._uncertain is not None:
            self._put(self._uncertain, is_repeated=True)
            return
        if self._ended:
            raise ClosedError("the transaction has ended; begin a new one", epoch=self.epoch)
        self._ended = True
        if self.already:
            return
        try:
            with self._with_names():
                staged = self._attempt.finish()
        except RingfenceError as error:
            self._expire()
            if isinstance(error, _UNSTAGED):
                raise self._unstaged(error) from error
            raise
        self._put(staged, is_repeated=False)

    def _put(self, staged: StagedRows, *, is_repeated: bool) -> None:
        self._uncertain = staged  # until the outcome is known; after Ctrl-C it is unknown too
        try:
            is_new = False if staged.already else self._committed_by_this(staged)
        except UnknownOutcomeError:
            raise
        except RingfenceError as error:
            if is_repeated and not isinstance(error, FencedError):
                # This call committed nothing, but an earlier one may have.
                raise UnknownOutcomeError(
                    f"the outcome of the commit is still unknown: {error.message}", epoch=self.epoch
                ) from error
            self._uncertain = None
            raise
        self._uncertain = None
        if self._is_own and not is_new:
            # This block drew the epoch for itself, so another writer must have begun the scope and committed
            # it.
            raise FencedError(
                "another writer began the scope again and committed this epoch; nothing of this block is "
                "stored. Give each writer its own scope",
                epoch=self.epoch,
            )
        self.already = not is_new
        self.rows = staged.rows if is_new else 0

    def _committed_by_this(self, staged: StagedRows) -> bool:
        with self._with_names():
            if self._is_own:
                return self._scopes.commit(self._begun, self.epoch, [staged])
            # For a numbered epoch it does not matter which run has stored its rows.
            return self._scopes.commit_told(self._begun, self.epoch, [staged]) is True

    @contextlib.contextmanager
    def _with_names(self) -> Iterator[None]:
        """Add the names of the scope and the topics to errors: nodes know only ids."""
        try:
            yield
        except FencedError as error:
            if error.code is None:
                raise
            raise scope_fenced_error(self._scope, self._topic, self.epoch, error) from error
        except NotFoundError as error:
            if error.code is not Code.UNKNOWN_TOPIC or error.topic is not None:
                raise
            names = sorted(self._scopes.gone(self._attempt.names) or self._attempt.names.values())
            one = names[0] if len(names) == 1 else None
            which = f"a topic of the transaction ({', '.join(names)})" if one is None else f"topic {one}"
            raise NotFoundError(
                f"{which} was deleted, or deleted and created again: nothing of the transaction is stored "
                f"({error.message})",
                topic=one,
                code=error.code,
                **error.details,
            ) from error

    def abort(self) -> None:
        """Discard all rows of the transaction."""
        if not self._ended:
            self._ended = True
            self._attempt.close()
            self._expire()

    def _unstaged(self, error: RingfenceError) -> DeadlineError:
        """The error for rows that were not staged: no commit will name them, so no outcome is unknown."""
        why = error.message.removesuffix(GOES_ON)
        return DeadlineError(
            f"not all rows of the transaction were staged in time ({why}); nothing of it is or will be "
            "in the log: run it again",
            epoch=self.epoch,
        )

    def _expire(self) -> None:
        if not self._is_own:
            return
        # If no node can be reached, the next commit of the scope discards the staged rows.
        with contextlib.suppress(RingfenceError):
            self._scopes.expire(self._begun, self.epoch)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._ended:
            return
        if error is None:
            self.commit()
        else:
            self.abort()
