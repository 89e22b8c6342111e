"""The future of one `send`: it ends when the batch of every partition has an outcome."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from ringfence.common.lazy_future import LazyFuture
from ringfence.common.process_local import ProcessLocal
from ringfence.native.errors import ForkedError, RingfenceError, UnknownOutcomeError, WaitTimeoutError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ringfence.arrow.encode import Body
    from ringfence.send.wait_reasons import WaitReasons


class Appended(NamedTuple):
    """Rows on disk: `rows` rows of `partition`, starting at `first_offset`."""

    partition: int
    first_offset: int
    rows: int


class SendFuture(LazyFuture[tuple[Appended, ...]]):
    """A `concurrent.futures.Future` whose `result()` is one Appended per stored batch, in order of partition.

    `result` raises the refusal of a batch (nothing of *that* batch is stored), or UnknownOutcomeError if a
    batch may be stored. `appended` has the batches that are stored nevertheless. A future cannot be
    cancelled, because the rows may already be sent. In a forked child it raises ForkedError immediately: only
    the parent process receives the answer.
    """

    error: RingfenceError | None = None
    _stored: list[Appended] | tuple[Appended, ...] = ()  # a list for two and more batches

    __reduce__ = ProcessLocal.__reduce__

    def __init__(self, number: int, waiting: WaitReasons) -> None:
        super().__init__()
        self.number = number  # the `send` number that is stored with the rows
        self._waiting = waiting
        self._process = os.getpid()
        self._parts_left = 1

    def __repr__(self) -> str:
        if not self.done():
            return f"<SendFuture {self.number}: pending>"
        if self.error is not None:
            return f"<SendFuture {self.number}: {type(self.error).__name__}: {self.error.message}>"
        rows = sum(part.rows for part in self.appended)
        return f"<SendFuture {self.number}: {rows} rows stored in {len(self.appended)} batches>"

    def cancel(self) -> bool:
        """Always False: the rows may already be sent."""
        return False

    @property
    def appended(self) -> tuple[Appended, ...]:
        """The batches that are stored so far."""
        stored = self._stored
        return stored if isinstance(stored, tuple) else tuple(sorted(stored))

    def result(self, timeout: float | None = None) -> tuple[Appended, ...]:
        """See the class. Raises WaitTimeoutError (a TimeoutError) after `timeout` seconds.

        The send continues. In a callback of a future it raises InvalidArgumentError: callbacks run on the
        I/O thread, which would wait for itself.
        """
        self._check_process()
        if not self.done() and timeout != 0:
            self._waiting.check_outside("result")
        try:
            return super().result(timeout)
        except TimeoutError as error:
            if self.done():
                raise
            raise self._late(timeout) from error

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """The error of `result`, or None. Raises WaitTimeoutError as `result` does."""
        self._check_process()
        if not self.done() and timeout != 0:
            self._waiting.check_outside("exception")
        try:
            return super().exception(timeout)
        except TimeoutError as error:
            raise self._late(timeout) from error

    def _late(self, waited_s: float | None) -> WaitTimeoutError:
        return self._waiting.error(f"send {self.number} has", self, waited_s, send=self.number)

    def _check_process(self) -> None:
        if os.getpid() != self._process:
            raise ForkedError(
                "this send began before a fork; only the parent process receives its outcome",
                made_in=self._process,
            )

    # ---- on the I/O thread ------------------------------------------------------------------------------

    def expect(self, parts: int, *, last: bool) -> bool:
        """Add batches that must end; `last`: no further ones follow. True if that ended the send."""
        self._parts_left += parts
        return last and self._part_ended()  # the count starts with one, for `last`

    def replaced(self, old: Sequence[Body], new: Sequence[Body]) -> None:
        """A layout change made other batches of pending ones."""
        self._parts_left += len(new) - len(old)

    def includes(self, future: SendFuture) -> bool:
        """Whether this is that future."""
        return future is self

    def take_settled(self) -> list[SendFuture]:
        """The sends that have an outcome which was not reported yet: this one, once it has ended."""
        return [self]

    def stored(self, body: Body, first_offset: int) -> bool:
        """One batch is stored. True if it was the last one."""
        part = Appended(body.partition, first_offset, body.rows)
        if not self._stored:
            self._stored = (part,)
        elif isinstance(self._stored, list):
            self._stored.append(part)
        else:
            self._stored = [*self._stored, part]
        return self._part_ended()

    def failed(self, body: Body | None, error: RingfenceError) -> bool:
        """One batch is not stored, or its outcome is unknown. True if it was the last one."""
        del body
        self.set_error(error)
        return self._part_ended()

    def set_error(self, error: RingfenceError) -> None:
        """Let the send end with this error. An unknown outcome takes precedence over a refusal."""
        worse = isinstance(error, UnknownOutcomeError) and not isinstance(self.error, UnknownOutcomeError)
        if self.error is None or worse:
            self.error = error

    def _part_ended(self) -> bool:
        self._parts_left -= 1
        if self._parts_left:
            return False
        self.finish(None if self.error is not None else self.appended, self.error)
        return True
