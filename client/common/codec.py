"""Encode request headers and control bodies; decode answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import msgspec

from ringfence.native import messages, wire
from ringfence.native._node import crc32c
from ringfence.native.errors import (
    InvalidArgumentError,
    ProtocolError,
    RerouteError,
    RetriableError,
    RingfenceError,
    refusal,
)
from ringfence.native.frame import pack_request

NO_BODY = memoryview(b"")
MAYBE_NOT_APPLIED: Final = frozenset({wire.Code.UNKNOWN_TOPIC, wire.Code.UNKNOWN_PARTITION})
NOT_APPLIED_RETRY_S: Final = 0.05
"""A node that lags applies an entry within a heartbeat or two, unless it is partitioned away."""


def request_header(opcode: int, request_id: int, **fields: int) -> bytearray:
    """A sealed request header of 128 bytes; `fields` as in `ringfence.native.frame.pack_request`."""
    header = bytearray(wire.HEADER_BYTES)
    pack_request(header, 0, opcode, request_id, **fields)
    return header


def control_body(message: messages.Message) -> bytes:
    """The body of a control request with values of the caller.

    Raises:
        InvalidArgumentError: a value has the wrong type or cannot be encoded; the message names it.
    """
    kind = type(message)
    try:
        values = msgspec.structs.asdict(message)
        msgspec.convert({name: one for name, one in values.items() if one is not msgspec.UNSET}, kind)
        return messages.encode(message)
    except OverflowError as error:
        raise InvalidArgumentError(f"a number exceeds 64 bits: {error}") from error
    except UnicodeEncodeError as error:
        raise InvalidArgumentError(f"a name is not valid Unicode: {error}") from error
    except msgspec.ValidationError as error:
        wanted, _, place = str(error).partition(" - at ")
        place = place.strip("`").removeprefix("$.")
        given = getattr(message, place, None)
        raise InvalidArgumentError(f"{place}={given!r}: {wanted[:1].lower()}{wanted[1:]}") from error


def column_names(argument: str, given: Any) -> list[str]:
    """Column names of the caller as a list; a str is one name.

    Raises:
        InvalidArgumentError: the value is not a sequence of names; the message names the argument.
    """
    if isinstance(given, str):
        return [given]
    try:
        names = list(given)
    except TypeError:
        names = [given]
    wrong = [name for name in names if not isinstance(name, str)]
    if wrong:
        raise InvalidArgumentError(f"{argument} must contain names of columns, not {wrong[0]!r}")
    return names


@dataclass(slots=True)
class Answer:
    """An answer or push; `body` may be a view that keeps the received frame in memory."""

    header: wire.AnswerHeader
    body: memoryview

    def control(self, kind: type[messages.AnyMessage]) -> messages.AnyMessage:
        """The body as a control message. Raises ProtocolError."""
        if self.body.nbytes > wire.MESSAGE_BYTES_MAX:
            raise ProtocolError(
                "the body of an answer is above message_bytes_max", body_bytes=self.body.nbytes
            )
        try:
            return messages.decode(kind, self.body)
        except ValueError as error:  # raised by msgspec: invalid MessagePack, or wrong types
            opcode = self.header.opcode
            raise ProtocolError(
                f"the body of an answer is not a {kind.__name__}: {error}", opcode=opcode
            ) from error

    def error(self, topic: str | None = None, *, held: int = 0) -> RingfenceError:
        """The error of an answer REFUSED or REDIRECT.

        `held`: generation of the table that the request is based on. A node with an older generation that
        does not know the topic or partition may not have applied it yet, so the error is retriable.
        """
        header = self.header
        partition = header.partition or None
        if header.status == wire.Status.REDIRECT:
            return self._redirect(topic, partition)
        refused = (
            self.control(messages.Refused)
            if self.body
            else messages.Refused(message="refused without a message")
        )
        values = dict(refused.details)
        known = topic if topic is not None else values.get("topic")
        if header.code in MAYBE_NOT_APPLIED and header.generation < held:
            return RetriableError(
                f"the node is at generation {header.generation}, the routing table at {held}: "
                f"{refused.message}",
                topic=known,
                partition=partition,
                retry_after_s=NOT_APPLIED_RETRY_S,
            )
        for name in ("topic", "partition", "code", "retriable", "message", "retry_after_s"):
            values.pop(name, None)
        if header.code == wire.Code.SEQUENCE_GAP:
            values["expected"] = header.sequence
        if header.code == wire.Code.TRUNCATED:
            values["start_offset"] = header.first_offset
        message = refused.message
        # The request names the topic by id.
        if header.code == wire.Code.UNKNOWN_TOPIC and topic is not None and header.topic:
            message, values["id"] = topic_gone(topic, header.topic, message), header.topic
        return refusal(
            header.code,
            message,
            topic=known,
            partition=partition,
            retry_after_s=header.retry_after_ms / 1000,
            **values,
        )

    def _redirect(self, topic: str | None, partition: int | None) -> RerouteError:
        header = self.header
        body = self.control(messages.Redirected) if self.body else messages.Redirected(owner=0, addresses=[])
        try:
            reason = wire.RedirectReason(header.code)
        except ValueError as error:
            raise ProtocolError("a redirect has an unknown reason", reason=header.code) from error
        return RerouteError(
            f"the node redirects ({reason.name.lower()}) and a newer routing table did not settle it",
            reason=reason,
            topic=topic,
            partition=partition,
            owner=body.owner,
            addresses=body.addresses,
            layout_version=header.layout_version,
            owner_epoch=header.owner_epoch,
            generation=header.generation,
            retry_after_s=header.retry_after_ms / 1000,
            **_sealed(body),
        )


def _sealed(body: messages.Redirected) -> dict[str, Any]:
    """What the redirect of a sealed partition says beside its owner."""
    values = {"stored": body.stored, "answers": body.answers, "version": body.version}
    return {name: value for name, value in values.items() if value is not msgspec.UNSET}


def topic_gone(name: str, number: int, answered: str) -> str:
    """The text for a deleted topic that was requested by id; `answered`: the text of the node."""
    return (
        f'topic "{name}" was deleted, or deleted and created again: the topic with id {number} no longer '
        f"exists ({answered})"
    )


def checked(header: wire.AnswerHeader, body: memoryview) -> Answer:
    """The answer of a header and a body frame.

    Raises:
        ProtocolError: size or checksum of the body differ from the header.
    """
    if header.body_bytes != body.nbytes or (body.nbytes and crc32c(body) != header.body_crc):
        raise ProtocolError("the body of an answer is damaged", opcode=header.opcode, body_bytes=body.nbytes)
    return Answer(header, body)
