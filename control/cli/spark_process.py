"""A Spark application in a process of its own, and its executors where it has any: each can be killed.

The processes of one application share a session, so those that a dead driver left behind are found and ended.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import IO, Final, Self

import msgspec

from ringfence.native.errors import ConnectError

EXECUTOR: Final = "CoarseGrainedExecutorBackend"
HOME_PARTS: Final = ("bin", "data", "jars", "python", "sbin")
# Of what an application wrote, told when it fails: a Java error with its causes fits.
LINES_MAX: Final = 30
# Executors end by themselves when their driver is gone; who needs longer is killed.
ORPHANS_S: Final = 30.0
LOOK_S: Final = 0.1


def spark_home(folder: Path) -> Path:
    """A SPARK_HOME below `folder` with pyspark's own files behind links.

    Local clusters write their executors' logs and jars below SPARK_HOME, which is else the installed package.
    """
    import pyspark  # noqa: PLC0415 - only who starts Spark has it

    home = folder / "spark-home"
    home.mkdir(parents=True, exist_ok=True)
    for name in HOME_PARTS:
        source = Path(pyspark.__file__).parent / name
        if source.exists() and not (home / name).exists():
            (home / name).symlink_to(source)
    return home


class SparkProcess:
    """`python -m MODULE ARGUMENTS`; its Spark writes into the folder. Leaving the context ends it."""

    def __init__(self, folder: Path, module: str, *arguments: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._log, self._rest, self._tasks = folder / "spark.log", b"", 0
        environment = os.environ | {"SPARK_HOME": str(spark_home(folder)), "SPARK_LOCAL_DIRS": str(folder)}
        environment |= {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 - our own program with our own arguments
                [sys.executable, "-m", module, *arguments],
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )

    def tell(self, line: str) -> None:
        """A line for its stdin. Raises BrokenPipeError when it is gone."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n".encode())
        self._process.stdin.flush()

    @property
    def lines(self) -> IO[bytes]:
        """What the application prints."""
        assert self._process.stdout is not None
        return self._process.stdout

    def _newest_line(self) -> bytes:
        """The last whole line that it has printed since the last call; empty without one. Never waits."""
        while select.select([self.lines], [], [], 0)[0] and (got := os.read(self.lines.fileno(), 1 << 16)):
            self._rest += got
        *whole, self._rest = self._rest.split(b"\n")
        return whole[-1] if whole else b""

    def tasks(self) -> int:
        """How many tasks run, as an application tells that prints {"tasks": n} whenever n changes."""
        if line := self._newest_line():
            self._tasks = int(msgspec.json.decode(line)["tasks"])
        return self._tasks

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def executors(self) -> list[int]:
        """Process ids of its executors, oldest first."""
        return [pid for pid in self._members() if EXECUTOR in _command(pid)]

    def kill_executor(self) -> int:
        """SIGKILL for the oldest executor: its tasks are lost. Its process id; 0 if none runs."""
        for pid in self.executors():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                return pid
        return 0

    def kill_driver(self) -> None:
        """SIGKILL for the driver's Python and Java. Executors live on until they miss it."""
        executors = set(self.executors())
        java = [pid for pid in self._members() if "SparkSubmit" in _command(pid) and pid not in executors]
        for pid in (*java, self._process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()

    def wait(self, timeout_s: float) -> int:
        """The exit code. Raises ConnectError when it does not end."""
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise ConnectError(f"Spark does not end within {timeout_s:g} s: {self.said()}") from None

    def said(self) -> str:
        """The last lines that it wrote to stderr."""
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-LINES_MAX:])

    def count(self, text: str) -> int:
        """Lines with `text` that it wrote to stderr."""
        return sum(text in line for line in self._log.read_text(errors="replace").splitlines())

    def _members(self) -> list[int]:
        """Of its session, oldest first."""
        found = []
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError, ValueError):
                pid = int(entry.name)
                if os.getsid(pid) == self._process.pid:
                    found.append(pid)
        return sorted(found)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.is_running:
            self.kill_driver()
        end = time.monotonic() + ORPHANS_S
        while (left := self._members()) and time.monotonic() < end:
            time.sleep(LOOK_S)
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.lines.close()
        assert self._process.stdin is not None
        self._process.stdin.close()


def _command(pid: int) -> str:
    """Empty when the process is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""
