"""Build the errors of sends, and combine several failures into one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ringfence.common.codec import topic_gone
from ringfence.native.errors import (
    ClosedError,
    DeadlineError,
    FencedError,
    NotFoundError,
    OverloadedError,
    ReentrantError,
    RingfenceError,
    UnknownOutcomeError,
    WaitTimeoutError,
)
from ringfence.send.wait_reasons import WaitReason

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ringfence.common.routing import Layout

WAIT_VALUES = frozenset({"node", "address", "reason"})  # of a WaitReason
NOTES_MAX = 5  # failures listed in the notes of an error; `Producer.failures` has all


def deadline_error(
    topic: str | None, partition: int, refusal: RingfenceError | None, wait: WaitReason | None = None
) -> DeadlineError:
    """The error of a batch whose deadline passed before it was stored.

    `refusal`: the owner's last refusal for the partition, also the cause of the error. `wait`: why the batch
    was pending.
    """
    why = "" if refusal is None else f" (the node answered: {refusal.message})"
    if wait is not None:
        why = f" ({wait.text})"
    error = DeadlineError(
        f"the send's rows of this partition were not stored within its timeout_s{why}; no try can be stored "
        "later, so these rows may be sent again",
        topic=topic,
        partition=partition,
        **_named(wait),
    )
    error.__cause__ = refusal
    return error


def _named(wait: WaitReason | None) -> dict[str, Any]:
    if wait is None:
        return {}
    node = {} if wait.node is None else {"node": wait.node}
    return {**node, "address": wait.address, "reason": wait.reason}


def _wait_of(error: DeadlineError) -> WaitReason | None:
    """Why the batch of the error was pending, with the owner's last refusal; None: it does not say."""
    named = {key: value for key, value in error.details.items() if key in WAIT_VALUES}
    if not named:
        return None
    refusal = error.__cause__
    found = f"the node answered: {refusal.message}" if isinstance(refusal, RingfenceError) else ""
    return WaitReason(error.partition or 0, named.get("node"), named["address"], named["reason"], found)


def hole_error(topic: str | None, partition: int) -> ClosedError:
    return ClosedError(
        "an earlier send of this named producer is not stored in the partition, so no later send is: the "
        "resume point must not pass a hole. Open the name again, and continue from its resume point",
        topic=topic,
        partition=partition,
    )


def defect_error(topic: str, why: Exception) -> ClosedError:
    error = ClosedError(
        f"the send ended because of a defect in the client ({type(why).__name__}: {why}); open a new "
        "producer, and please report the defect with the log",
        topic=topic,
    )
    error.__cause__ = why
    return error


def cut_short_error(topic: str, why: BaseException) -> RingfenceError:
    """The error of a send that was interrupted, for example by Ctrl-C or an error of its stream."""
    error = ClosedError(
        f"the send was interrupted ({type(why).__name__}: {why}): rows before that point may be stored, "
        "later rows are not",
        topic=topic,
    )
    error.__cause__ = why
    return error


def reentrant_error(topic: str) -> ReentrantError:
    return ReentrantError(
        "a signal handler or finalizer called this producer while it interrupted another call; put the rows "
        "into a queue.SimpleQueue, and send them from a thread or the main loop",
        topic=topic,
    )


def would_wait_error(topic: str, bytes_wanted: int, bytes_max: int) -> OverloadedError:
    return OverloadedError(
        "the rows take more than bytes_in_flight_max, so sending them would wait; send fewer rows in one "
        "call, or raise the limit",
        topic=topic,
        bytes_wanted=bytes_wanted,
        bytes_in_flight_max=bytes_max,
    )


def lingering_hole_error(topic: str, number: int, refusal: RingfenceError) -> ClosedError:
    error = ClosedError(
        f"send {number} of this named producer could not be encoded after its linger time "
        f"({refusal.message}), so no later send is stored: the resume point must not pass a hole. Open "
        "the name again, and continue from its resume point",
        topic=topic,
        send=number,
    )
    error.__cause__ = refusal
    return error


def fenced_error(producer: str, refusal: FencedError) -> FencedError:
    """`refusal`, which becomes the cause, with the producer's name: a node knows only its id."""
    error = FencedError(
        f'the producer name "{producer}" was opened again by a newer producer ({refusal.message}): this one '
        "is fenced and stores nothing more. Close it, or give each of the two its own name",
        topic=refusal.topic,
        partition=refusal.partition,
        code=refusal.code,
        **refusal.details | {"producer": producer},
    )
    error.__cause__ = refusal
    return error


def scope_fenced_error(scope: str, topic: str | None, epoch: int, refusal: FencedError) -> FencedError:
    """`refusal`, which becomes the cause, with the scope's name: a node knows only drivers and ids."""
    of = f'of topic "{topic}"' if topic is not None else "of the cluster"
    error = FencedError(
        f'a later client.transaction(scope="{scope}") {of} has taken over the scope: nothing of this one is '
        "stored, now or later. Stop this writer, or give each of the two its own scope",
        topic=topic,
        code=refusal.code,
        scope=scope,
        epoch=epoch,
    )
    error.__cause__ = refusal
    return error


def topic_gone_error(layout: Layout, refusal: NotFoundError) -> NotFoundError:
    """`refusal`, which becomes the cause, with the topic's name: a node knows only its id."""
    known = refusal.details.get("id") is not None
    gone = refusal.message if known else topic_gone(layout.name, layout.topic, refusal.message)
    error = NotFoundError(
        f"{gone}. Open a new producer",
        topic=layout.name,
        code=refusal.code,
        **refusal.details | {"id": layout.topic},
    )
    error.__cause__ = refusal
    return error


def unknown_error(
    topic: str | None, partition: int, sequence: int, cause: RingfenceError
) -> UnknownOutcomeError:
    if isinstance(cause, UnknownOutcomeError):
        return cause
    # The text of a DeadlineError ends with "may be sent again", which is wrong here.
    then, wait = cause.message, None
    if isinstance(cause, DeadlineError):
        wait = _wait_of(cause)
        then = "its timeout_s passed" + ("" if wait is None else f" ({wait.text})")
    error = UnknownOutcomeError(
        f"a try of the batch was never answered, and then: {then}; sending its rows again may store them "
        "twice. Open a named producer again and send them with the same number, or read the partition",
        topic=topic,
        partition=partition,
        sequence=sequence,
        **_named(wait),
    )
    error.__cause__ = cause
    return error


def unstaged_error(topic: str, error: RingfenceError) -> RingfenceError:
    """The error of rows of an attempt that nobody knows to be staged; `error` tells of rows that are stored.

    Staged rows are visible only after a commit, which counts them: a repeat never stores them twice.
    """
    if isinstance(error, UnknownOutcomeError) and isinstance(error.__cause__, RingfenceError):
        error = error.__cause__
    if not isinstance(error, DeadlineError):
        return error
    wait = _wait_of(error)
    why = "" if wait is None else f" ({wait.text})"
    late = WaitTimeoutError(
        f'rows that were staged have no outcome in topic "{topic}" within their timeout_s{why}; nothing of '
        "the attempt can be committed, run it again",
        topic=topic,
        partitions=() if error.partition is None else (error.partition,),
        **_named(wait),
    )
    late.__cause__ = error
    return late


def noted(first: BaseException, others: Sequence[BaseException], count: int) -> BaseException:
    """`first`, with notes on other failures. `count`: of all failures; `others`: those that are kept."""
    if count > 1:
        first.add_note(f"{count} sends failed; Producer.failures lists them:")
        for other in others[:NOTES_MAX]:
            first.add_note(f"  {type(other).__name__}: {other}")
    return first
