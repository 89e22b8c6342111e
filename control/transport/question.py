"""Ask one question at a node's control address, blocking, for the command line."""

from __future__ import annotations

from urllib.parse import urlsplit

import zmq

from ringfence.common.address import with_scheme
from ringfence.control.transport import envelope as envelopes
from ringfence.control.transport.envelope import ENVELOPE_BYTES_MAX, VERSION, Envelope, EnvelopeError, Kind
from ringfence.native.errors import ConfigError, ConnectError


def ask_address(address: str, body: bytes, timeout_s: float) -> bytes:
    """Send a question, and return the body of the answer.

    Raises:
        ConfigError: `address` is neither tcp://HOST:PORT nor HOST:PORT nor ipc://PATH.
        ConnectError: no answer came in time, or the answer is no control message of this version.
    """
    address = with_scheme(address, "tcp")
    if urlsplit(address).scheme not in {"tcp", "ipc"}:
        raise ConfigError(f"control={address!r}: it must be tcp://HOST:PORT or HOST:PORT", key="control")
    with zmq.Context() as context, context.socket(zmq.DEALER) as dealer:
        dealer.setsockopt(zmq.LINGER, 0)
        dealer.setsockopt(zmq.MAXMSGSIZE, ENVELOPE_BYTES_MAX)
        dealer.setsockopt(zmq.IPV6, int(address.startswith("tcp://[")))
        try:
            dealer.connect(address)
        except zmq.ZMQError as error:
            raise ConfigError(f"control={address!r}: {error.strerror}", key="control") from error
        dealer.send(envelopes.encode(Envelope(VERSION, Kind.ASK, b"", 0, 0, "", 1, body)))
        if not dealer.poll(round(timeout_s * 1_000)):
            raise ConnectError(f"no answer from {address} within {timeout_s:g} s; is it a control address?")
        data = dealer.recv()
    try:
        return envelopes.decode(data).body
    except EnvelopeError as error:
        raise ConnectError(f"the answer from {address} is no control message: {error}") from error
