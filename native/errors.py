"""The one exception tree. Client, control plane, Rust and Cython all raise these.

One branch for each thing that a caller can *do*:

    RingfenceError
    |- RetriableError         wait `retry_after_s`, then do the same again: nothing was stored
    |  |- ConnectError        no node answers at the addresses
    |  |- OverloadedError     a memory budget is spent (the node's, or the producer's with on_full="raise")
    |  |- DeadlineError       not begun before its deadline
    |  `- DiskFullError       no space for rows; reads go on
    |- RerouteError           refresh the routing table, then send again
    |- RefusedError           give up this very request: it will be refused again
    |  |- BatchError          ... change the batch
    |  |  `- SchemaError      ... its columns are not those of the topic
    |  |- NotFoundError       ... no such topic or partition
    |  |- AlreadyExistsError  ... or pass exist_ok
    |  |- FencedError         ... stop: a newer holder of this producer's name is at work
    |  |- ForgottenError      ... open a new producer epoch, resume from the application's own state
    |  |- ResumeUnknownError  ... find out what is stored, then open with accept_fresh_start=True
    |  |- ConflictError       ... the sequence is stored with other content
    |  |- TruncatedError      ... read from the log start instead
    |  |- QuarantinedError    ... an operator must repair the partition
    |  |- UnauthorizedError   ... present a credential that has the right
    |  |- InvalidArgumentError
    |  |- ReentrantError      ... in a signal's handler or a finalizer: hand it to a thread
    |  `- ProtocolError       ... the two programs do not understand each other
    |- UnknownOutcomeError    the batch may or may not be stored; the same sequence again, or a look, tells
    |- WaitTimeoutError       what was waited for goes on; wait again
    |- ClosedError            the object is closed
    |  `- ForkedError          ... it belongs to the process before a fork
    |- StorageError           a data directory: fix what the message names, start again
    |  |- StoreLockedError    ... another process uses it
    |  |- NewerFormatError    ... it was written by a newer program; nothing was touched
    |  |- StoreIdentityError  ... it belongs to another cluster, history or store
    |  `- RecordError         ... a record is damaged
    `- ConfigError            a setting

Every error carries its values as attributes (`topic`, `partition`, `code`, `retriable`; others in `details`)
and shows them in its text, so that a log line alone is enough. All survive a copy to another process.
"""

from __future__ import annotations

from typing import Any, ClassVar

from ringfence.native.wire import RETRIABLE, Code, RedirectReason


class RingfenceError(Exception):
    """Base of all errors of this package.

    Args:
        message: what happened, to what, and the way out, as one sentence.
        topic: the topic's name, or its id where the name is not known.
        partition: partition id.
        code: the node's code, where a node refused.
        retriable: whether the same bytes may succeed later; default: of the code, else of the class.
        details: further values, shown as `key=value`.
    """

    retriable_default: ClassVar[bool] = False

    def __init__(
        self,
        message: str,
        *,
        topic: str | int | None = None,
        partition: int | None = None,
        code: Code | None = None,
        retriable: bool | None = None,
        **details: Any,
    ) -> None:
        super().__init__(message)
        if retriable is None:
            retriable = self.retriable_default if code is None else code in RETRIABLE
        self.message, self.topic, self.partition = message, topic, partition
        self.code, self.retriable, self.details = code, retriable, details

    def __getattr__(self, name: str) -> Any:
        # Only for names that are no attribute: the further values, as attributes too.
        details = self.__dict__.get("details", {})
        if name in details:
            return details[name]
        raise AttributeError(f"{type(self).__name__} has no value {name!r}; it has {sorted(details)}")

    def values(self) -> dict[str, Any]:
        """All values that are known, as they came; the command line prints them with `--json`."""
        known = {"topic": self.topic, "partition": self.partition}
        named = {key: value for key, value in known.items() if value is not None}
        if self.code is not None:
            named["code"] = self.code.name.lower()
        return named | self.details | {"retriable": self.retriable}

    def __str__(self) -> str:
        shown = ", ".join(f"{key}={value!r}" for key, value in self.values().items() if key != "retriable")
        return f"{self.message} [{shown}]" if shown else self.message


