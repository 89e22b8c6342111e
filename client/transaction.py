"""Atomic writes from plain Python: all rows of a `with` block, over partitions and topics, or none.

    with client.transaction("events", scope="nightly-load") as t:
        t.send(batch)
        t.send(other, topic="audit")
    # here every row can be read; after an exception in the block none ever will

The scope names the writer to this topic: beginning it anew fences who had it before, and at another topic the
same name is another writer's. Its committed epochs ascend, and who gives `epoch` itself (the number of a day,
say) may run the same block again: the second run changes nothing.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Self

from ringfence.common.arguments import seconds, whole
from ringfence.common.process_local import Local
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


class Transaction(Local):
    """One epoch of one scope; made by `Client.transaction`. For one thread.

    Attributes:
        epoch: its number within the scope.
        already: True if this epoch, which the caller gave, or a later one was committed before: nothing of
            this block was stored. Epochs are given in ascending order, so a lower one counts as committed.
            Known for sure after the block.
        committed: the scope's last committed epoch when this one began; 0 if there was none.
        rows: rows that this block has put into the log; 0 until it is committed.
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
    ) -> None:
        epoch = None if epoch is None else whole("epoch", epoch, 1)
        timeout_s = seconds("timeout_s", timeout_s)
        bytes_in_flight_max = whole("bytes_in_flight_max", bytes_in_flight_max, 1)
        self._scopes, self._topic, self._scope = scopes, topic, scope
        self._begun = scopes.begin(scope, topic=topic)
        self._is_own = epoch is None  # an epoch that the caller counts may be tried again
        self.epoch = self._begun.decided + 1 if epoch is None else epoch
        self.committed = self._begun.committed
        self.already = self.epoch <= self.committed
        self.rows = 0
        self._ended = False
        self._asked: StagedRows | None = None  # for whose commit no answer came
        self._attempt = scopes.attempt(
            self._begun, self.epoch, timeout_s=timeout_s, bytes_in_flight_max=bytes_in_flight_max
        )

    def send(self, batch: Any, *, topic: str | None = None) -> None:
        """Stage rows for this transaction.

        Args:
            batch: anything with `__arrow_c_array__` or `__arrow_c_stream__`, or a pandas DataFrame.
            topic: default: the transaction's.

        Raises:
            BatchError: the rows cannot be stored. Others can be sent instead, but where a part of these was
                handed over before that was seen: then RefusedError from here on, and by `commit`.
            RefusedError: an earlier batch was refused, or an earlier send ended in its midst.
            DeadlineError: one was not staged in time; nothing of the transaction is in the log, nor will be.
        """
        name = topic or self._topic
        if name is None:
            raise InvalidArgumentError(
                "which topic? client.transaction(TOPIC, ...), or send(batch, topic=...)"
            )
        if self._ended:
            raise ClosedError("the transaction has ended; begin another", topic=name)
        if not self.already:
            try:
                with self._in_its_words():
                    self._attempt.send(name, batch)
            except _UNSTAGED as error:
                raise self._unstaged(error) from error

    def flush(self) -> None:
        """Wait until everything that was sent is on disk; no reader sees it yet.

        Raises:
            RingfenceError: a batch was refused.
        """
        if not self._ended and not self.already:
            with self._in_its_words():
                self._attempt.flush()

    def commit(self) -> None:
        """Put all of it into the log. Every row can be read when this returns.

        Raises:
            FencedError: the scope was begun anew since; nothing of this block is stored.
            DeadlineError: not all was staged in time, or its partitions did not tell so; nothing of it is
                stored, either.
            UnknownOutcomeError: all of it is in the log, or nothing. Call it again, also behind the block:
                it asks again, and tells.
            RefusedError: a send ended in its midst, whatever became of its error; nothing is stored.
            RingfenceError: a batch was refused.
        """
        if self._asked is not None:
            self._put(self._asked, is_repeated=True)
            return
        if self._ended:
            raise ClosedError("the transaction has ended; begin another", epoch=self.epoch)
        self._ended = True
        if self.already:
            return
        try:
            with self._in_its_words():
                staged = self._attempt.finish()
        except RingfenceError as error:
            self._expire()
            if isinstance(error, _UNSTAGED):
                raise self._unstaged(error) from error
            raise
        self._put(staged, is_repeated=False)

    def _put(self, staged: StagedRows, *, is_repeated: bool) -> None:
        self._asked = staged  # until it is known; Ctrl-C leaves it unknown, too
        try:
            fresh = False if staged.already else self._told(staged)
        except UnknownOutcomeError:
            raise
        except RingfenceError as error:
            if is_repeated and not isinstance(error, FencedError):
                # Nothing was decided by this call: the one before may still be.
                raise UnknownOutcomeError(
                    f"whether the commit was served is still not known: {error.message}", epoch=self.epoch
                ) from error
            self._asked = None
            raise
        self._asked = None
        if self._is_own and not fresh:
            # An epoch that nobody gave was drawn for this block alone: whoever has committed it began anew.
            raise FencedError(
                "another writer began the scope anew and committed this epoch: nothing of this block is"
                " stored; give each writer a scope of its own",
                epoch=self.epoch,
            )
        self.already = not fresh
        self.rows = staged.rows if fresh else 0

    def _told(self, staged: StagedRows) -> bool:
        with self._in_its_words():
            if self._is_own:
                return self._scopes.commit(self._begun, self.epoch, [staged])
            # Who counts epochs has stored the rows of this one, by whichever run.
            return self._scopes.commit_told(self._begun, self.epoch, [staged]) is True

    @contextlib.contextmanager
    def _in_its_words(self) -> Iterator[None]:
        """Nodes know drivers and numbers; who made the transaction knows its scope and its topics' names."""
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
                f"{which} was deleted, or deleted and made anew: nothing of the transaction is stored "
                f"({error.message})",
                topic=one,
                code=error.code,
                **error.details,
            ) from error

    def abort(self) -> None:
        """Give up all of it."""
        if not self._ended:
            self._ended = True
            self._attempt.close()
            self._expire()

    def _unstaged(self, error: RingfenceError) -> DeadlineError:
        """What a batch's outcome is does not matter: readers see what a commit names, and none will."""
        why = error.message.removesuffix(GOES_ON)
        return DeadlineError(
            f"not all rows of the transaction were staged in time ({why}); nothing of it is in "
            "the log, nor will be: run it again",
            epoch=self.epoch,
        )

    def _expire(self) -> None:
        if not self._is_own:
            return
        # Who cannot reach a node leaves stages behind; the scope's next commit gives them up.
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
