"""A PostgreSQL server of its own for a test, from Debian's packages (`.ci/run` installs them)."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Self


def programs() -> Path:
    """The folder of initdb and pg_ctl: Debian keeps each version in one of its own."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if found:
        return found[-1].parent
    other = shutil.which("initdb")
    assert other is not None, "PostgreSQL is missing: apt-get install postgresql, as .ci/run does"
    return Path(other).parent


class Postgres:
    """Runs while its block does. It refuses to run as root, so root gives it to the user postgres."""

    def __init__(self) -> None:
        self._folder = TemporaryDirectory(prefix="postgres-")  # short: it has the path of a socket
        self.folder = Path(self._folder.name)
        self.user = "postgres" if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name

    @property
    def dsn(self) -> str:
        """For `psycopg.connect`."""
        return f"host={self.folder} user={self.user} dbname=postgres"

    def _run(self, program: str, *arguments: str) -> None:
        as_user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--init-groups"]
        command = [*(as_user if os.geteuid() == 0 else []), str(programs() / program), *arguments]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=120, cwd=self.folder)

    def __enter__(self) -> Self:
        if os.geteuid() == 0:
            shutil.chown(self.folder, "postgres", "postgres")
        data = str(self.folder / "data")
        self._run("initdb", "-D", data, "-A", "trust", "-N")
        options = f"-c listen_addresses= -c unix_socket_directories={self.folder}"
        self._run("pg_ctl", "-D", data, "-w", "-l", str(self.folder / "log"), "-o", options, "start")
        return self

    def __exit__(self, *_: object) -> None:
        self._run("pg_ctl", "-D", str(self.folder / "data"), "-w", "-m", "fast", "stop")
        self._folder.cleanup()
