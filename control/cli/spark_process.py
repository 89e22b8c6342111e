"""Run a Spark application as a process; kill its driver or its executors.

The processes of one application share a session, so executors of a killed driver can be found and ended.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final

import msgspec

from ringfence.control.cli import signals
from ringfence.native.errors import ConnectError

EXECUTOR: Final = "CoarseGrainedExecutorBackend"
HOME_PARTS: Final = ("bin", "data", "jars", "python", "sbin")
# Lines of the log in an error: a Java error with its causes fits.
LINES_MAX: Final = 30
# Seconds for executors to end after their driver; then they are killed.
ORPHANS_S: Final = 30.0
POLL_S: Final = 0.1


def spark_home(folder: Path) -> Path:
    """Create a SPARK_HOME below `folder` with links to the files of pyspark.

    Local clusters write logs and jars of executors below SPARK_HOME, by default the installed package.
    """
    import pyspark  # noqa: PLC0415 - optional dependency

    home = folder / "spark-home"
    home.mkdir(parents=True, exist_ok=True)
    for name in HOME_PARTS:
        source = Path(pyspark.__file__).parent / name
        if source.exists() and not (home / name).exists():
            (home / name).symlink_to(source)
    return home


@contextlib.contextmanager
def spark_process(folder: Path, module: str, *arguments: str) -> Iterator[SparkProcess]:
    """Run `python -m MODULE ARGUMENTS` until the context ends. Its Spark writes to `folder`."""
    with contextlib.ExitStack() as stack:
        with signals.deferred():
            process = SparkProcess(folder, module, *arguments)
            stack.callback(process.stop)
        yield process


class SparkProcess:
    """A driver of Spark as a process, with the executors that it starts; `spark_process` makes it."""

    def __init__(self, folder: Path, module: str, *arguments: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._log, self._rest, self._tasks = folder / "spark.log", b"", 0
        environment = os.environ | {"SPARK_HOME": str(spark_home(folder)), "SPARK_LOCAL_DIRS": str(folder)}
        environment |= {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 - constant program and arguments
                [sys.executable, "-m", module, *arguments],
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )

    def write_line(self, line: str) -> None:
        """Write a line to the application's stdin. Raises BrokenPipeError if the application has ended."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n".encode())
        self._process.stdin.flush()

    @property
    def lines(self) -> IO[bytes]:
        """Stdout of the application."""
        assert self._process.stdout is not None
        return self._process.stdout

    def _newest_line(self) -> bytes:
        """Return the last complete line since the last call, or b"" if there is none. Never waits."""
        while select.select([self.lines], [], [], 0)[0] and (data := os.read(self.lines.fileno(), 1 << 16)):
            self._rest += data
        *lines, self._rest = self._rest.split(b"\n")
        return lines[-1] if lines else b""

    def read_line(self, timeout_s: float) -> bytes:
        """Return the next complete line. ConnectError: the application ended, or wrote none in time."""
        end = time.monotonic() + timeout_s
        while not (line := self._newest_line()):
            if not self.is_running or time.monotonic() > end:
                raise ConnectError(f"Spark wrote no answer; its log ends with: {self.last_lines()}")
            time.sleep(POLL_S)
        return line

    def tasks(self) -> int:
        """Return the number of running tasks. The application prints {"tasks": n} whenever n changes."""
        if line := self._newest_line():
            self._tasks = int(msgspec.json.decode(line)["tasks"])
        return self._tasks

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def executors(self) -> list[int]:
        """Return the process ids of the executors, oldest first."""
        return [pid for pid in self._members() if EXECUTOR in _command(pid)]

    def kill_executor(self) -> int:
        """Kill the oldest executor; its tasks are lost. Return its process id; 0 if none runs."""
        for pid in self.executors():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                return pid
        return 0

    def kill_driver(self) -> None:
        """Kill the Python and Java processes of the driver. Executors end when their connection breaks."""
        executors = set(self.executors())
        java = [pid for pid in self._members() if "SparkSubmit" in _command(pid) and pid not in executors]
        for pid in (*java, self._process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()

    def wait(self, timeout_s: float) -> int:
        """Wait for the end and return the exit code. Raises ConnectError after `timeout_s`."""
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise ConnectError(
                f"Spark did not end within {timeout_s:g} s; its log ends with: {self.last_lines()}"
            ) from None

    def last_lines(self) -> str:
        """Return the last lines of the application's stderr."""
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-LINES_MAX:])

    def count(self, text: str) -> int:
        """Count the lines with `text` in the application's stderr."""
        return sum(text in line for line in self._log.read_text(errors="replace").splitlines())

    def _members(self) -> list[int]:
        """Return the process ids of the session, oldest first."""
        pids = []
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError, ValueError):
                pid = int(entry.name)
                if os.getsid(pid) == self._process.pid:
                    pids.append(pid)
        return sorted(pids)

    def stop(self) -> None:
        """Kill the driver if it runs, and the executors that do not end within `ORPHANS_S`."""
        if self.is_running:
            self.kill_driver()
        end = time.monotonic() + ORPHANS_S
        while (left := self._members()) and time.monotonic() < end:
            time.sleep(POLL_S)
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.lines.close()
        assert self._process.stdin is not None
        self._process.stdin.close()


def _command(pid: int) -> str:
    """Return the command line of a process; empty if the process has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""