class RetriableError(RingfenceError):
    """Nothing was stored by this try. Wait `retry_after_s`, then do the same again."""

    retriable_default = True

    def __init__(self, message: str, *, retry_after_s: float = 0.0, **values: Any) -> None:
        super().__init__(message, **values)
        self.retry_after_s = retry_after_s


class ConnectError(RetriableError):
    """No node answers at the addresses. Check them and that `ringfence serve` runs there."""


class OverloadedError(RetriableError):
    """A memory budget is spent: the node's, or the producer's own with on_full="raise". Wait for answers.

    Of a `send` that has waited for room `details` has `partitions`, `node`, `address` and `reason`, as
    `WaitTimeoutError`, as far as they are known.
    """


class DeadlineError(RetriableError):
    """The node did not begin the request before its deadline; nothing was stored."""


class DiskFullError(RetriableError):
    """The node has no space for rows; reads go on. Free space or shorten the retention."""


class RerouteError(RingfenceError):
    """The partition is elsewhere, or the layout has changed. Refresh the routing table, then send again.

    `reason` says why; `details` has the versions and epochs of both sides.
    """

    retriable_default = True

    def __init__(self, message: str, *, reason: RedirectReason | None = None, **values: Any) -> None:
        super().__init__(message, **values)
        self.reason = reason


class RefusedError(RingfenceError):
    """A final answer: the same request will be refused again. Nothing was stored in that partition."""


class BatchError(RefusedError):
    """The batch itself cannot be stored: its types, its content, its size or its keys."""


class SchemaError(BatchError):
    """The columns are not those of the topic; the message names the column and both types."""


class NotFoundError(RefusedError):
    """No such topic, partition or file."""


class AlreadyExistsError(RefusedError):
    """The name is taken. Choose another one, or pass exist_ok=True for an equal topic."""


class FencedError(RefusedError):
    """A newer epoch of this named producer, or a later writer of this scope: another took over. Stop."""


class ForgottenError(RefusedError):
    """The node no longer remembers this producer. Open a new epoch, resume from your own state."""


class ResumeUnknownError(RefusedError):
    """Partitions forgot this named producer: what it stored there cannot be told. See `accept_fresh_start`.

    `topic`, `producer` (the name) and `partitions` say where. Find out from the rows themselves what is
    stored; then open the name with `accept_fresh_start=True` and send what is missing.
    """


class ConflictError(RefusedError):
    """The sequence is stored with other content: two senders share an epoch, or a batch was changed."""


class TruncatedError(RefusedError):
    """The position is not in this log: retention passed it, or the epoch differs. Read from the log start."""


class QuarantinedError(RefusedError):
    """The partition's log is damaged; other partitions serve. `ringfence fsck` names the record."""


class UnauthorizedError(RefusedError):
    """The token is missing, unknown, expired or without the right; the message names a role that has it."""


class InvalidArgumentError(RefusedError, ValueError):
    """An argument is outside its range; the message names it, its value and the range."""


class ReentrantError(RefusedError):
    """A signal handler or a finalizer called a producer during another call of it. Use a thread."""


class ProtocolError(RefusedError):
    """The two sides do not understand each other: versions, opcodes or damaged headers.

    A reader raises it at a record that cannot be decoded: `offset` and `rows` say which rows, `next_offset`
    where a read can go on.
    """


class UnknownOutcomeError(RingfenceError):
    """Stored or not; another send may double it. Open the named producer again and send the same `number`.

    What the producer raises when it must stop before it knows. On the wire the same sequence tells, too. Of a
    commit: all of it or nothing; its scope, begun again, tells.
    """


class WaitTimeoutError(RingfenceError, TimeoutError):
    """The wait ended, not the work: it goes on, and may be waited for again.

    `partitions` are waited for; of the first one `node` (id), `address` and `reason` say for whom, and why:
    "not connected", "not answering", "no owner", "refused", "backpressure", "unanswered" or "not sent". None
    or empty where it is not known.
    """

    retriable_default = True

    def __init__(
        self,
        message: str,
        *,
        partitions: tuple[int, ...] = (),
        node: int | None = None,
        address: str | None = None,
        reason: str | None = None,
        **values: Any,
    ) -> None:
        super().__init__(message, **values)
        self.partitions, self.node, self.address, self.reason = partitions, node, address, reason

    def values(self) -> dict[str, Any]:
        """As of every error."""
        known = {"node": self.node, "address": self.address, "reason": self.reason}
        found = {"partitions": list(self.partitions)} if self.partitions else {}
        return {
            **found,
            **{key: value for key, value in known.items() if value is not None},
            **super().values(),
        }


