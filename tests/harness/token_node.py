"""A node that asks for tokens, with a file for each token that was made."""

from __future__ import annotations

import subprocess
from pathlib import Path

import ringfence
from ringfence.control.cli.exit_codes import Exit
from tests.harness.processes import NodeProcess, cli, free_port


class TokenNode:
    """A node with the admin API, and a token file of each name that was made."""

    def __init__(self, root: Path) -> None:
        self.http = f"http://127.0.0.1:{free_port()}"
        # Its files are read whole: little ones.
        options = ("--http", self.http.removeprefix("http://"), "--segment-bytes", "4MiB")
        self.node = NodeProcess(root / "data", options=options)
        self.files = root / "tokens"
        self.files.mkdir()

    def make(self, name: str, role: str, *options: str) -> Path:
        """The file of a new token."""
        file = self.files / name
        done = self.token("create", name, "--role", role, "--to", str(file), *options)
        assert done.returncode == Exit.OK, done.stderr
        return file

    def token(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        root = self.files / "root"
        known = ("--token-file", str(root)) if root.exists() and "root" not in arguments else ()
        return cli("token", *arguments, "--http", self.http, *known)

    def connect(self, name: str | None = None, timeout_s: float = 15) -> ringfence.Client:
        file = None if name is None else self.files / name
        return ringfence.connect(self.node.address, timeout_s=timeout_s, token_file=file)
