"""The future of one `send`: it ends when every partition's batch has its outcome."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from ringfence.common.lazy_future import BareFuture
from ringfence.common.process_local import Local
from ringfence.native.errors import ForkedError, RingfenceError, UnknownOutcomeError, WaitTimeoutError

if TYPE_CHECKING:
    from ringfence.arrow.encode import Body
    from ringfence.send.wait_reasons import Waiting


class Appended(NamedTuple):
    """Rows that are on disk: `rows` rows of `partition`, from `first_offset` on."""

    partition: int
    first_offset: int
    rows: int


class SendFuture(BareFuture[tuple[Appended, ...]]):
    """A `concurrent.futures.Future` whose `result()` is one Appended per stored batch, in order of partition.

    `result` raises the refusal of a batch (nothing of *that* batch is stored), or UnknownOutcomeError if any
    batch may be stored; `appended` has the batches that are stored all the same. It cannot be cancelled: the
    rows are on their way. In a forked child it raises ForkedError at once, for no answer will ever come
    there.
    """

    error: RingfenceError | None = None
    _stored: list[Appended] | tuple[Appended, ...] = ()  # a list from the second one on

    __reduce__ = Local.__reduce__

    def __init__(self, number: int, waiting: Waiting) -> None:
        super().__init__()
        self.number = number  # the `send` that is stored with the rows
        self._waiting = waiting
        self._process = os.getpid()
        self._parts_left = 1

    def cancel(self) -> bool:
        """Always False: the rows are on their way."""
        return False

    @property
    def appended(self) -> tuple[Appended, ...]:
        """What is stored so far."""
        stored = self._stored
        return stored if isinstance(stored, tuple) else tuple(sorted(stored))

    def result(self, timeout: float | None = None) -> tuple[Appended, ...]:
        """See the class. Raises WaitTimeoutError (a TimeoutError) after `timeout` seconds.

        The send goes on. In a callback of a future, which runs on the thread that takes answers, it would
        wait for itself: InvalidArgumentError.
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
                "this send was made before a fork; its answer goes to the parent process",
                made_in=self._process,
            )

    # ---- on the link's thread ---------------------------------------------------------------------------

    def expect(self, parts: int) -> None:
        """So many batches must end. It begins with one, for `seal`."""
        self._parts_left += parts

    def seal(self) -> bool:
        """Nothing more will be expected. True if that ended the send."""
        return self._part_ended()

    def tells(self, future: SendFuture) -> bool:
        """Whether this is the future of that send."""
        return future is self

    def stored(self, body: Body, first_offset: int) -> bool:
        """One batch is stored. True if this was the last one."""
        part = Appended(body.partition, first_offset, body.rows)
        if not self._stored:
            self._stored = (part,)
        elif isinstance(self._stored, list):
            self._stored.append(part)
        else:
            self._stored = [*self._stored, part]
        return self._part_ended()

    def failed(self, body: Body | None, error: RingfenceError) -> bool:
        """One batch ended otherwise. An unknown outcome is the worse one to know of.

        True if this was the last.
        """
        del body
        self.blame(error)
        return self._part_ended()

    def blame(self, error: RingfenceError) -> None:
        """The send will end with this error, unless there is a worse one."""
        worse = isinstance(error, UnknownOutcomeError) and not isinstance(self.error, UnknownOutcomeError)
        if self.error is None or worse:
            self.error = error

    def _part_ended(self) -> bool:
        self._parts_left -= 1
        if self._parts_left:
            return False
        self.finish(None if self.error is not None else self.appended, self.error)
        return True
