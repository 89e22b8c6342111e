"""A TCP proxy that cuts connections: both ways at once, or so that only one way gets through."""

from __future__ import annotations

import selectors
import socket
import threading
from typing import Self


class Proxy:
    """Stands before one node.

    `cut` drops every connection, `cut_answers` lets what is on its way to the node arrive. While `is_deaf` no
    request arrives, and the connections stay.
    """

    def __init__(self, target: str) -> None:
        host, port = target.removeprefix("tcp://").rsplit(":", 1)
        self._target = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"tcp://127.0.0.1:{self._listener.getsockname()[1]}"
        self.cuts = 0
        self._pairs: dict[socket.socket, socket.socket] = {}  # client -> node
        self._mute: set[socket.socket] = set()
        self._mute_new = False
        self.is_deaf = False
        self._lock = threading.Lock()
        self._selector = selectors.DefaultSelector()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(10)
        for client, node in self._pairs.items():
            client.close()
            node.close()
        self._listener.close()
        self._selector.close()

    def cut(self) -> None:
        with self._lock:
            self.cuts += 1
            for client in list(self._pairs):
                self._close(client)

    def cut_answers(self) -> None:
        """From now on answers are swallowed; the connection ends with the next one that would have passed."""
        with self._lock:
            self.cuts += 1
            self._mute |= set(self._pairs)

    def mute_for_good(self) -> None:
        """From now on every answer is swallowed, of connections that come later, too."""
        self.cut_answers()
        self._mute_new = True

    def heal(self) -> None:
        """Everything gets through again, over new connections."""
        self._mute_new = self.is_deaf = False
        self.cut()

    def _close(self, client: socket.socket) -> None:
        node = self._pairs.pop(client)
        self._mute.discard(client)
        for one in (client, node):
            self._selector.unregister(one)
            one.close()

    def _run(self) -> None:
        while not self._stop.is_set():
            for key, _ in self._selector.select(0.02):
                with self._lock:
                    self._serve(key.fileobj)  # type: ignore[arg-type]

    def _serve(self, ready: socket.socket) -> None:
        if ready is self._listener:
            client, _ = self._listener.accept()
            self._pairs[client] = socket.create_connection(self._target)
            if self._mute_new:
                self._mute.add(client)
            for one in (client, self._pairs[client]):
                self._selector.register(one, selectors.EVENT_READ)
            return
        found = [(client, node) for client, node in self._pairs.items() if ready in {client, node}]
        if not found:
            return  # closed by `cut` since it was selected
        client, node = found[0]
        other = node if ready is client else client
        try:
            data = ready.recv(65536)
            if data and other is client and client in self._mute:
                self._close(client)  # the node has served it, and nobody will know
                return
            if data and not (self.is_deaf and ready is client):
                other.sendall(data)
        except OSError:
            data = b""
        if not data and client in self._pairs:
            self._close(client)
