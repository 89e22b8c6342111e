"""Options of a producer; `Client.producer` documents each."""

from __future__ import annotations

from numbers import Real
from typing import Literal, NamedTuple

from ringfence.common.arguments import seconds, whole
from ringfence.native.errors import InvalidArgumentError
from ringfence.native.wire import MESSAGE_BYTES_MAX

TIMEOUT_S = 120.0  # enough for a node to restart and recover
BYTES_IN_FLIGHT_MAX = 134_217_728  # 128 MiB: a full window of 64 bodies of 2 MiB
BATCH_BYTES = 1_048_576  # 1 MiB: above it the cost of a body depends on its bytes only
LINGER_MS_MAX = 60_000
OnFull = Literal["block", "raise"]


class Options(NamedTuple):
    """Unchecked values; `check` validates them."""

    on_full: OnFull = "block"
    timeout_s: float = TIMEOUT_S
    linger_ms: float = 0.0
    batch_bytes: int = BATCH_BYTES
    bytes_in_flight_max: int = BYTES_IN_FLIGHT_MAX

    @property
    def wait_s(self) -> float:
        """Seconds that a send waits for room."""
        return 0.0 if self.on_full == "raise" else self.timeout_s

    def check(self) -> Options:
        """The options with validated numbers. Raises InvalidArgumentError, which names the option."""
        if self.on_full not in {"block", "raise"}:
            raise InvalidArgumentError('on_full must be "block" or "raise"', on_full=self.on_full)
        batch_bytes = whole("batch_bytes", self.batch_bytes, 1)
        if batch_bytes > MESSAGE_BYTES_MAX // 2:
            raise InvalidArgumentError(
                "batch_bytes must be at most half of message_bytes_max", batch_bytes=batch_bytes
            )
        if not _is_number(self.linger_ms) or not 0 <= self.linger_ms <= LINGER_MS_MAX:
            raise InvalidArgumentError(f"linger_ms must be 0 .. {LINGER_MS_MAX}", linger_ms=self.linger_ms)
        return self._replace(
            timeout_s=seconds("timeout_s", self.timeout_s),
            linger_ms=float(self.linger_ms),
            batch_bytes=batch_bytes,
            bytes_in_flight_max=whole("bytes_in_flight_max", self.bytes_in_flight_max, 1),
        )


def _is_number(given: object) -> bool:
    return isinstance(given, Real) and not isinstance(given, bool)