class ClosedError(RingfenceError):
    """The object is closed. Make a new one."""


class ForkedError(ClosedError):
    """The object was made before a fork, in the parent process. Make a new one in the child."""


class StorageError(RingfenceError):
    """A data directory cannot be used; the message names the file and the way out. Nothing was removed."""


class StoreLockedError(StorageError):
    """Another process uses the data directory. Stop it, or choose another directory."""


class NewerFormatError(StorageError):
    """The data directory was written by a newer program. Use that one; nothing was touched."""


class StoreIdentityError(StorageError):
    """The data directory belongs to another cluster, history or store than the one named."""


class RecordError(StorageError):
    """A record of the log is damaged; `position` is where it begins."""


class ConfigError(RingfenceError, ValueError):
    """A setting is unknown, missing or outside its range; the message names it and where it came from."""


CODE_ERRORS: dict[Code, type[RingfenceError]] = {
    Code.BAD_HEADER: ProtocolError,
    Code.UNSUPPORTED_VERSION: ProtocolError,
    Code.UNKNOWN_OPCODE: ProtocolError,
    Code.TOO_LARGE: BatchError,
    Code.BODY_CRC: RetriableError,
    Code.BAD_BODY: BatchError,
    Code.UNSUPPORTED_TYPE: SchemaError,
    Code.WRONG_SCHEMA: SchemaError,
    Code.WRONG_SLOT: BatchError,
    Code.ZERO_ROWS: BatchError,
    Code.UNKNOWN_TOPIC: NotFoundError,
    Code.UNKNOWN_PARTITION: NotFoundError,
    Code.SEQUENCE_GAP: RetriableError,
    Code.CONFLICT: ConflictError,
    Code.FENCED_PRODUCER: FencedError,
    Code.FORGOTTEN: ForgottenError,
    Code.TOO_OLD: UnknownOutcomeError,
    Code.AHEAD: RetriableError,
    Code.DEADLINE: DeadlineError,
    Code.HELD: RetriableError,
    Code.TRUNCATED: TruncatedError,
    Code.QUARANTINED: QuarantinedError,
    Code.DISK_FULL: DiskFullError,
    Code.STORAGE_FAILED: UnknownOutcomeError,
    Code.OVERLOADED: OverloadedError,
    Code.TOO_FEW_REPLICAS: RetriableError,
    Code.ALREADY_EXISTS: AlreadyExistsError,
    Code.INVALID_ARGUMENT: InvalidArgumentError,
    Code.UNAUTHORIZED: UnauthorizedError,
    Code.STOPPING: RetriableError,
    Code.INTERNAL: RetriableError,
    Code.NOT_SUPPORTED: ProtocolError,
    Code.UNKNOWN_OUTCOME: UnknownOutcomeError,
    Code.RESUME_UNKNOWN: ResumeUnknownError,
}
"""The class of each code of an answer REFUSED; a test holds it complete."""


def refusal(
    code: int,
    message: str,
    *,
    retry_after_s: float = 0.0,
    topic: str | int | None = None,
    partition: int | None = None,
    **details: Any,
) -> RingfenceError:
    """The error that an answer REFUSED stands for, to be raised by the caller.

    Args:
        code: of the answer's header. One that this program does not know gives a RefusedError.
        message: of the answer's body.
        retry_after_s: seconds, of the answer's header; kept by retriable errors.
        topic: name or id.
        partition: id.
        details: of the answer's body.
    """
    try:
        known = Code(code)
    except ValueError:
        return RefusedError(message, topic=topic, partition=partition, unknown_code=code, **details)
    kind = CODE_ERRORS[known]
    if issubclass(kind, RetriableError):
        details["retry_after_s"] = retry_after_s
    return kind(message, topic=topic, partition=partition, code=known, **details)
