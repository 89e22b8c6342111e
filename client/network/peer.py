"""A node from the client's view: addresses, current connection, and time of the next try."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from ringfence.common.retry import Backoff

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ringfence.native.errors import RingfenceError
    from ringfence.network.connection import Connection
    from ringfence.network.request import Request

# A restarted node is back within a second, and a cap of 1 s finds it soon. 1,000 clients then make 1,000
# tries a second.
RECONNECT = Backoff(first_s=0.02, cap_s=1.0)


class Peer:
    """`node`: its id; None for any node that answers at the addresses of the application."""

    def __init__(self, node: int | None, addresses: tuple[str, ...]) -> None:
        self.node, self.addresses = node, addresses
        self.connection: Connection | None = None
        # Sent once a connection is ready; bounded by the threads of the callers.
        self.waiting: deque[Request] = deque()
        self.failure: RingfenceError | None = None  # of the last connection
        self.retry_at = 0.0
        self._found = ""  # state in which the last connection ended
        self._tries = 0
        self._connects = 0  # failed connections in a row; for a host name every second try uses IPv6
        self.was_tried = False  # one connection has succeeded or failed
        self.used_s = 0.0  # when a request was last routed to the node
        self.unused_s: float | None = None  # since when no table in use names the node; None: one does

    @property
    def up(self) -> Connection | None:
        """The connection after READY, else None."""
        connection = self.connection
        return (
            connection
            if connection is not None and connection.ready is not None and not connection.ended
            else None
        )

    @property
    def answers(self) -> bool:
        """Whether the node is connected and not silent."""
        up = self.up
        return up is not None and not up.silent

    @property
    def address(self) -> str:
        """The address of the next try."""
        return self.addresses[self._tries % len(self.addresses)]

    @property
    def tries_ipv6(self) -> bool:
        """Whether the next connection uses IPv6.

        A host name may have addresses of both families, and the node may listen at either. ZeroMQ tries one
        of them only, so the tries alternate.
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
        """State of the last connection that ended, else of the current one, for the text of an error."""
        return self._found or ("" if self.connection is None else self.connection.found())

    def failed(self, now: float, jitter: float, failure: RingfenceError | None) -> None:
        """The connection ended, or was never established."""
        if self.connection is not None:
            self._found = self.connection.found()
        self.connection = None
        self.was_tried = True
        self.failure = failure or self.failure
        self._tries += 1
        self._connects += 1
        self.retry_at = now + RECONNECT.delay_s(self._tries, jitter)

    def left(self, now: float, others: Iterable[str]) -> Connection | None:
        """Switch to the next address immediately, and hand the current connection over to the caller.

        `others`: addresses of nodes that the application did not name. None: there is no other address.
        """
        addresses = tuple(dict.fromkeys([*self.addresses, *others]))
        connection = self.connection
        if connection is None or len(addresses) == 1:
            return None
        self._tries = addresses.index(connection.address) + 1
        self.addresses, self.connection, self.retry_at = addresses, None, now
        return connection

    def succeeded(self) -> None:
        """READY arrived."""
        self.was_tried = True
        self._connects = 0
        self.failure, self._found, self._tries = None, "", self.addresses.index(self.address)
