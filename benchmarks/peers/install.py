"""Installs peers: Kafka's jars by Maven, NATS by Go, Redis by Debian's packages, clients by pip. All pinned.

Debian keeps one version of a package, so Redis is the one that the release has: the record says which.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.peers.installed import JAVA_MIN, MissingError, nats_program, peers_directory, redis_program

HERE = Path(__file__).resolve().parent
NATS_SERVER = "github.com/nats-io/nats-server/v2@v2.15.2"
STEP_TIMEOUT_S = 1800
"""NATS is compiled: 3 minutes where other compilers run."""


class InstallError(RuntimeError):
    """A step failed; the message says which and what it said."""


def install(name: str) -> None:
    """Server and client of one peer, at their pinned versions. Raises InstallError."""
    {"kafka": _kafka, "nats": _nats, "redis": _redis}[name]()
    _clients()


def _kafka() -> None:
    _jars("kafka", "pom.xml")
    _jars("kafka-spark", "spark-pom.xml")


def _jars(name: str, pom: str) -> None:
    """What a project of Maven depends on, in a folder of that name."""
    jars = peers_directory() / name
    part = jars.with_suffix(".part")
    shutil.rmtree(part, ignore_errors=True)
    maven = _tool("mvn", f"apt-get install maven (with Java {JAVA_MIN} or newer)")
    # Copied, so that Maven's own `target` folder is not made beside the pinned file.
    project = peers_directory() / f"{name}-pom.xml"
    project.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(HERE / pom, project)
    _run([maven, "-q", "-B", "-f", str(project), "dependency:copy-dependencies", f"-DoutputDirectory={part}"])
    shutil.rmtree(jars, ignore_errors=True)
    part.rename(jars)


def _nats() -> None:
    go = _tool("go", "apt-get install golang, 1.24 or newer")
    folder = peers_directory() / "bin"
    folder.mkdir(parents=True, exist_ok=True)
    _run([go, "install", NATS_SERVER], GOBIN=str(folder))
    nats_program()


def _redis() -> None:
    try:
        redis_program()
    except MissingError:
        apt = _tool("apt-get", "install redis-server 7 or newer, or valkey-server, from your distribution")
        if os.geteuid() != 0:
            raise InstallError(
                "redis: only root may run `apt-get install redis-server`; run it, then again this"
            ) from None
        # Run level 1: Debian starts no service that nobody asked for.
        _run(
            [apt, "install", "-y", "-q", "--no-install-recommends", "redis-server"],
            RUNLEVEL="1",
            DEBIAN_FRONTEND="noninteractive",
        )


def _clients() -> None:
    pins = HERE / "requirements.txt"
    _run(
        [
            sys.executable,
            "-m",
            "pip",
            "install",
            "-q",
            "--disable-pip-version-check",
            "--require-hashes",
            "-r",
            str(pins),
        ]
    )


def _tool(name: str, way_out: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise InstallError(f"{name} is not installed; {way_out}")
    return found


def _run(command: Sequence[str], **environment: str) -> None:
    try:
        done = subprocess.run(
            command,
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            check=False,
            timeout=STEP_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired as error:
        raise InstallError(f"{' '.join(command)} did not end within {STEP_TIMEOUT_S} s") from error
    if done.returncode != 0:
        said = (done.stdout + done.stderr)[-1500:]
        raise InstallError(f"{' '.join(command)} ended with {done.returncode}:\n{said}")
