"""Where the peers' programs and clients are, which versions they have, and what to do when one is missing."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from benchmarks.paths import ROOT

INSTALL = "python -m benchmarks.peers install"
PEERS = ("kafka", "nats", "redis")
CLIENTS = {"kafka": ("confluent-kafka", "kafka-python"), "nats": ("nats-py",), "redis": ("redis", "hiredis")}
JAVA_MIN = 17
"""Kafka 4 servers run on 17 and newer (KIP-1013)."""


class MissingError(RuntimeError):
    """A peer cannot take part here; the message begins with `missing: NAME`."""

    def __init__(self, name: str, what: str) -> None:
        super().__init__(f"missing: {name}: {what}; `{INSTALL} {name}` installs it")


def peers_directory() -> Path:
    """`BENCHMARKS_PEERS`, by default `.data/peers` in the checkout."""
    return Path(os.environ.get("BENCHMARKS_PEERS", ROOT / ".data" / "peers"))


def redis_program() -> str:
    """Redis, or Valkey, which speaks the same."""
    return _found("redis", "redis-server", "valkey-server")


def nats_program() -> str:
    return _found("nats", "nats-server")


def kafka_jars() -> Path:
    """The folder with the server's jars and what they depend on."""
    jars = peers_directory() / "kafka"
    if not any(jars.glob("kafka_2.13-*.jar")):
        raise MissingError("kafka", f"no kafka_2.13-*.jar in {jars}")
    return jars


def spark_jars() -> list[Path]:
    """Spark's Kafka connector and what it depends on."""
    folder = peers_directory() / "kafka-spark"
    jars = sorted(folder.glob("*.jar"))
    if not any(jar.name.startswith("spark-sql-kafka") for jar in jars):
        raise MissingError("kafka", f"no spark-sql-kafka-*.jar in {folder}")
    return jars


def java() -> str:
    found = shutil.which("java")
    if found is None:
        raise MissingError("kafka", f"no java on the path, {JAVA_MIN} or newer is needed")
    told = _said([found, "-version"])
    version = re.search(r'version "(\d+)', told)
    if version is None or int(version[1]) < JAVA_MIN:
        raise MissingError("kafka", f"java is {told.splitlines()[0]!r}, {JAVA_MIN} or newer is needed")
    return found


def require(name: str) -> None:
    """Raise MissingError unless the peer's server and client are here."""
    {"kafka": _kafka, "nats": nats_program, "redis": redis_program}[name]()
    for client in CLIENTS[name]:
        try:
            importlib.metadata.version(client)
        except importlib.metadata.PackageNotFoundError:
            raise MissingError(name, f"no Python package {client}") from None


def present(names: Sequence[str] = PEERS) -> tuple[list[str], list[str]]:
    """(those that can take part, one line for each that cannot)."""
    here, missing = [], []
    for name in names:
        try:
            require(name)
            here.append(name)
        except MissingError as error:
            missing.append(str(error))
    return here, missing


def versions(names: Sequence[str]) -> dict[str, str]:
    """Server and client of each, as they name themselves."""
    return {name: f"{_server_version(name)}, {_client_versions(name)}" for name in names}


def _kafka() -> None:
    java()
    kafka_jars()


def _server_version(name: str) -> str:
    if name == "kafka":
        (jar,) = kafka_jars().glob("kafka_2.13-*.jar")
        return jar.stem.removeprefix("kafka_2.13-")
    program = {"nats": nats_program, "redis": redis_program}[name]()
    found = re.search(r"v=?(\d[\w.-]*)", _said([program, "--version"]))
    return found[1] if found else "unknown"


def _client_versions(name: str) -> str:
    return " ".join(f"{client} {importlib.metadata.version(client)}" for client in CLIENTS[name])


def _found(name: str, *programs: str) -> str:
    path = os.pathsep.join([str(peers_directory() / "bin"), os.environ.get("PATH", os.defpath), "/usr/sbin"])
    for program in programs:
        if found := shutil.which(program, path=path):
            return found
    raise MissingError(name, f"no {' or '.join(programs)} in {peers_directory() / 'bin'} or on the path")


def _said(command: Sequence[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    return done.stdout + done.stderr
