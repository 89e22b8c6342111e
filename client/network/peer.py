"""A node as the client knows it: its addresses, the connection of the moment, and when to try again."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from ringfence.common.retry import Backoff

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ringfence.native.errors import RingfenceError
    from ringfence.network.connection import Connection
    from ringfence.network.request import Ask

# A node that restarts is back within a second; a cap of 1 s finds it soon, and 1,000 clients make 1,000 tries
# a second.
RECONNECT = Backoff(first_s=0.02, cap_s=1.0)


class Peer:
    """`node` is its id, None for whoever answers at the addresses that the application named."""

    def __init__(self, node: int | None, addresses: tuple[str, ...]) -> None:
        self.node, self.addresses = node, addresses
        self.connection: Connection | None = None
        self.waiting: deque[Ask] = (
            deque()
        )  # requests that go out once it is ready; bounded by their callers' threads
        self.failure: RingfenceError | None = None  # why the last connection did not come about
        self.retry_at = 0.0
        self._found = ""  # how far the last connection came
        self._tries = 0
        self._connects = 0  # in a row that did not come about: of names every second one is by IPv6
        self.was_tried = False  # a connection came about, or did not

    @property
    def up(self) -> Connection | None:
        """The connection if READY came."""
        connection = self.connection
        return (
            connection
            if connection is not None and connection.ready is not None and not connection.ended
            else None
        )

    @property
    def answers(self) -> bool:
        """Whether it is connected, and not silent."""
        up = self.up
        return up is not None and not up.silent

    @property
    def address(self) -> str:
        """The one to try now."""
        return self.addresses[self._tries % len(self.addresses)]

    @property
    def tries_ipv6(self) -> bool:
        """Whether the next connection is one of IPv6.

        A name may have addresses of both, and its node listen at either. ZeroMQ tries one of them only, so
        they take turns.
        """
        if not self.address.startswith("tcp://"):
            return False
        host = self.address.removeprefix("tcp://").rpartition(":")[0]
        if host.startswith("["):
            return True
        is_number = host.replace(".", "").isdigit()
        return not is_number and self._connects // len(self.addresses) % 2 == 1

    @property
    def found(self) -> str:
        """Why nobody answers, as far as connections tell: of the last one that ended, else of this one."""
        return self._found or ("" if self.connection is None else self.connection.found())

    def failed(self, now: float, jitter: float, failure: RingfenceError | None) -> None:
        """The connection ended, or never stood."""
        if self.connection is not None:
            self._found = self.connection.found()
        self.connection = None
        self.was_tried = True
        self.failure = failure or self.failure
        self._tries += 1
        self._connects += 1
        self.retry_at = now + RECONNECT.delay_s(self._tries, jitter)

    def left(self, now: float, others: Iterable[str]) -> Connection | None:
        """Go on to the next address, at once; the connection, which is the caller's from here on.

        `others` are addresses of nodes that an application did not name. None: there is no other address.
        """
        addresses = tuple(dict.fromkeys([*self.addresses, *others]))
        connection = self.connection
        if connection is None or len(addresses) == 1:
            return None
        self._tries = addresses.index(connection.address) + 1
        self.addresses, self.connection, self.retry_at = addresses, None, now
        return connection

    def succeeded(self) -> None:
        """READY came."""
        self.was_tried = True
        self._connects = 0
        self.failure, self._found, self._tries = None, "", self.addresses.index(self.address)
