"""Define the exception tree of client, control plane, Rust and Cython.

There is one branch for each reaction of a caller:

    RingfenceError
    |- RetriableError         wait `retry_after_s`, then repeat the call: nothing was stored
    |  |- ConnectError        no node answers at the addresses
    |  |- OverloadedError     a memory budget is spent (the node's, or the producer's with on_full="raise")
    |  |- DeadlineError       the node did not begin the request before its deadline
    |  `- DiskFullError       the node has no space for rows; reads continue
    |- RerouteError           refresh the routing table, then send again
    |- RefusedError           do not repeat the request: it will be refused again
    |  |- BatchError          ... change the batch
    |  |  `- SchemaError      ... the columns differ from the topic's
    |  |- NotFoundError       ... no such topic or partition
    |  |- AlreadyExistsError  ... or pass exist_ok
    |  |- FencedError         ... stop: a newer producer of this name, or writer of this scope, took over
    |  |  |- LostRowsError    ... rows went to other members before their acknowledgement was
    |  |  `- MemberError      ... a copy of this process acts as the same member of a cohort
    |  |- ForgottenError      ... open a new producer epoch, resume from the application's own state
    |  |- ResumeUnknownError  ... read which rows are stored, then open with accept_fresh_start=True
    |  |- ConflictError       ... the sequence is stored with other content
    |  |  `- MemberExistsError ... a process has this name in the cohort: choose another
    |  |- PositionError       ... the application's store is behind the cohort: restore it, or seek
    |  |- TruncatedError      ... read from the log start instead
    |  |- QuarantinedError    ... an operator must repair the partition
    |  |- UnauthorizedError   ... present a token that has the right
    |  |- InvalidArgumentError
    |  |- ReentrantError      ... in a signal handler or a finalizer: use a thread
    |  `- ProtocolError       ... client and node cannot decode each other's messages
    |- UnknownOutcomeError    the batch may or may not be stored; send the same sequence again, or read
    |- WaitTimeoutError       the work continues; wait again
    |- ClosedError            the object is closed
    |  `- ForkedError          ... it belongs to the process before a fork
    |- StorageError           fix the data directory as the message says, then start again
    |  |- StoreLockedError    ... another process uses it
    |  |- NewerFormatError    ... a newer program wrote it; nothing was changed
    |  |- StoreIdentityError  ... it belongs to another cluster, history or store
    |  `- RecordError         ... a record is damaged
    `- ConfigError            a setting is invalid

Every error has its values as attributes (`topic`, `partition`, `code`, `retriable`; others in `details`) and
shows them in its text, so that one log line is enough. All errors can be pickled.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Final

from ringfence.native.wire import RETRIABLE, Code, RedirectReason

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

NONE_LOST: Final[Mapping[int, Sequence[tuple[int, int]]]] = MappingProxyType({})


class RingfenceError(Exception):
    """Base of all errors of this package.

    Args:
        message: subject, problem and way out, as one sentence.
        topic: name of the topic, or its id if the name is unknown.
        partition: partition id.
        code: code of the node's refusal; None if no node has refused.
        retriable: whether the same bytes may succeed later; default: as of the code, else of the class.
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
        # Called only if there is no attribute of this name: further values are attributes, too.
        details = self.__dict__.get("details", {})
        if name in details:
            return details[name]
        raise AttributeError(f"{type(self).__name__} has no value {name!r}; it has {sorted(details)}")

    def values(self) -> dict[str, Any]:
        """All values that are not None; the command line prints them with `--json`."""
        optional = {"topic": self.topic, "partition": self.partition}
        values = {key: value for key, value in optional.items() if value is not None}
        if self.code is not None:
            values["code"] = self.code.name.lower()
        return values | self.details | {"retriable": self.retriable}

    def __str__(self) -> str:
        shown = ", ".join(f"{key}={value!r}" for key, value in self.values().items() if key != "retriable")
        return f"{self.message} [{shown}]" if shown else self.message


class RetriableError(RingfenceError):
    """The call stored nothing. Wait `retry_after_s`, then repeat it."""

    retriable_default = True

    def __init__(self, message: str, *, retry_after_s: float = 0.0, **values: Any) -> None:
        super().__init__(message, **values)
        self.retry_after_s = retry_after_s


class ConnectError(RetriableError):
    """No node answers at the addresses. Check the addresses, and that `ringfence serve` runs there."""


class OverloadedError(RetriableError):
    """A memory budget is spent: the node's, or the producer's with on_full="raise". Wait for answers.

    After a `send` that waited for room, `details` has the values of `WaitTimeoutError` that the client knows:
    `partitions`, `node`, `address` and `reason`.
    """


class DeadlineError(RetriableError):
    """The node did not begin the request before its deadline; nothing was stored."""


class DiskFullError(RetriableError):
    """The node has no space for rows; reads continue. Free space or shorten the retention."""


class RerouteError(RingfenceError):
    """Another node owns the partition, or the layout changed. Refresh the routing table, then send again.

    `reason` is the node's reason; `details` has the versions and epochs of both sides.
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
    """The columns differ from the topic's; the message names the column and both types."""


class NotFoundError(RefusedError):
    """No such topic, partition or file."""


class AlreadyExistsError(RefusedError):
    """The name is in use. Choose another name, or pass exist_ok=True for an equal topic."""


class FencedError(RefusedError):
    """A newer epoch of this named producer, or a later writer of this scope, took over. Stop this one."""


class MemberError(FencedError):
    """A copy of this process acts as the same member of a cohort, and attached later. Stop one of them."""


