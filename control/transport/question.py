"""One question to a node's control address from outside of a node: blocking, for the command line."""

from __future__ import annotations

from urllib.parse import urlsplit

import zmq

from ringfence.control.transport import envelope as envelopes
from ringfence.control.transport.envelope import ENVELOPE_BYTES_MAX, VERSION, Envelope, EnvelopeError, Kind
from ringfence.native.errors import ConfigError, ConnectError


def put(address: str, body: bytes, timeout_s: float) -> bytes:
    """The body of the answer.

    Raises:
        ConfigError: `address` is none.
        ConnectError: nobody answered in time, or what answered is no node of this version.
    """
    if urlsplit(address).scheme not in {"tcp", "ipc"}:
        raise ConfigError(f"control={address!r}: tcp://HOST:PORT", key="control")
    with zmq.Context() as context, context.socket(zmq.DEALER) as place:
        place.setsockopt(zmq.LINGER, 0)
        place.setsockopt(zmq.MAXMSGSIZE, ENVELOPE_BYTES_MAX)
        place.setsockopt(zmq.IPV6, int(address.startswith("tcp://[")))
        try:
            place.connect(address)
        except zmq.ZMQError as error:
            raise ConfigError(f"control={address!r}: {error.strerror}", key="control") from error
        place.send(envelopes.encode(Envelope(VERSION, Kind.ASK, b"", 0, 0, "", 1, body)))
        if not place.poll(round(timeout_s * 1_000)):
            raise ConnectError(f"no answer from {address} within {timeout_s:g} s; is it a control address?")
        data = place.recv()
    try:
        return envelopes.decode(data).body
    except EnvelopeError as error:
        raise ConnectError(f"{address} answered with what is no control message: {error}") from error
