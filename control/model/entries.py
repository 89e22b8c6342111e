"""Entries of the metadata log: consensus orders them, the journal stores them."""

from __future__ import annotations

import msgspec

from ringfence.control.model.commands import Command
from ringfence.control.model.ids import Index, SessionId
from ringfence.control.model.requests import Condition, RequestKey


class Proposal(msgspec.Struct, frozen=True, array_like=True):
    """A proposer's request to consensus. `time_ms` is the proposer's wall clock, Unix ms: the machine reads
    no clock.

    `request` makes a repeat by an administrator harmless. `expects` refuses the command if its resource
    has changed.
    """

    session: SessionId
    sequence: int
    time_ms: int
    command: Command
    request: RequestKey | None = None
    expects: Condition | None = None


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """A proposal at its place in the log."""

    index: Index
    term: int
    proposal: Proposal


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(Proposal)


def encode_proposal(proposal: Proposal) -> bytes:
    """The payload of a journal record; term and index stand in the record's header."""
    return _ENCODER.encode(proposal)


def decode_proposal(payload: bytes | memoryview) -> Proposal:
    """The proposal of a payload. msgspec.ValidationError or DecodeError if this version cannot read it."""
    return _DECODER.decode(payload)