class LostRowsError(FencedError):
    """Rows went, or may go, to other members: no owner confirmed them before. All others are done. Go on.

    What the application did with these rows may be done again by another member, so it should be idempotent.
    It should not be taken back: of an acknowledgement without an answer it is not known whether it counts.

    Args:
        lost: by partition, ranges of offsets: the first row, and the one after the last.
        why: what may have become of the rows.
    """

    def __init__(
        self,
        message: str,
        *,
        lost: Mapping[int, Sequence[tuple[int, int]]] = NONE_LOST,
        why: str = "",
        **values: Any,
    ) -> None:
        super().__init__(message, **values)
        self.lost = {partition: list(ranges) for partition, ranges in sorted(lost.items())}
        self.why = why


class ForgottenError(RefusedError):
    """The node has no entry of this producer any more. Open a new epoch, and resume from your own state."""


class ResumeUnknownError(RefusedError):
    """Partitions have lost their entries of this named producer. See `accept_fresh_start`.

    `topic`, `producer` (the name) and `partitions` have the values. Read the rows of these partitions to find
    the stored ones. Then open the name with `accept_fresh_start=True`, and send the missing rows.
    """


class ConflictError(RefusedError):
    """The sequence is stored with other content: two senders share an epoch, or a batch was changed. Or rows
    were staged in partitions that are sealed now, so their transaction cannot commit as it is.
    """


class MemberExistsError(ConflictError):
    """Another process is this member of the cohort. Choose another name, or pass takeover=True."""


class PositionError(RefusedError):
    """A store of positions has less than the cohort was told of. Restore it, or seek the cohort to it."""


class TruncatedError(RefusedError):
    """The position is not in this log: rows were removed, or the epoch differs. Read from the log start."""


class QuarantinedError(RefusedError):
    """The partition's log is damaged; other partitions work. `ringfence fsck` names the record."""


class UnauthorizedError(RefusedError):
    """The token is missing, unknown, expired or without the right; the message names a role that has it."""


class InvalidArgumentError(RefusedError, ValueError):
    """An argument is outside its range; the message names it, its value and the range."""


class ReentrantError(RefusedError):
    """A signal handler or a finalizer called a producer during another call of it. Use a thread."""


class ProtocolError(RefusedError):
    """Client and node cannot decode each other's messages: their versions differ, or a header is damaged.

    A reader raises it at a record that cannot be decoded: `offset` and `rows` name the rows, `next_offset` is
    the offset at which a read can continue.
    """


class UnknownOutcomeError(RingfenceError):
    """Stored or not; a plain resend may store it twice. Reopen the named producer, resend the same `number`.

    A producer raises it if it must stop before the answer arrives. On the wire, a resend of the same sequence
    gets the answer, too. After a commit, all of its rows are stored or none: begin the scope again to see
    which.
    """


class WaitTimeoutError(RingfenceError, TimeoutError):
    """The wait has ended; the work continues, and the caller may wait again.

    `partitions` are the ones without an answer. `node` (id), `address` and `reason` belong to the first of
    them; the reason is "not connected", "not answering", "no owner", "refused", "backpressure", "unanswered"
    or "not sent". Unknown values are None or empty.
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
        """All values that are not None or empty."""
        optional = {"node": self.node, "address": self.address, "reason": self.reason}
        partitions = {"partitions": list(self.partitions)} if self.partitions else {}
        return {
            **partitions,
            **{key: value for key, value in optional.items() if value is not None},
            **super().values(),
        }


class ClosedError(RingfenceError):
    """The object is closed. Create a new one."""


class ForkedError(ClosedError):
    """The object was created before a fork, in the parent process. Create a new one in the child."""


class StorageError(RingfenceError):
    """A data directory cannot be used; the message has the file and the way out. Nothing was removed."""


class StoreLockedError(StorageError):
    """Another process uses the data directory. Stop it, or choose another directory."""


class NewerFormatError(StorageError):
    """A newer program has written the data directory. Use that program; nothing was changed."""


class StoreIdentityError(StorageError):
    """The data directory belongs to a cluster, history or store other than the expected one."""


class RecordError(StorageError):
    """A record of the log is damaged; `position` is its first byte."""


class ConfigError(RingfenceError, ValueError):
    """A setting is unknown, missing or outside its range; the message names the setting and its source."""


# The class of each code of an answer REFUSED. Invariant: complete (tests/unit/native/test_errors.py).
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
    Code.MOVED: ConflictError,
    Code.NOT_ASSIGNED: FencedError,
    Code.FENCED_MEMBER: FencedError,
    Code.UNKNOWN_COHORT: NotFoundError,
    Code.STALE_CLAIM: RetriableError,
}


def refusal(
    code: int,
    message: str,
    *,
    retry_after_s: float = 0.0,
    topic: str | int | None = None,
    partition: int | None = None,
    **details: Any,
) -> RingfenceError:
    """The error of an answer REFUSED, for the caller to raise.

    Args:
        code: of the answer's header. An unknown code gives a RefusedError.
        message: of the answer's body.
        retry_after_s: seconds, of the answer's header; only retriable errors have it.
        topic: name or id.
        partition: id.
        details: of the answer's body.
    """
    try:
        wire_code = Code(code)
    except ValueError:
        return RefusedError(message, topic=topic, partition=partition, unknown_code=code, **details)
    kind = CODE_ERRORS[wire_code]
    if issubclass(kind, RetriableError):
        details["retry_after_s"] = retry_after_s
    return kind(message, topic=topic, partition=partition, code=wire_code, **details)
