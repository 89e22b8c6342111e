"""`python -m tests.harness.fork_server FD`: forks processes that need not import what they run.

Nearly all of the processor time of a node's start goes to imports, and the tests start hundreds of
nodes. This process has imported them once. Each request comes over the socket FD, with the descriptors that
become 0, 1 and 2 of the new process and with a socket of its own for the process id and the exit status;
`forks.py` is the other side. What the environment decides before `main` (hash seed, preloaded libraries,
limits) is that of this process.
"""

from __future__ import annotations

import gc
import json
import os
import runpy
import select
import signal
import socket
import sys
import warnings
from importlib import import_module
from pathlib import Path

REQUEST_BYTES_MAX = 1 << 18
"""Arguments and environment of a process: Linux allows a message of a socket pair so much by default."""


def preload() -> None:
    """Import what nodes, commands and clients import."""
    from ringfence.control.cli import program

    modules = [module for module, _ in program.COMMANDS.values()]
    for name in ("ringfence", "ringfence.aio", "ringfence.control.runtime.node_process", *modules):
        import_module(name)


class Server:
    """Forks for the process that holds the other end of `control`, until that is closed."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._ended, self._wakes = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._owners: dict[int, socket.socket] = {}
        """By process: whom its exit status is for."""

    def next_child(self) -> list[str] | None:
        """In a new process: its arguments. None in the server, at the end of its client."""
        signal.set_wakeup_fd(self._wakes, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        while True:
            readable, _, _ = select.select([self._control.fileno(), self._ended], [], [])
            self._reap()
            if self._control.fileno() in readable:
                data, descriptors, _, _ = socket.recv_fds(self._control, REQUEST_BYTES_MAX, 4)
                if not data:
                    return None
                arguments = self._fork(json.loads(data), descriptors)
                if arguments is not None:
                    return arguments

    def _reap(self) -> None:
        try:
            os.read(self._ended, 4096)
        except BlockingIOError:
            return
        while self._owners:
            process, status = os.waitpid(-1, os.WNOHANG)
            if process == 0:
                return
            with self._owners.pop(process) as owner:
                send(owner, {"status": os.waitstatus_to_exitcode(status)})

    def _fork(self, request: dict[str, object], descriptors: list[int]) -> list[str] | None:
        owner = socket.socket(fileno=descriptors.pop())
        process = os.fork()
        if process == 0:
            owner.close()
            return self._become(request, descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        self._owners[process] = owner
        send(owner, {"process": process})
        return None

    def _become(self, request: dict[str, object], descriptors: list[int]) -> list[str]:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for own in (self._control, *self._owners.values()):
            own.close()
        for place, descriptor in enumerate(descriptors):
            os.dup2(descriptor, place)
        for descriptor in (self._ended, self._wakes, *descriptors):
            os.close(descriptor)
        _open_standard_streams()
        os.chdir(str(request["folder"]))
        os.environ.clear()
        os.environ.update(request["environment"])  # type: ignore[call-overload]
        arguments = request["arguments"]
        assert isinstance(arguments, list)
        return arguments


def _open_standard_streams() -> None:
    """As the interpreter does at its start: those of the server belong to what it was started with."""
    sys.stdin = os.fdopen(0, closefd=False)
    sys.stdout = os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", 1, errors="backslashreplace", closefd=False)


def send(owner: socket.socket, what: dict[str, int]) -> None:
    """Tell the test process; it may have gone."""
    try:
        owner.send(json.dumps(what).encode())
    except OSError:
        return


def run(arguments: list[str]) -> None:
    """As the interpreter runs `PROGRAM ...`, or `-m MODULE ...`."""
    if arguments[0] == "-m":
        sys.argv = arguments[1:]
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        return
    from ringfence.control.cli import main

    sys.argv = arguments
    sys.path[0] = str(Path(arguments[0]).parent)
    main()  # it exits


def serve() -> None:
    """Serve until the client goes; in each new process, what it runs."""
    preload()
    gc.collect()
    gc.freeze()
    # Libraries have threads that wait, and put them right in a new process themselves (jemalloc, OpenBLAS).
    warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
    arguments = Server(socket.socket(fileno=int(sys.argv[1]))).next_child()
    if arguments is not None:
        warnings.resetwarnings()
        run(arguments)


if __name__ == "__main__":
    serve()
