"""Errors that the client itself finds, and how several of them are shown as one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ringfence.common.codec import topic_gone
from ringfence.native.errors import (
    ClosedError,
    DeadlineError,
    FencedError,
    NotFoundError,
    RingfenceError,
    UnknownOutcomeError,
)
from ringfence.send.wait_reasons import Wait

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ringfence.common.routing import Layout

WAIT_VALUES = frozenset({"node", "address", "reason"})  # of who was waited for
NOTES_MAX = 5  # of many failures this many are shown; `Producer.failures` has them


def deadline_error(
    topic: str | None, partition: int, said: RingfenceError | None, wait: Wait | None = None
) -> DeadlineError:
    """`said`: why the node took nothing of the partition, as it said last; also the error's cause.

    `wait`: who is waited for.
    """
    why = "" if said is None else f" (the node said: {said.message})"
    if wait is not None:
        why = f" ({wait.text})"
    error = DeadlineError(
        f"the send's rows of this partition were not stored within its timeout_s{why}; no try of them can be "
        "stored, so these may be sent again",
        topic=topic,
        partition=partition,
        **_named(wait),
    )
    error.__cause__ = said
    return error


def _named(wait: Wait | None) -> dict[str, Any]:
    if wait is None:
        return {}
    node = {"node": wait.node} if wait.node else {}
    return {**node, "address": wait.address, "reason": wait.reason}


def hole_error(topic: str | None, partition: int) -> ClosedError:
    return ClosedError(
        "an earlier send of this named producer is not stored in the partition, so nothing behind it is: the "
        "resume point must not pass a hole. Open the name anew, and go on from its resume point",
        topic=topic,
        partition=partition,
    )


def defect_error(topic: str, why: Exception) -> ClosedError:
    error = ClosedError(
        f"what was sent ended by a defect of this program ({type(why).__name__}: {why}); make a new "
        "producer, and please report it with the log",
        topic=topic,
    )
    error.__cause__ = why
    return error


def cut_short_error(topic: str, why: BaseException) -> RingfenceError:
    """A send ended in its midst, by something that is no refusal: Ctrl-C, or what its stream raised."""
    error = ClosedError(
        f"the send ended in its midst ({type(why).__name__}: {why}): the rows before that may be stored, the "
        "others are not",
        topic=topic,
    )
    error.__cause__ = why
    return error


def lingering_hole_error(topic: str, number: int, refusal: RingfenceError) -> ClosedError:
    error = ClosedError(
        f"send {number} of this named producer waited for others and could then not be encoded "
        f"({refusal.message}), so nothing behind it is stored: the resume point must not pass a hole. Open "
        "the name again, and go on from its resume point",
        topic=topic,
        send=number,
    )
    error.__cause__ = refusal
    return error


def fenced_error(producer: str, said: FencedError) -> FencedError:
    """`said`: what the node said, which knows the producer's number alone; also the error's cause."""
    error = FencedError(
        f'a newer holder of the producer name "{producer}" is at work ({said.message}): this one stores '
        "nothing any more. End it, or give each of the two a name of its own",
        topic=said.topic,
        partition=said.partition,
        code=said.code,
        **said.details | {"producer": producer},
    )
    error.__cause__ = said
    return error


def scope_fenced_error(scope: str, topic: str | None, epoch: int, said: FencedError) -> FencedError:
    """`said`: what the node said, in terms of drivers and numbers; also the error's cause."""
    of = f'of topic "{topic}"' if topic is not None else "of the cluster"
    error = FencedError(
        f'a later client.transaction(scope="{scope}") {of} took the scope over: nothing of this one is '
        "stored, nor will be. End this writer, or give each of the two a scope of its own",
        topic=topic,
        code=said.code,
        scope=scope,
        epoch=epoch,
    )
    error.__cause__ = said
    return error


def topic_gone_error(layout: Layout, said: NotFoundError) -> NotFoundError:
    """`said`: what the node said, which knows the topic's number alone; also the error's cause."""
    known = said.details.get("id") is not None
    gone = said.message if known else topic_gone(layout.name, layout.topic, said.message)
    error = NotFoundError(
        f"{gone}. Open a new producer",
        topic=layout.name,
        code=said.code,
        **said.details | {"id": layout.topic},
    )
    error.__cause__ = said
    return error


def unknown_error(
    topic: str | None, partition: int, sequence: int, cause: RingfenceError
) -> UnknownOutcomeError:
    if isinstance(cause, UnknownOutcomeError):
        return cause
    # A deadline's own words end with "may be sent again", which is not so here.
    then, named = cause.message, {}
    if isinstance(cause, DeadlineError):
        named = {key: value for key, value in cause.details.items() if key in WAIT_VALUES}
        then = "its timeout_s passed"
        if named:
            then += f" ({Wait(partition, named.get('node', 0), named['address'], named['reason'], '').words})"
    error = UnknownOutcomeError(
        f"a try of the batch was never answered, and then: {then}; another send of its rows may store them "
        "twice. Open a named producer anew and send them with the same number, or read the partition",
        topic=topic,
        partition=partition,
        sequence=sequence,
        **named,
    )
    error.__cause__ = cause
    return error


def noted(first: BaseException, others: Sequence[BaseException], count: int) -> BaseException:
    """`first`, with notes on the other failures: `count` in all, `others` the ones that were kept."""
    if count > 1:
        first.add_note(f"{count} sends did not succeed; Producer.failures has them:")
        for other in others[:NOTES_MAX]:
            first.add_note(f"  {type(other).__name__}: {other}")
    return first
