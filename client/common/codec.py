"""Request headers out of values, answers out of frames."""

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
UNHEARD: Final = frozenset({wire.Code.UNKNOWN_TOPIC, wire.Code.UNKNOWN_PARTITION})
UNHEARD_RETRY_S: Final = 0.05
"""A node that lags hears of an entry within a heartbeat or two, or is cut off."""


def request_header(opcode: int, request_id: int, **fields: int) -> bytearray:
    """A sealed request header of 128 bytes; `fields` as in `ringfence.native.frame.pack_request`."""
    header = bytearray(wire.HEADER_BYTES)
    pack_request(header, 0, opcode, request_id, **fields)
    return header


def control_body(message: messages.Message) -> bytes:
    """The body of a control request that holds what a caller passed.

    Raises:
        InvalidArgumentError: a value has another type than the message's, or cannot be sent; it is named.
    """
    kind = type(message)
    try:
        msgspec.convert(msgspec.structs.asdict(message), kind)
        return messages.encode(message)
    except OverflowError as error:
        raise InvalidArgumentError(f"a number is beyond 64 bits: {error}") from error
    except UnicodeEncodeError as error:
        raise InvalidArgumentError(f"a name is no Unicode text: {error}") from error
    except msgspec.ValidationError as error:
        wanted, _, place = str(error).partition(" - at ")
        place = place.strip("`").removeprefix("$.")
        given = getattr(message, place, None)
        raise InvalidArgumentError(f"{place}={given!r}: {wanted[:1].lower()}{wanted[1:]}") from error


def column_names(argument: str, given: Any) -> list[str]:
    """The names of columns that a caller passed; a str is one name.

    Raises:
        InvalidArgumentError: it is no sequence of names; it names the argument.
    """
    if isinstance(given, str):
        return [given]
    try:
        names = list(given)
    except TypeError:
        names = [given]
    wrong = [name for name in names if not isinstance(name, str)]
    if wrong:
        raise InvalidArgumentError(f"{argument} takes names of columns, not {wrong[0]!r}")
    return names


@dataclass(slots=True)
class Answer:
    """One answer or push; `body` may be a view of the received frame and keeps it alive."""

    header: wire.AnswerHeader
    body: memoryview

    def control(self, kind: type[messages.AnyMessage]) -> messages.AnyMessage:
        """The body as a control message. Raises ProtocolError."""
        if self.body.nbytes > wire.MESSAGE_BYTES_MAX:
            raise ProtocolError("an answer's body is above message_bytes_max", body_bytes=self.body.nbytes)
        try:
            return messages.decode(kind, self.body)
        except ValueError as error:  # of msgspec: not MessagePack, or other types than agreed
            opcode = self.header.opcode
            raise ProtocolError(
                f"the body of an answer is not a {kind.__name__}: {error}", opcode=opcode
            ) from error

    def error(self, topic: str | None = None, *, held: int = 0) -> RingfenceError:
        """What an answer REFUSED or REDIRECT stands for.

        `held` is the generation of the table that the request went by: a node of an older one that knows of
        no such topic or partition has not heard of it yet.
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
        if header.code in UNHEARD and header.generation < held:
            return RetriableError(
                f"the node is at generation {header.generation}, the routing table at {held}: "
                f"{refused.message}",
                topic=known,
                partition=partition,
                retry_after_s=UNHEARD_RETRY_S,
            )
        for name in ("topic", "partition", "code", "retriable", "message", "retry_after_s"):
            values.pop(name, None)
        if header.code == wire.Code.SEQUENCE_GAP:
            values["expected"] = header.sequence
        if header.code == wire.Code.TRUNCATED:
            values["start_offset"] = header.first_offset
        message = refused.message
        if (
            header.code == wire.Code.UNKNOWN_TOPIC and topic is not None and header.topic
        ):  # asked for by its id
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
        )


def topic_gone(name: str, number: int, said: str) -> str:
    """What to say of a topic that is asked for by its id; `said` by the node, which knows the id alone."""
    return (
        f'topic "{name}" was deleted, or deleted and made anew with another id: the one with the id '
        f"{number}, which this was opened for, is gone ({said})"
    )


def checked(header: wire.AnswerHeader, body: memoryview) -> Answer:
    """The answer whose frames these are.

    Raises:
        ProtocolError: the body is not the one that the header tells of.
    """
    if header.body_bytes != body.nbytes or (body.nbytes and crc32c(body) != header.body_crc):
        raise ProtocolError("an answer's body is damaged", opcode=header.opcode, body_bytes=body.nbytes)
    return Answer(header, body)
